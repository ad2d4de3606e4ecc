"""Where batches find no room: what is given up first, what never, and that every row of it is counted."""

from collections import Counter

import pytest

from rankscope import Run
from rankscope._block import Block
from rankscope._tracing_options import TracingOptions
from rankscope.testing import MemoryExporter
from rankscope_proto.names import GapCause
from tests.agent.test_sealing import assert_exact
from tests.ground.processes import wait_until


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of seconds become short ones."""
    monkeypatch.setattr("rankscope._shortage.PATIENCE_S", 0.1)
    monkeypatch.setattr("rankscope._shortage.PAUSE_S", 0.05)
    monkeypatch.setattr("rankscope._pump.SEAL_S", 0.02)
    monkeypatch.setattr("rankscope._pump.LASTING_ROOM_S", 0.02)


def record_one_of_each(run: Run) -> None:
    recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the probe is given
    recording.append(Block("tensor_stats", 3, {"name": ["w"] * 3}))
    recording.append(Block("modules", 1, {"path": ["layer"]}))
    recording.append(Block("events", 1, {"time": [1_750_000_000_000_000_000], "kind": ["alert"]}))
    with run.span("fine"):
        run.log_metric("loss", 1)
    run.start_span("wrong").finish(error=ValueError("no"))


def lost_of(exporter: MemoryExporter, cause: GapCause) -> Counter[str]:
    lost: Counter[str] = Counter()
    for gap in exporter.rows("gaps"):
        if gap["cause"] == cause and gap["count"]:
            lost[str(gap["data_kind"])] += int(str(gap["count"]))
    return lost


@pytest.mark.parametrize(
    ("fullness", "lost"),
    [
        (0.79, {}),
        (0.80, {"tensor_stats": 3}),
        (0.90, {"tensor_stats": 3, "spans": 1}),
        (0.95, {"tensor_stats": 3, "spans": 1, "scalars": 1}),
        (1.0, {"tensor_stats": 3, "spans": 1, "scalars": 1}),
    ],
)
def test_a_room_that_fills_keeps_what_means_most_and_states_what_it_gave_up(
    fullness: float, lost: dict[str, int]
) -> None:
    exporter = MemoryExporter()
    exporter.fullness = fullness

    with Run(exporter) as run:
        record_one_of_each(run)

    assert lost_of(exporter, GapCause.SPOOL_FULL) == lost
    assert "wrong" in {row["name"] for row in exporter.rows("spans")}
    assert len(exporter.rows("modules")) == 1
    assert {row["kind"] for row in exporter.rows("events")} == {"alert", "end_of_stream"}
    assert_exact(exporter)


def test_rows_given_up_for_one_reason_are_one_gap_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope._pump.SEAL_S", 3_600)
    exporter = MemoryExporter()
    exporter.fullness = 1.0

    with Run(exporter) as run:
        for _ in range(5_000):
            run.log_metric("a", 1)

    gaps = exporter.rows("gaps")
    assert sum(int(str(gap["count"])) for gap in gaps) == 5_000
    assert len(gaps) <= 2


def test_what_finds_no_room_for_long_is_given_up_and_what_must_be_said_goes_into_the_reserve() -> None:
    exporter = MemoryExporter(room=1, reserve=100)
    run = Run(exporter)
    record_one_of_each(run)

    wait_until(lambda: len(exporter.batches) > 1, what="use the reserve")
    run.finish()

    named = [gap for gap in exporter.rows("gaps") if gap["seq_from"] is not None]
    assert {gap["cause"] for gap in exporter.rows("gaps")} == {GapCause.SPOOL_FULL}
    assert len(exporter.rows("run_info")) == 2
    assert {row["kind"] for row in exporter.rows("events")} == {"alert", "end_of_stream"}
    assert exporter.is_ended
    assert seqs_of(exporter) | holes_of(named) == set(range(exporter.batches[-1].seq + 1))
    assert not seqs_of(exporter) & holes_of(named)
    assert_exact(exporter)


def test_when_there_is_room_again_everything_is_kept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = MemoryExporter(room=1)
    run = Run(exporter)
    run.log_metric("early", 1)
    wait_until(lambda: bool(run.faults), what="give up")

    exporter.room = None
    wait_until(lambda: len(exporter.batches) > 1, what="go on")
    run.log_metric("late", 1)
    run.finish()

    assert [row["name"] for row in exporter.rows("scalars")] == ["late"]
    assert lost_of(exporter, GapCause.SPOOL_FULL) == {"scalars": 1}
    assert_exact(exporter)


def test_a_reserve_that_is_used_up_loses_no_count() -> None:
    exporter = MemoryExporter(room=1, reserve=1)
    run = Run(exporter, tracing=TracingOptions(ring_rows=500))
    for _ in range(20):
        for _ in range(1_000):
            run.log_metric("a", 1)
        record_one_of_each(run)
    wait_until(lambda: len(exporter.batches) == 2, what="use the reserve up")
    for _ in range(1_000):
        run.log_metric("a", 1)

    exporter.room = None
    run.finish()

    assert exporter.headers()[-1].emitted_scalars == 21_020
    assert_exact(exporter)


def test_the_end_of_a_run_without_room_is_said_from_the_reserve_within_its_bound() -> None:
    exporter = MemoryExporter(room=1, reserve=2)
    run = Run(exporter)
    run.log_metric("a", 1)

    run.finish()

    assert exporter.is_ended
    assert exporter.rows("run_info")[-1]["end"] is not None
    assert lost_of(exporter, GapCause.SPOOL_FULL) == {"scalars": 1}
    assert_exact(exporter)


def seqs_of(exporter: MemoryExporter) -> set[int]:
    return {batch.seq for batch in exporter.batches}


def holes_of(gaps: list[dict[str, object]]) -> set[int]:
    return {seq for gap in gaps for seq in range(int(str(gap["seq_from"])), int(str(gap["seq_to"])) + 1)}


def test_what_a_program_notes_in_its_spans_is_given_up_with_them_and_not_kept_as_what_must_be_said() -> None:
    exporter = MemoryExporter()
    exporter.fullness = 0.92

    with Run(exporter) as run, run.span("around") as span:
        for index in range(50):
            span.add_event(f"e{index}")
        run.log_metric("kept", 1)

    assert not [row for row in exporter.rows("events") if row["kind"] == "span_event"]
    assert len(exporter.rows("scalars")) == 1
    lost = {str(row["data_kind"]): row["count"] for row in exporter.rows("gaps")}
    assert lost == {"events": 50, "spans": 1}
    assert_exact(exporter)
