"""A disk that is full, a burst beyond the ring, a clock that jumps: steps go on, every row is accounted for."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope import Run
from rankscope._export import SealedBatch
from rankscope._identity import Identity
from rankscope._spool_export import SpoolExporter
from rankscope._tracing_options import TracingOptions
from rankscope.spool import SpoolHead, SpoolReader, SpoolWriter
from rankscope.testing import rows_of
from rankscope_proto.identity import uuid7
from rankscope_proto.names import GapCause
from tests.agent.disks import fill, small_disk
from tests.agent.spooled import assert_exact, batches_of
from tests.ground.processes import wait_until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=48) as place:
        yield place


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of seconds become short ones."""
    monkeypatch.setattr("rankscope._shortage.PATIENCE_S", 0.3)
    monkeypatch.setattr("rankscope._shortage.PAUSE_S", 0.1)
    monkeypatch.setattr("rankscope._pump.SEAL_S", 0.05)
    monkeypatch.setattr("rankscope._pump.LASTING_ROOM_S", 0.1)


def spool_in(root: Path, *, max_bytes: int | None = None) -> SpoolWriter:
    incarnation = uuid7(time.time_ns(), os.urandom(10))
    who = Identity("p", "r", b"l" * 16, incarnation, pid=os.getpid())
    return SpoolWriter.create(root, SpoolHead.of(who, created_ns=1), max_bytes=max_bytes)


def run_on(spool: SpoolWriter, *, exporter: SpoolExporter | None = None, ring_rows: int = 65_536) -> Run:
    who = Identity("p", "r", b"l" * 16, bytes.fromhex(spool.folder.name), pid=os.getpid())
    return Run(exporter or SpoolExporter(spool), identity=who, tracing=TracingOptions(ring_rows=ring_rows))


def losses_in(folder: Path) -> dict[GapCause, Counter[str]]:
    found: dict[GapCause, Counter[str]] = {}
    for batch in batches_of(folder):
        for gap in rows_of(batch, "gaps"):
            if gap["count"]:
                cause = found.setdefault(GapCause(str(gap["cause"])), Counter())
                cause[str(gap["data_kind"])] += int(str(gap["count"]))
    return found


def values_in(folder: Path) -> list[object]:
    return [row["value"] for batch in batches_of(folder) for row in rows_of(batch, "scalars")]


def test_a_full_disk_stops_no_step_and_after_it_recording_goes_on(disk: Path, impatient: None) -> None:
    spool = spool_in(disk)
    run = run_on(spool)
    run.log_metric("value", 0)
    wait_until(lambda: spool.next_seq > 1, what="spool")
    ballast = fill(disk)
    pause, stop_at, logged = threading.Event(), time.monotonic() + 2.0, 1
    while time.monotonic() < stop_at:
        with run.step(logged):
            run.log_metric("value", logged)
        logged += 1
        pause.wait(0.001)
    wait_until(lambda: bool(losses_in(spool.folder)), what="state losses on the full disk")

    ballast.unlink()
    wait_until(lambda: spool.fullness < 0.5, what="have room")
    run.log_metric("value", -1)
    run.finish()

    emitted = assert_exact(batches_of(spool.folder))
    assert emitted["scalars"] == logged + 1
    assert values_in(spool.folder)[-1] == -1
    losses = losses_in(spool.folder)
    assert losses[GapCause.SPOOL_FULL]["scalars"]
    reader = SpoolReader(spool.folder)
    assert reader.is_ended
    assert reader.recover() == []
    reader.close()


def test_a_spool_at_its_bound_thins_and_then_gives_up_exactly(tmp_path: Path, impatient: None) -> None:
    spool = spool_in(tmp_path, max_bytes=1024 * 1024)
    run = run_on(spool)
    pause, steps = threading.Event(), 20_000
    for index in range(steps):
        with run.step(index):
            run.log_metric("value", index)
        if index % 2_000 == 0:
            pause.wait(0.05)
    run.finish()

    emitted = assert_exact(batches_of(spool.folder))
    assert (emitted["scalars"], emitted["spans"]) == (steps, steps)
    assert losses_in(spool.folder)[GapCause.SPOOL_FULL]
    held = sum(path.stat().st_size for path in spool.folder.glob("*.seg"))
    assert held <= 2 * 1024 * 1024


class BusyDisk(SpoolExporter):
    """A spool that takes nothing while its disk is busy."""

    is_busy = False
    refused = 0

    def send(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        self.refused += self.is_busy
        return not self.is_busy and super().send(batch, is_last=is_last, urgent=urgent)


def test_a_burst_of_ten_rings_keeps_the_oldest_and_counts_the_rest(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    exporter = BusyDisk(spool)
    run = run_on(spool, exporter=exporter, ring_rows=1_000)
    exporter.is_busy = True
    run.log_metric("early", -1)
    wait_until(lambda: exporter.refused > 0, what="stand still")

    for index in range(10_000):
        run.log_metric("value", index)
    exporter.is_busy = False
    run.finish()

    emitted = assert_exact(batches_of(spool.folder))
    assert emitted["scalars"] == 10_001
    assert values_in(spool.folder) == [-1, *range(1_000)]
    assert losses_in(spool.folder) == {GapCause.RING_FULL: {"scalars": 9_000}}


@pytest.mark.parametrize("jump_s", [3_600, -3_600, 86_400, -86_400])
def test_a_wall_clock_that_jumps_changes_neither_order_nor_durations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    spool = spool_in(tmp_path)
    run = run_on(spool)
    real_ns, real_s = time.time_ns, time.time
    began = real_ns()
    for index in range(200):
        if index == 100:
            monkeypatch.setattr(time, "time_ns", lambda: real_ns() + jump_s * 1_000_000_000)
            monkeypatch.setattr(time, "time", lambda: real_s() + jump_s)
        with run.step(index):
            pass
    run.finish()
    monkeypatch.undo()
    passed = real_ns() - began

    spans = [row for batch in batches_of(spool.folder) for row in rows_of(batch, "spans")]
    starts = [int(str(row["start"])) for row in spans]
    assert [row["step"] for row in spans] == list(range(200))
    assert starts == sorted(starts)
    assert starts[-1] - starts[0] <= passed
    assert all(0 <= int(str(row["duration"])) <= passed for row in spans)
    sealed = [batch.header.sealed for batch in batches_of(spool.folder)]
    assert sealed == sorted(sealed)
    assert len({batch.header.week for batch in batches_of(spool.folder)}) == 1
