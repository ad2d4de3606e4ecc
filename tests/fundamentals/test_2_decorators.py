"""Decorators: a span for each call."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from rankscope import Run
from tests.fundamentals.conftest import Recorded


def test_each_call_of_a_decorated_function_is_a_span(run: Run, recorded: Recorded) -> None:
    """It nests under the span that is open where it is called; outside one it is a root."""

    @run.trace_op(name="reward.score", kind="reward", attributes={"component": "dense"})
    def score(reward: float) -> float:
        return reward * 2

    with run.trace("rollout"):
        assert score(1.0) == 2.0
    score(2.0)

    recorded().assert_tree("""
        rollout
          reward.score
        reward.score
    """)


def test_a_decorated_coroutine_is_measured_until_it_is_done(run: Run, recorded: Recorded) -> None:
    """The span ends when the body ends, with what it returned."""

    @run.trace_op(name="judge", kind="evaluator", capture="preview")
    async def judge(answer: str) -> dict[str, float]:
        await asyncio.sleep(0)
        return {"score": len(answer) / 10}

    assert asyncio.run(judge("yes")) == {"score": 0.3}

    span = recorded().one("judge")
    assert (span.inputs, span.outputs) == ({"answer": "yes"}, {"score": 0.3})


def test_a_generator_does_not_lend_its_span_to_whoever_reads_it(run: Run, recorded: Recorded) -> None:
    """What the reader opens between two items is no child of the generator's span."""

    @run.trace_op(name="batches")
    def batches() -> Iterator[int]:
        for index in range(2):
            with run.span("load"):
                pass
            yield index

    with run.trace("epoch"):
        for _ in batches():
            with run.span("train"):
                pass

    spans = recorded()
    assert [child.name for child in spans.one("batches").children] == ["load", "load"]
    assert sorted(child.name for child in spans.one("epoch").children) == ["batches", "train", "train"]


def test_an_asynchronous_generator_is_one_span_as_well(run: Run, recorded: Recorded) -> None:
    """It ends with the last item."""

    @run.trace_op(name="stream", kind="retrieval")
    async def stream() -> AsyncIterator[int]:
        for index in range(3):
            yield index

    async def read() -> list[int]:
        return [index async for index in stream()]

    assert asyncio.run(read()) == [0, 1, 2]
    assert [span.status for span in recorded().named("stream")] == ["ok"]


def test_a_decorated_function_raises_what_it_raised(run: Run, recorded: Recorded) -> None:
    """The exception is the caller's business; its type is on the span."""

    @run.trace_op()
    def fails() -> None:
        raise KeyError("secret")

    with pytest.raises(KeyError):
        fails()

    (span,) = recorded()
    assert (span.status, span.error_type, span.error) == ("error", "KeyError", "")


def test_a_decorator_has_no_span_id(run: Run) -> None:
    """Calls are spans of their own: one id for all of them would make them one."""
    with pytest.raises(TypeError, match="span_id"):
        run.trace_op(span_id="1" * 16)  # pyright: ignore[reportCallIssue]  # the point of the test
