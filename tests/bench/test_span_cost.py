"""One span with two attributes, against the OpenTelemetry SDK's, in turns; and what a million of them leave behind."""

import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from rankscope import Run
from rankscope._export import SealedBatch, Wait
from tests.bench.report import Report

if TYPE_CHECKING:
    from rankscope._outcome import Outcome

pytestmark = pytest.mark.bench

WARM, MANY = 200_000, 1_000_000
ROUNDS = 400
SPANS = 100
"""A round is shorter than a scheduler's slice, so that medians are not of a busy machine."""


class NowhereExporter:
    """Takes every batch and forgets it."""

    fullness = 0.0
    waits_for: Wait = "spooled"
    keeps_unsent = False
    is_accepted = is_durable = True
    place = "nowhere"

    def send(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        """Takes it."""
        return True

    def take_obstacle(self) -> None:
        """There is none."""

    def sync(self) -> None:
        """Nothing is kept."""

    def leave_open(self, batch: SealedBatch | None) -> None:
        """Nobody will ask."""

    def close(self) -> None:
        """Nothing to free."""


class NullSpanExporter(SpanExporter):
    """The peer's: forgets every span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Says it worked."""
        return SpanExportResult.SUCCESS


@pytest.fixture
def ours() -> Iterator[Callable[[], None]]:
    """A round of our spans."""
    outcomes: list[Outcome] = []
    with Run(NowhereExporter()) as run:
        run.on_finish(outcomes.append)

        def spans() -> None:
            for number in range(SPANS):
                with run.span("work", attributes={"device": "cuda:0", "number": number}):
                    pass

        yield spans
    # A dropped span would be a cheap one.
    assert [outcome.dropped for outcome in outcomes] == [0]


@pytest.fixture
def peers() -> Iterator[Callable[[], None]]:
    """A round of OpenTelemetry's spans."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(NullSpanExporter()))
    tracer = provider.get_tracer("bench")

    def spans() -> None:
        for number in range(SPANS):
            with tracer.start_as_current_span("work", attributes={"device": "cuda:0", "number": number}):
                pass

    yield spans
    provider.shutdown()


def test_one_span_with_two_attributes(ours: Callable[[], None], peers: Callable[[], None], report: Report) -> None:
    seconds: dict[str, list[float]] = {"ours": [], "peers": []}
    for _ in range(ROUNDS):
        for name, spans in (("ours", ours), ("peers", peers)):
            started = time.perf_counter()
            spans()
            seconds[name].append(time.perf_counter() - started)

    mine, theirs = (statistics.median(seconds[name]) / SPANS * 1e6 for name in ("ours", "peers"))
    report.judge("one span, two attributes", mine, "µs", sense="at most", target=5)
    report.add("  OpenTelemetry SDK, null exporter", theirs, "µs")
    report.judge("  ours over theirs", mine / theirs, "", sense="at most", target=1 / 8)


def test_a_million_spans_leave_nothing_behind(report: Report) -> None:
    with Run(NowhereExporter()) as run:
        many(run, WARM)
        blocks, peak_kib = settled(run)
        many(run, MANY)
        left, grown_kib = settled(run)

    report.judge(
        "objects left behind by a million spans, of 200,000 names", left - blocks, "", sense="at most", target=5_000
    )
    report.judge(
        "  growth of the process's peak memory", (grown_kib - peak_kib) / 1024, "MiB", sense="at most", target=16
    )


def many(run: Run, spans: int) -> None:
    """Roots with a child each, at a pace that drops nothing."""
    for number in range(spans // 2):
        name = f"{number % 100_000}"
        with (
            run.trace(f"root {name}", attributes={"number": number}),
            run.span(f"work {name}", metrics={"reward": 1.0}),
        ):
            pass
        if number % 10_000 == 0:
            run.flush(60)


def settled(run: Run) -> tuple[int, int]:
    """Objects that live when everything is sealed, and the peak memory so far in KiB."""
    run.flush(60)
    gc.collect()
    return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
