"""What is open in a process: said while it lives, and left behind where it dies."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rankscope import Run
from rankscope._export import SealedBatch
from rankscope._heartbeat import open_span_block
from rankscope._left_open import LEAST_S, MOST_SPANS, REFRESH_S, SHARE, LeftOpen
from rankscope._recording import Recording
from rankscope._seal import Sealer
from rankscope._span_columns import DROPPED
from rankscope.testing import ManualClock, MemoryExporter, rows_of
from rankscope_proto.names import SPAN_FLAGS, GapCause, GapClass, SpanKind, SpanStatus
from rankscope_proto.v1.batch_pb2 import Batch


def test_a_heartbeat_tells_open_spans_of_different_traces_apart_and_says_their_kinds() -> None:
    exporter = MemoryExporter()

    with (
        Run(exporter, clock=ManualClock()) as run,
        run.trace("episode", "rollout") as episode,
        run.span("ask", "model") as ask,
    ):
        recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the sealing thread reads
        recording.append(open_span_block(recording))

    (row,) = exporter.rows("open_spans")
    assert row["stack_span_id"] == [episode.id, ask.id]
    assert row["stack_trace_hi"] == [episode.trace_hi] * 2
    assert row["stack_trace_lo"] == [episode.trace_lo] * 2
    assert row["stack_kind"] == [SpanKind("rollout").code, SpanKind("model").code]


SECRET = "sk-proj-abcdefghijklmnopqrstuvwx1234567890"


def recording_of(run: Run) -> Recording:
    return run._recording  # pyright: ignore[reportPrivateUsage]  # what the sealing thread reads


def test_a_heartbeat_says_no_secret() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span(f"call {SECRET}"):
        recording = recording_of(run)
        recording.append(open_span_block(recording))

    (row,) = exporter.rows("open_spans")
    assert SECRET not in str(row)
    assert str(row["stack_name"]).startswith("['call ")


class Watched:
    """What a recording would leave open, looked at by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.run = Run(MemoryExporter(), clock=self.clock)
        self._recording = recording_of(self.run)
        self.kept: list[SealedBatch | None] = []
        self.keeping_s = 0.0
        self._left = LeftOpen(
            self._recording,
            sealer=lambda: Sealer(self._recording.identity, clock=self.clock, masks=self._recording.masks),
            keep=self._take,
        )
        self._now = 0.0
        monkeypatch.setattr("rankscope._left_open.monotonic", lambda: self._now)

    def _take(self, batch: SealedBatch | None) -> None:
        self.kept.append(batch)
        self.pass_s(self.keeping_s)

    def see_to_it(self) -> None:
        """Do as the sealing thread does."""
        self._left.see_to_it(0)

    def pass_s(self, seconds: float) -> None:
        """Let so much time pass."""
        self._now += seconds

    def is_due(self, next_seq: int = 0) -> bool:
        """Whether it is to be said anew."""
        return self._left.is_due(next_seq)

    def message(self, next_seq: int = 0) -> Batch | None:
        """What is said."""
        batch = self._left.batch(next_seq)
        assert batch is None or batch.seq == next_seq
        return None if batch is None else Batch.FromString(batch.payload)

    def rows(self, section: str = "spans") -> list[dict[str, object]]:
        """Rows of what is said."""
        message = self.message()
        return [] if message is None else list(rows_of(message, section))


@pytest.fixture
def watched() -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patched:
        made = Watched(patched)
        yield made
        made.run.finish()


def test_what_would_be_left_open_is_what_a_span_would_be_if_it_were_interrupted_now(watched: Watched) -> None:
    with watched.run.trace("episode", "rollout", attributes={"model": "m"}, metrics={"reward": 0.5}) as episode:
        watched.clock.advance(500)
        (row,) = watched.rows()

        assert (row["name"], row["status"], row["duration"]) == ("episode", SpanStatus.INTERRUPTED.code, 500)
        assert row["flags"] == SPAN_FLAGS["interrupted"]
        assert (row["attributes"], row["metrics"]) == ({"model": "m"}, {"reward": 0.5})
        assert (episode.status, episode.end_mono_ns, episode.details) == (0, 0, None)

    assert watched.rows() == []


def test_it_is_said_again_only_where_it_may_be_wrong(watched: Watched) -> None:
    watched.pass_s(REFRESH_S)
    assert not watched.is_due()

    with watched.run.span("a"):
        assert watched.is_due()
        watched.message()
        watched.pass_s(LEAST_S + 0.01)
        assert not watched.is_due(), "nothing changed, nor is it long ago"
        assert watched.is_due(next_seq=1), "a batch was sealed"
        watched.message(next_seq=1)
        with watched.run.span("b"):
            assert not watched.is_due(next_seq=1), "it was said a moment ago"
            watched.pass_s(LEAST_S + 0.01)
            assert watched.is_due(next_seq=1), "one was opened"
        watched.message(next_seq=1)
        watched.pass_s(REFRESH_S)
        assert watched.is_due(next_seq=1), "it lasts longer than was said"

    watched.pass_s(LEAST_S + 0.01)
    assert watched.is_due(next_seq=1), "it ended"
    assert watched.message(next_seq=1) is None
    watched.pass_s(REFRESH_S)
    assert not watched.is_due(next_seq=2), "nothing is open"


def test_a_disk_that_takes_its_time_is_written_to_less_often(watched: Watched) -> None:
    watched.keeping_s = 0.5
    watched.run.start_span("a")
    watched.see_to_it()
    watched.run.start_span("b")

    watched.pass_s(SHARE * 0.5 - 0.6)
    watched.see_to_it()
    assert len(watched.kept) == 1
    watched.pass_s(0.2)
    watched.see_to_it()
    assert len(watched.kept) == 2


def test_of_very_many_open_spans_the_oldest_are_said_and_the_others_counted(watched: Watched) -> None:
    spans = [watched.run.start_span(f"span {number}") for number in range(MOST_SPANS + 10)]

    message = watched.message()

    assert message is not None
    assert [row["name"] for row in rows_of(message, "spans")] == [span.name for span in spans[:MOST_SPANS]]
    (gap,) = rows_of(message, "gaps")
    assert (gap["class"], gap["cause"], gap["data_kind"]) == (GapClass.NOT_CAPTURED.code, GapCause.BUDGET, "spans")
    assert (gap["count"], gap["detail"]) == (
        10,
        f"open when their process died; of the spans open then {MOST_SPANS} are kept",
    )


def test_what_would_take_too_much_room_is_left_out_of_a_span_that_is_said_all_the_same(watched: Watched) -> None:
    for number in range(40):
        watched.run.start_span(f"span {number}", attributes={"text": "x" * 30_000})

    message = watched.message()

    assert message is not None
    assert message.ByteSize() < 1024 * 1024
    rows = list(rows_of(message, "spans"))
    assert [row["name"] for row in rows] == [f"span {number}" for number in range(40)]
    assert "text" in str(rows[0]["attributes"])
    assert rows[-1]["flags"] == SPAN_FLAGS["interrupted"] | SPAN_FLAGS["truncated"]


def test_a_span_without_room_says_what_it_lost_and_had_lost_and_nothing_else(watched: Watched) -> None:
    big = {"text": "x" * 30_000}
    for number in range(20):
        watched.run.start_span(f"filler {number}", attributes=big)
    plain = watched.run.start_span("plain")
    labelled = watched.run.start_span("labelled", attributes=big)
    metrics: Any = {"m": 1, "none": "?"}
    full = watched.run.start_span("full", metrics=metrics, links=[plain], capture="preview", inputs=[1])

    rows = {row["name"]: row for row in watched.rows()}

    assert (rows["plain"]["attributes"], rows["plain"]["flags"]) == ({}, SPAN_FLAGS["interrupted"])
    assert rows["labelled"]["attributes"] == {DROPPED: "attributes"}
    assert rows["full"]["attributes"] == {DROPPED: "metrics.none, metrics, links, inputs"}
    assert full.details is not None
    assert full.details.dropped is not None
    assert full.details.dropped.names == ["metrics.none"], "the span itself goes on as it was"
    assert labelled.details is None or labelled.details.dropped is None


def test_no_secret_is_left_behind(watched: Watched) -> None:
    with watched.run.span(f"call {SECRET}", attributes={"api_key": "hunter2", "url": f"https://me:{SECRET}@host"}):
        message = watched.message()

    assert message is not None
    for secret in (SECRET, "hunter2"):
        assert secret.encode() not in message.SerializeToString()


def test_spans_opened_and_ended_all_the_while_do_not_disturb_it(watched: Watched) -> None:
    ends = threading.Event()

    def churn() -> None:
        while not ends.is_set():
            with watched.run.span("outer") as outer:
                outer.add_attributes({"a": 1})
                with watched.run.span("inner"):
                    outer.log_metric("b", 2)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        watched.rows()
    ends.set()
    for thread in threads:
        thread.join()

    assert not watched.run.faults
