"""What a process notes on where it stands, read from outside it."""

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from rankscope import Run
from rankscope._beacon import GROUPS, NOTE
from rankscope.agent.beacons import BeaconFile, Notes
from rankscope.spool import SpoolHead
from rankscope.testing import MemoryExporter
from rankscope_proto.names import Phase
from tests.ground.processes import wait_until

if TYPE_CHECKING:
    from rankscope._recording import Recording


class Lit:
    """A recording run whose beacon is read as the agent reads it."""

    def __init__(self) -> None:
        self.run = Run(MemoryExporter())
        recording = cast("Recording", vars(self.run)["_recording"])
        assert recording.beacon is not None
        self.beacon = recording.beacon
        self._head = SpoolHead.of(recording.identity, created_ns=0)
        wait_until(self._opened, what="say who it is")
        file = self._file
        assert file is not None
        self.file = file

    def _opened(self) -> bool:
        self._file = BeaconFile.of(self._head)
        return self._file is not None

    def notes(self) -> Notes:
        notes = self.file.read()
        assert notes is not None
        return notes


@pytest.fixture
def lit() -> Iterator[Lit]:
    made = Lit()
    yield made
    made.run.finish()
    made.file.close()


def test_a_collective_is_under_way_from_its_entry_to_its_end(lit: Lit) -> None:
    group = lit.beacon.group("0")
    at_ns = time.monotonic_ns()

    ticket = lit.beacon.entered(group, 812, "all_reduce", at_ns, (4, 1000))
    (entered,) = lit.notes().groups
    lit.beacon.left(ticket, at_ns + 5)
    (left,) = lit.notes().groups

    assert (entered.name, entered.enqueued, entered.completed, entered.op) == ("0", 812, 0, "all_reduce")
    assert (entered.shape, entered.moved_ns, entered.is_under_way) == ("4x1000", at_ns, True)
    assert (left.completed, left.moved_ns, left.is_under_way) == (812, at_ns + 5, False)
    assert lit.beacon.group("0") == group


def test_what_the_recorder_saw_counts_where_it_is_further(lit: Lit) -> None:
    group = lit.beacon.group("0")
    lit.beacon.left(lit.beacon.entered(group, 2, "broadcast", 1, "8"), 2)

    lit.beacon.told(group, 4, 3, op="all_reduce", shape="1000")
    (told,) = lit.notes().groups
    lit.beacon.left(lit.beacon.entered(group, 5, "barrier", 3, ""), 4)
    (behind,) = lit.notes().groups

    assert (told.enqueued, told.completed, told.op, told.shape) == (4, 3, "all_reduce", "1000")
    assert (behind.enqueued, behind.completed, behind.op) == (5, 5, "barrier")


def test_the_step_and_its_phase_are_noted(lit: Lit) -> None:
    before = lit.notes()
    with lit.run.step(41), vars(lit.run)["_recording"].current_step().phase("backward"):
        lit.beacon.beat()
        inside = lit.notes()

    assert (before.step, before.moved_ns) == (None, 0)
    assert (inside.step, inside.phase) == (41, Phase.BACKWARD.code)
    after = lit.notes()
    with lit.run.step(42):
        next_one = lit.notes()
    assert (after.step, after.moved_ns > inside.moved_ns > 0) == (41, True)
    assert (next_one.step, next_one.phase) == (42, 0)


def test_the_sealing_thread_beats_and_asks_before_it_does(lit: Lit) -> None:
    asked: list[int] = []

    def stumbling() -> None:
        raise ValueError("nothing to say")

    lit.beacon.before_beat(stumbling)
    lit.beacon.before_beat(lambda: asked.append(1))
    first = lit.notes().beat_ns

    wait_until(lambda: lit.notes().beat_ns > first and bool(asked), what="beat")
    assert sum("in the beacon" in fault for fault in lit.run.faults) == 1


def test_a_finished_run_is_noted_as_such_and_takes_nothing_more(lit: Lit) -> None:
    group = lit.beacon.group("0")
    lit.run.finish()

    assert lit.notes().is_ended
    assert lit.beacon.entered(group, 1, "all_reduce", 1, "8") == 0
    lit.beacon.told(group, 9, 9)
    lit.beacon.left(7, 1)
    assert lit.beacon.group("1") == -1
    assert lit.notes().groups[0].enqueued == 0
    assert not lit.run.faults


def test_a_forked_child_notes_nothing(lit: Lit) -> None:
    group = lit.beacon.group("0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are what makes it interesting
        child = os.fork()
    if not child:
        lit.beacon.entered(group, 9, "all_reduce", 1, "8")
        os._exit(0)
    os.waitpid(child, 0)

    assert lit.notes().groups[0].enqueued == 0


def test_odd_arguments_cost_the_note_and_never_the_collective(lit: Lit) -> None:
    group = lit.beacon.group("0")

    unhashable: list[int] = [1]
    assert lit.beacon.entered(group, 1, "all_reduce", 1, unhashable) == 0
    assert lit.beacon.entered(-1, 1, "all_reduce", 1, "8") == 0
    assert lit.beacon.entered(group, 0, "send", 1, "8") == 0
    ticket = lit.beacon.entered(group, 1, "x" * 100, 1, (7,) * 100)
    numbers = [lit.beacon.group(f"g{number}") for number in range(GROUPS)]

    assert ticket
    assert numbers[-1] == -1
    assert lit.notes().groups[0].op == "x" * 32
    assert lit.run.faults == {"TypeError in the beacon": 1}


def test_a_python_that_was_built_without_such_memory_records_without_a_beacon() -> None:
    script = """
import fcntl, os
del fcntl.F_ADD_SEALS, os.memfd_create
from rankscope import Run
from rankscope.testing import MemoryExporter
with Run(MemoryExporter()) as run:
    assert vars(run)["_recording"].beacon is None
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_note_that_was_cut_in_the_middle_is_told(lit: Lit) -> None:
    group = lit.beacon.group("0")
    lit.beacon.entered(group, 6, "all_reduce", 1, "8")
    memory = vars(lit.beacon)["_memory"]
    at = memory.find((6).to_bytes(8, "little") + (1).to_bytes(8, "little"))

    memory[at : at + 8] = (7).to_bytes(8, "little")

    (torn,) = lit.notes().groups
    assert (torn.enqueued, torn.is_torn) == (7, True)
    memory[at + NOTE.size - 8 : at + NOTE.size] = (7).to_bytes(8, "little")
    assert not lit.notes().groups[0].is_torn
