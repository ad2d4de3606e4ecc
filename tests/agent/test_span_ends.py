"""How spans end: by leaving them, by hand, by an exception, by the end of the run."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import pytest

from rankscope import Run
from rankscope.testing import ManualClock, MemoryExporter
from rankscope_proto.names import SPAN_FLAGS, SpanStatus


def ends_of(exporter: MemoryExporter) -> dict[object, tuple[object, object, object]]:
    """Status, flags and error type by name."""
    return {
        row["name"]: (SpanStatus.of(cast("int", row["status"])), row["flags"], row["error_type"])
        for row in exporter.rows("spans")
    }


INTERRUPTED = SPAN_FLAGS["interrupted"]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (KeyError("a"), ("error", 0, "KeyError")),
        (asyncio.CancelledError(), ("cancelled", 0, "CancelledError")),
        (KeyboardInterrupt(), ("interrupted", INTERRUPTED, "KeyboardInterrupt")),
        (GeneratorExit(), ("interrupted", INTERRUPTED, "GeneratorExit")),
        (SystemExit(3), ("interrupted", INTERRUPTED, "SystemExit")),
        (SystemExit(0), ("ok", 0, "")),
        (SystemExit(), ("ok", 0, "")),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else "",
)
def test_an_exception_says_how_a_span_ended_and_goes_on(error: BaseException, end: tuple[str, int, str]) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        with pytest.raises(type(error)) as caught, run.span("left"):
            raise error
        run.start_span("told").finish(error=error)

    assert caught.value is error
    assert ends_of(exporter) == {"left": end, "told": end}


def test_a_cancelled_task_leaves_cancelled_spans() -> None:
    exporter = MemoryExporter()

    async def work(run: Run, begun: asyncio.Event) -> None:
        with run.span("outer"), run.span("inner"):
            begun.set()
            await asyncio.Event().wait()

    async def main(run: Run) -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(work(run, begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Run(exporter) as run:
        asyncio.run(main(run))

    assert {end[0] for end in ends_of(exporter).values()} == {"cancelled"}


@pytest.mark.parametrize("status", ["ok", "error", "cancelled", "interrupted", "Error"])
def test_finish_takes_every_status(status: str) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.start_span("a").finish(status)

    flags = INTERRUPTED if status == "interrupted" else 0
    assert ends_of(exporter) == {"a": (status.lower(), flags, "")}


@pytest.mark.parametrize(("status", "error"), [("done", ValueError), ("running", ValueError), (1, TypeError)])
def test_a_wrong_status_is_said_and_leaves_the_span_open(status: str, error: type[Exception]) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        span = run.start_span("a")
        with pytest.raises(error, match="ok, error, interrupted, cancelled"):
            span.finish(status)
        span.finish()

    assert ends_of(exporter) == {"a": ("ok", 0, "")}


def test_an_error_that_is_no_exception_is_said_and_leaves_the_span_open() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        span = run.start_span("a")
        with pytest.raises(TypeError, match="an exception, not a str"):
            span.finish(error=cast("BaseException", "boom"))
        span.finish()

    assert ends_of(exporter) == {"a": ("ok", 0, "")}


def test_a_status_and_an_error_are_both_kept() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.start_span("a").finish("cancelled", error=TimeoutError("late"))

    assert ends_of(exporter) == {"a": ("cancelled", 0, "TimeoutError")}


def test_a_span_finished_by_hand_inside_with_is_not_changed_by_leaving_it() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run, suppress(KeyError), run.span("a") as span:
        clock.advance(3)
        span.finish("cancelled")
        clock.advance(4)
        with run.span("still inside"):
            pass
        raise KeyError

    rows = {row["name"]: row for row in exporter.rows("spans")}
    assert ends_of(exporter)["a"] == ("cancelled", 0, "")
    assert rows["a"]["duration"] == 3
    assert rows["still inside"]["parent_span_id"] == rows["a"]["span_id"]


def test_a_second_finish_changes_nothing_and_is_no_fault() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        span = run.start_span("a", capture="preview")
        span.finish(output=1)
        span.finish("error", output=2, error=ValueError())

    (row,) = exporter.rows("spans")
    assert (row["status"], row["outputs"], row["error_type"]) == (SpanStatus.OK.code, "1", "")
    assert not run.faults


def test_many_threads_that_finish_one_span_leave_one_row() -> None:
    exporter = MemoryExporter()
    run = Run(exporter)
    spans = [run.start_span(f"s{index}") for index in range(200)]
    together = threading.Barrier(4)

    def finish() -> None:
        together.wait()
        for span in spans:
            span.finish()

    threads = [threading.Thread(target=finish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()

    assert sorted(str(row["name"]) for row in exporter.rows("spans")) == sorted(span.name for span in spans)


def test_a_span_that_never_began_leaves_nothing() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.span("a").finish()
        run.trace("b")

    assert not exporter.rows("spans")


def test_a_span_that_is_entered_twice_is_left_once_and_does_not_stay_current() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        twice = run.span("twice")
        with twice, twice:
            pass
        with twice:
            run.start_span("in an ended one").finish()
        run.start_span("behind").finish()

    parents = {row["name"]: row["parent_span_id"] for row in exporter.rows("spans")}
    assert parents == {"twice": 0, "in an ended one": 0, "behind": 0}


def test_start_begins_once() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run:
        span = run.span("a").start()
        clock.advance(2)
        with span.start():
            clock.advance(3)

    assert [row["duration"] for row in exporter.rows("spans")] == [5]


def test_a_started_span_becomes_the_parent_only_within_with() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        span = run.start_span("a")
        run.start_span("before").finish()
        with span:
            run.start_span("inside").finish()

    parents = {row["name"]: row["parent_span_id"] for row in exporter.rows("spans")}
    assert parents == {"before": 0, "inside": span.id, "a": 0}


def test_what_is_open_at_the_end_of_the_run_is_interrupted_with_its_real_start() -> None:
    exporter, clock = MemoryExporter(), ManualClock()
    run = Run(exporter, clock=clock)
    run.start_span("a", capture="preview").set_output({"so": "far"})
    clock.advance(9)

    run.finish()

    (row,) = exporter.rows("spans")
    assert (row["duration"], row["outputs"]) == (9, '{"so":"far"}')
    assert ends_of(exporter) == {"a": ("interrupted", INTERRUPTED, "")}


def test_a_change_after_the_end_is_counted() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        span = run.start_span("a", capture="preview")
        span.finish()
        span.set_output(1)
        span.add_event("late")
        span.add_link(("a" * 32, "b" * 16))

    (row,) = exporter.rows("spans")
    assert (row["outputs"], row["link_span_id"]) == ("", [])
    assert not [event for event in exporter.rows("events") if event["kind"] == "span_event"]
    assert sum(run.faults.values()) == 3


def test_a_generator_left_early_ends_its_span_as_interrupted() -> None:
    exporter = MemoryExporter()

    def numbers(run: Run) -> Iterator[int]:
        with run.span("stream"):
            yield 1
            yield 2

    with Run(exporter) as run:
        stream = numbers(run)
        next(stream)
        stream.close()  # pyright: ignore[reportAttributeAccessIssue]  # it is a generator

    assert ends_of(exporter)["stream"][0] == "interrupted"
