"""What it costs a collective that a process notes where it stands, and the agent to look at a node's processes."""

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from rankscope import Run
from rankscope._beacon import Beacon
from rankscope.agent.beacons import BeaconFile
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour
from rankscope.agent.stacks import Stacks
from rankscope.agent.standings import Standings
from rankscope.spool import SpoolHead
from rankscope.testing import MemoryExporter
from tests.bench.report import Report
from tests.ground.processes import wait_until

if TYPE_CHECKING:
    from rankscope._recording import Recording

pytestmark = pytest.mark.bench

ROUNDS, NOTES = 400, 200
"""A round is shorter than a scheduler's slice, so that medians are not of a busy machine."""

PROCESSES = 16


def recording_of(run: Run) -> "Recording":
    return cast("Recording", vars(run)["_recording"])


def noting(beacon: Beacon, group: int, first: int) -> None:
    for number in range(first, first + NOTES):
        beacon.left(beacon.entered(group, number, "all_reduce", number, (4, 1000)), number)


def nothing(first: int) -> None:
    for _ in range(first, first + NOTES):
        pass


def test_a_collective_pays_about_a_microsecond_for_both_notes(report: Report) -> None:
    with Run(MemoryExporter()) as run:
        beacon = recording_of(run).beacon
        assert beacon is not None
        group = beacon.group("0")
        took: list[float] = []
        for number in range(ROUNDS):
            began_ns = time.perf_counter_ns()
            noting(beacon, group, 1 + number * NOTES)
            between_ns = time.perf_counter_ns()
            nothing(number * NOTES)
            took.append((2 * between_ns - began_ns - time.perf_counter_ns()) / NOTES)

    report.judge("beacon, both notes of a collective", statistics.median(took), "ns", sense="at most", target=1_000)


def test_the_agent_looks_at_a_full_node_in_a_moment(report: Report, tmp_path: Path) -> None:
    with Run(MemoryExporter()) as run:
        head = SpoolHead.of(recording_of(run).identity, created_ns=0)
        wait_until(lambda: BeaconFile.of(head) is not None, what="begin")
        # The same process under many names: each look is one of its own.
        neighbours = [Neighbour(tmp_path, head, is_near=True) for _ in range(PROCESSES)]
        diaries = Diaries(tmp_path)
        watching = [Standings(diaries, Stacks()) for _ in range(PROCESSES)]
        took: list[float] = []
        for _ in range(ROUNDS):
            began_ns = time.perf_counter_ns()
            for standings, neighbour in zip(watching, neighbours, strict=True):
                standings.visit((neighbour,))
            took.append((time.perf_counter_ns() - began_ns) / 1e6)
        for standings in watching:
            standings.close()
        diaries.close()

    report.judge(f"a round over {PROCESSES} processes", statistics.median(took), "ms", sense="at most", target=10)
