"""Decorated coroutines and generators: their spans are open to their own code, and to nobody else's."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope import Run
from rankscope.testing import ManualClock, MemoryExporter
from rankscope_proto.names import SpanStatus
from tests.agent.test_trace_op import parent_of, spans_of


def test_a_coroutine_is_over_when_it_was_awaited() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run:

        @run.trace_op("judge", kind="evaluator", capture="preview")
        async def judge(question: str) -> str:
            await asyncio.sleep(0)
            clock.advance(5)
            with run.span("inner"):
                return question + "!"

        assert asyncio.run(judge("why")) == "why!"

    rows = spans_of(exporter)
    assert (rows["judge"]["duration"], rows["judge"]["outputs"]) == (5, '"why!"')
    assert parent_of(rows, "inner") == "judge"


def test_coroutines_that_run_together_do_not_see_each_others_spans() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("outer")
        async def outer(name: str) -> None:
            await asyncio.sleep(0)
            with run.span(name):
                await asyncio.sleep(0)

        async def both() -> None:
            await asyncio.gather(outer("a"), outer("b"))
            assert run.start_span("after").parent is None

        asyncio.run(both())

    parents = {row["parent_span_id"] for row in exporter.rows("spans") if row["name"] in ("a", "b")}
    assert parents == {row["span_id"] for row in exporter.rows("spans") if row["name"] == "outer"}


def test_a_cancelled_coroutine_is_cancelled_in_its_span() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("wait")
        async def wait() -> None:
            await asyncio.Event().wait()

        async def cancel() -> None:
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())

    (row,) = exporter.rows("spans")
    assert (row["status"], row["error_type"]) == (SpanStatus.CANCELLED.code, "CancelledError")


def test_a_generators_span_is_open_to_its_own_code_only() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run:

        @run.trace_op("stream")
        def stream() -> Iterator[int]:
            for number in range(2):
                with run.span(f"make {number}"):
                    yield number

        clock.advance(10)
        for number in stream():
            with run.span(f"use {number}"):
                clock.advance(5)

    rows = spans_of(exporter)
    assert [parent_of(rows, f"use {number}") for number in range(2)] == [None, None]
    assert [parent_of(rows, f"make {number}") for number in range(2)] == ["stream", "stream"]
    assert (rows["stream"]["duration"], rows["stream"]["status"]) == (10, SpanStatus.OK.code)


def test_a_generator_does_not_see_what_its_consumer_opened() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        def stream() -> Iterator[None]:
            yield
            with run.span("made later"):
                yield

        with run.trace("consumer"):
            steps = stream()
            next(steps)
            with run.span("between"):
                next(steps)
                with run.span("in between"):
                    pass
            assert list(steps) == []

    rows = spans_of(exporter)
    assert parent_of(rows, "stream") == "consumer"
    assert parent_of(rows, "made later") == "stream"
    assert parent_of(rows, "in between") == "between"


def test_a_generator_takes_what_is_sent_and_thrown_and_gives_what_it_returns() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("talk")
        def talk() -> Generator[str, str, str]:
            heard = yield "hello"
            try:
                yield f"you said {heard}"
            except LookupError as error:
                yield f"you threw {error}"
            return "bye"

        def whole() -> Generator[str, str, None]:
            returned.append((yield from talk()))

        returned: list[str] = []
        steps = whole()
        assert (next(steps), steps.send("x"), steps.throw(LookupError("y"))) == ("hello", "you said x", "you threw y")
        assert (list(steps), returned) == ([], ["bye"])

    (row,) = exporter.rows("spans")
    assert row["status"] == SpanStatus.OK.code


def test_a_closed_generator_cleans_up_and_its_span_is_interrupted() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        def stream() -> Iterator[int]:
            try:
                yield 1
            finally:
                with run.span("clean up"):
                    pass

        steps = cast("Generator[int, None, None]", stream())
        next(steps)
        steps.close()
        steps = stream()
        next(steps)
        del steps  # as an abandoned `for` loop does

    assert [row["status"] for row in exporter.rows("spans") if row["name"] == "stream"] == [
        SpanStatus.INTERRUPTED.code,
        SpanStatus.INTERRUPTED.code,
    ]
    assert parent_of(spans_of(exporter), "clean up") == "stream"


def test_a_generator_that_fails_says_so_and_one_that_never_began_says_nothing() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        def stream() -> Iterator[int]:
            yield 1
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            list(stream())
        stream()

    (row,) = exporter.rows("spans")
    assert (row["status"], row["error_type"]) == (SpanStatus.ERROR.code, "ValueError")


def test_a_generator_may_go_on_in_another_thread() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        def stream() -> Iterator[int]:
            with run.span("first"):
                yield 1
            with run.span("second"):
                yield 2

        steps = stream()
        next(steps)
        thread = threading.Thread(target=lambda: list(steps))
        thread.start()
        thread.join()

    rows = spans_of(exporter)
    assert [parent_of(rows, name) for name in ("first", "second")] == ["stream", "stream"]


def test_an_asynchronous_generators_span_is_open_to_its_own_code_only() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        async def stream() -> AsyncGenerator[int, str]:
            with run.span("make"):
                await asyncio.sleep(0)
                heard = yield 0
            with run.span(f"heard {heard}"):
                try:
                    yield 1
                except LookupError:
                    yield 2

        async def consume() -> None:
            steps = stream()
            assert await anext(steps) == 0
            with run.span("use"):
                assert await steps.asend("x") == 1
            assert await steps.athrow(LookupError()) == 2
            with pytest.raises(StopAsyncIteration):
                await anext(steps)

        asyncio.run(consume())

    rows = spans_of(exporter)
    assert [parent_of(rows, name) for name in ("make", "use", "heard x")] == ["stream", None, "stream"]
    assert rows["stream"]["status"] == SpanStatus.OK.code


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_asynchronous_generator_left_early_is_interrupted(*, is_closed: bool) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        async def stream() -> AsyncGenerator[int, None]:
            try:
                yield 0
            finally:
                await asyncio.sleep(0)
                with run.span("clean up"):
                    pass

        async def consume() -> None:
            steps = stream()
            await anext(steps)
            if is_closed:
                await steps.aclose()

        async def go_on() -> None:
            await consume()
            for _ in range(10):  # the loop closes what was abandoned, in a task of its own
                await asyncio.sleep(0)

        asyncio.run(go_on())

    rows = spans_of(exporter)
    assert rows["stream"]["status"] == SpanStatus.INTERRUPTED.code
    assert parent_of(rows, "clean up") == "stream"


def test_an_asynchronous_generator_may_take_each_step_in_another_task() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        @run.trace_op("stream")
        async def stream() -> AsyncGenerator[int, None]:
            for number in range(2):
                with run.span(f"make {number}"):
                    await asyncio.sleep(0)
                    yield number
                with run.span(f"made {number}"):
                    pass

        async def consume() -> None:
            steps = stream()
            for number in range(2):
                task = asyncio.ensure_future(cast("Coroutine[None, None, int]", anext(steps)))
                assert await task == number
            assert [number async for number in steps] == []

        asyncio.run(consume())

    rows = spans_of(exporter)
    names = [f"{verb} {number}" for verb in ("make", "made") for number in range(2)]
    assert [parent_of(rows, name) for name in names] == ["stream"] * 4


Operation = tuple[str, object]

operations = st.lists(
    st.one_of(
        st.just(("send", None)),
        st.tuples(st.just("send"), st.integers()),
        st.tuples(st.just("throw"), st.sampled_from([LookupError, ValueError, GeneratorExit, StopIteration])),
        st.just(("close", None)),
    ),
    max_size=8,
)


@given(operations)
def test_whatever_is_done_to_a_decorated_generator_it_answers_as_before(given_operations: list[Operation]) -> None:
    def talk() -> Generator[object, object, str]:
        heard: object = None
        for number in range(3):
            try:
                heard = yield (number, heard)
            except LookupError as error:
                yield ("caught", type(error))
            except GeneratorExit:
                if heard == 0:
                    yield "stubborn"
                raise
        return "done"

    with Run(None) as run:
        assert _answers(run.trace_op(talk)(), given_operations) == _answers(talk(), given_operations)


@given(operations)
def test_whatever_is_done_to_a_decorated_asynchronous_generator_it_answers_as_before(
    given_operations: list[Operation],
) -> None:
    async def talk() -> AsyncGenerator[object, object]:
        heard: object = None
        for number in range(3):
            try:
                heard = yield (number, heard)
            except LookupError as error:
                yield ("caught", type(error))
            except GeneratorExit:
                if heard == 0:
                    yield "stubborn"
                raise

    with Run(None) as run:
        decorated = asyncio.run(_async_answers(run.trace_op(talk)(), given_operations))
        assert decorated == asyncio.run(_async_answers(talk(), given_operations))


def _answers(generator: Generator[object, object, object], given_operations: list[Operation]) -> list[object]:
    answers: list[object] = []
    for name, value in given_operations:
        try:
            if name == "close":
                answers.append(generator.close())
            elif name == "send":
                answers.append(generator.send(value))
            else:
                answers.append(generator.throw(cast("type[Exception]", value)()))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the same
            answers.append(_told(error))
    return [*answers, list(generator)]


async def _async_answers(generator: AsyncGenerator[object, object], given_operations: list[Operation]) -> list[object]:
    answers: list[object] = []
    for name, value in given_operations:
        try:
            if name == "close":
                await generator.aclose()
            elif name == "send":
                answers.append(await generator.asend(value))
            else:
                answers.append(await generator.athrow(cast("type[Exception]", value)()))
        except BaseException as error:  # noqa: BLE001  # as above
            answers.append(_told(error))
    return [*answers, [item async for item in generator]]


def _told(error: BaseException) -> object:
    return type(error), str(error), getattr(error, "value", None)
