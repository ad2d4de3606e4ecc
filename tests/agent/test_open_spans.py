"""What is open in a process: said while it lives, and left behind where it dies."""

from rankscope import Run
from rankscope._heartbeat import open_span_block
from rankscope.testing import ManualClock, MemoryExporter
from rankscope_proto.names import SpanKind


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
