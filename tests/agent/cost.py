"""`python -m tests.agent.cost`: CPU times of a span with two attributes, the peer's and ours, in pairs.

A program of its own, because coverage traces our lines and not the peer's: under it the ratio was 3.6
where it is above 7.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from rankscope import Run
from rankscope.testing import MemoryExporter

SPANS = 1_000
ROUNDS = 9


class NullExporter(SpanExporter):
    """Forgets every span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def cpu_ns(work: Callable[[], None]) -> int:
    """This thread's CPU time: what other processes and threads do does not count."""
    before = time.thread_time_ns()
    work()
    return time.thread_time_ns() - before


def pairs() -> list[tuple[int, int]]:
    """CPU ns of so many spans of the peer's, and of ours."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NullExporter()))
    tracer = provider.get_tracer("peer")
    run = Run(MemoryExporter())

    def theirs() -> None:
        for index in range(SPANS):
            with tracer.start_as_current_span("work", attributes={"index": index, "label": "text"}):
                pass

    def ours() -> None:
        for index in range(SPANS):
            with run.span("work", attributes={"index": index, "label": "text"}):
                pass

    theirs()
    ours()
    measured = [(cpu_ns(theirs), cpu_ns(ours)) for _ in range(ROUNDS)]
    run.finish()
    provider.shutdown()
    return measured


if __name__ == "__main__":
    sys.stdout.write(json.dumps(pairs()))
