"""Context: spans across threads, tasks and processes."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankscope import Run
from rankscope.testing import MemoryExporter
from tests.fundamentals.conftest import Recorded


def test_tasks_see_the_span_they_were_started_in(run: Run, recorded: Recorded) -> None:
    """Each task has a context of its own: siblings do not see each other's spans."""

    async def work(index: int) -> None:
        with run.span(f"task {index}"):
            await asyncio.sleep(0)

    async def both() -> None:
        with run.trace("gather"):
            await asyncio.gather(work(0), work(1))

    asyncio.run(both())

    assert sorted(child.name for child in recorded().one("gather").children) == ["task 0", "task 1"]


def test_a_wrapped_function_runs_under_the_span_in_another_thread(run: Run, recorded: Recorded) -> None:
    """A thread begins with nothing open; `span.wrap` hands the span over."""

    def work() -> None:
        with run.span("in the pool"):
            pass

    with run.trace("batch") as batch, ThreadPoolExecutor(1) as pool:
        pool.submit(batch.wrap(work)).result()

    recorded().assert_tree("""
        batch
          in the pool
    """)


def test_a_wrapped_coroutine_function_runs_under_the_span(run: Run, recorded: Recorded) -> None:
    """The span is current while the coroutine runs, not only while it is made."""

    async def work() -> None:
        await asyncio.sleep(0)
        with run.span("awaited"):
            pass

    with run.trace("batch") as batch:
        wrapped = batch.wrap(work)
    asyncio.run(wrapped())

    assert [child.name for child in recorded().one("batch").children] == ["awaited"]


def test_a_carrier_takes_the_context_elsewhere(run: Run, recorded: Recorded) -> None:
    """`context()` is plain JSON: a queue, a file or an RPC carries it; a W3C `traceparent` is in it."""
    with run.trace("batch item 17", kind="preprocessing") as trace:
        carrier = json.loads(json.dumps(trace.context()))

    with run.attach_trace_context(carrier), run.start_span("worker.tokenize", kind="preprocessing"):
        pass

    assert carrier["traceparent"] == f"00-{trace.trace_id}-{trace.span_id}-01"
    assert recorded().one("worker.tokenize").parent_span_id == trace.span_id


def test_a_carrier_of_another_run_is_refused(run: Run) -> None:
    """Linking spans across runs would be a mistake, so it is an error."""
    with Run(MemoryExporter()) as other, other.trace("elsewhere") as elsewhere:
        carrier = elsewhere.context()

    with pytest.raises(ValueError, match=other.id):
        run.attach_trace_context(carrier)
