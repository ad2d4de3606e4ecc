"""What a decorated function costs beyond the span that it makes, measured in turns."""

import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from rankscope import Run
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = pytest.mark.bench

ROUNDS = 400
CALLS = 100
"""A round is shorter than a scheduler's slice, so that medians are not of a busy machine."""

ITEMS = 2_000


def test_a_decorated_call_against_a_span_by_hand(report: Report) -> None:
    with Run(NowhereExporter()) as run:

        def work(value: int) -> int:
            return value

        decorated = run.trace_op("work", attributes={"device": "cuda:0", "number": 1})(work)

        def calls() -> None:
            for number in range(CALLS):
                decorated(number)

        def spans() -> None:
            for number in range(CALLS):
                with run.span("work", attributes={"device": "cuda:0", "number": 1}):
                    work(number)

        ours, bare = _medians_in_turns(calls, spans)

    report.judge("a decorated call over a span by hand", (ours - bare) / CALLS * 1e6, "µs", sense="at most", target=2)
    report.add("  the span by hand", bare / CALLS * 1e6, "µs")


def test_an_item_of_a_decorated_generator(report: Report) -> None:
    with Run(NowhereExporter()) as run:

        def plain() -> None:
            for _ in iter(range(ITEMS)):
                pass

        @run.trace_op("stream")
        def stream() -> Iterator[int]:
            yield from range(ITEMS)

        def decorated() -> None:
            for _ in stream():
                pass

        ours, bare = _medians_in_turns(decorated, plain)

    report.add("an item of a decorated generator", (ours - bare) / ITEMS * 1e6, "µs")


def _medians_in_turns(*rounds: Callable[[], None]) -> list[float]:
    """The median seconds of a round of each."""
    seconds: list[list[float]] = [[] for _ in rounds]
    for _ in range(ROUNDS):
        for taken, work in zip(seconds, rounds, strict=True):
            started = time.perf_counter()
            work()
            taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in seconds]
