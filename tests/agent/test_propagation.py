"""How spans find their parents across threads, tasks, processes and systems."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email import message_from_string
from functools import partialmethod
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import cast

import pytest

import rankscope
from rankscope import Run
from rankscope._carrier import Given
from rankscope._identity import Identity
from rankscope._traceparent import read_traceparent
from rankscope._tracing_options import TracingOptions
from rankscope.testing import MemoryExporter
from rankscope_proto.names import SPAN_FLAGS
from tests.agent.programs import run_program
from tests.agent.spooled import rows_in
from tests.agent.test_trace_op import parent_of, spans_of

IDS = {"run_id": "r", "trace_id": "a" * 32, "span_id": "b" * 16}
FAR = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_context_is_plain_json_and_names_run_and_span() -> None:
    with Run(MemoryExporter()) as run, run.trace("rollout", step=4, rank=3, rollout_id="r", thread_id="t") as span:
        carrier = span.context()

    assert carrier == {
        "run_id": run.id,
        "project": run.project,
        "launch_id": run.launch_id,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "thread_id": "t",
        "rank": 3,
        "process_rank": 0,
        "world_size": 1,
        "rollout_id": "r",
        "step": 4,
        "traceparent": f"00-{span.trace_id}-{span.span_id}-01",
    }
    assert json.loads(json.dumps(carrier)) == carrier


def test_an_attached_carrier_is_the_parent_until_it_is_detached() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        with run.trace("batch", step=4, rank=3, rollout_id="r", thread_id="t") as trace:
            carrier = trace.context()

        def worker() -> None:
            with run.attach_trace_context(carrier), run.start_span("tokenize"):
                pass
            with run.span("after"):
                pass
            attached = run.attach_trace_context(carrier)
            with run.span("by hand"):
                pass
            attached.detach()
            attached.detach()
            with run.span("detached"):
                pass

        in_thread(worker)

    rows = spans_of(exporter)
    parents = [parent_of(rows, name) for name in ("tokenize", "by hand", "after", "detached")]
    assert parents == ["batch", "batch", None, None]
    inherited = [(row["step"], row["thread_id"], row["rollout_id"]) for row in (rows["tokenize"], rows["batch"])]
    assert inherited == [(4, "t", "r")] * 2
    assert rows["tokenize"]["trace_lo"] == rows["batch"]["trace_lo"]
    assert rows["tokenize"]["stated_rank"] == rows["batch"]["stated_rank"] == 3
    assert (rows["tokenize"]["path"], rows["tokenize"]["depth"]) == ("tokenize", 0)


def test_the_context_of_a_span_that_is_left_out_is_that_of_its_nearest_kept_ancestor() -> None:
    tracing = TracingOptions(sample_by_kind={"tool": 0.0})

    with Run(MemoryExporter(), tracing=tracing) as run, run.trace("kept") as kept, kept.span("out", "tool") as out:
        further = out.span("further out", "tool")

        assert further.context()["span_id"] == out.context()["span_id"] == kept.span_id
        assert further.context()["traceparent"] == kept.context()["traceparent"]


def test_a_trace_that_is_left_out_is_so_in_other_processes_too() -> None:
    exporter = MemoryExporter()
    near, far = (Identity("p", "r", b"l" * 16, bytes([rank]) * 16, rank=rank, world_size=2) for rank in (0, 1))

    with Run(MemoryExporter(), identity=near, tracing=TracingOptions(sample_rate=0.0)) as asking:
        out = asking.trace("out")
    with Run(exporter, identity=far) as doing:
        attached = doing.attach_trace_context(out.context())
        with doing.span("work") as work, work.span("within"):
            pass
        attached.detach()

    assert out.context()["traceparent"] == f"00-{out.trace_id}-{out.span_id}-00"
    assert exporter.rows("spans") == []
    assert [(row["cause"], row["count"]) for row in exporter.rows("gaps")] == [("sampled", 2)]


def test_whether_another_system_keeps_its_trace_decides_nothing_here() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.attach_trace_context(FAR.removesuffix("1") + "0"), run.span("kept"):
        pass

    assert [row["name"] for row in exporter.rows("spans")] == ["kept"]


def test_work_for_another_rank_is_of_the_rank_that_does_it_unless_somebody_stated_one() -> None:
    exporter = MemoryExporter()
    near, far = (Identity("p", "r", b"l" * 16, bytes([rank]) * 16, rank=rank, world_size=2) for rank in (0, 1))

    with Run(MemoryExporter(), identity=near) as asking, Run(exporter, identity=far) as doing:
        with doing.attach_trace_context(asking.trace("a").context()), doing.span("for rank 0"):
            pass
        with doing.attach_trace_context(asking.trace("b", rank=7).context()), doing.span("for rank 7"):
            pass
        by_hand = {**IDS, "thread_id": "t", "rank": 5}
        with doing.attach_trace_context(by_hand), doing.span("for rank 5"):
            pass

    assert [row["stated_rank"] for row in exporter.rows("spans")] == [None, 7, 5]


def test_a_trace_begins_a_tree_of_its_own_under_a_carrier_too() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        with run.trace("batch") as batch:
            carrier = batch.context()
        with run.attach_trace_context(carrier), run.trace("own"):
            pass

    rows = spans_of(exporter)
    assert parent_of(rows, "own") is None
    assert rows["own"]["trace_lo"] != rows["batch"]["trace_lo"]


def test_spans_under_a_carrier_of_a_step_belong_to_the_steps_trace() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(7) as step:
        carrier = step.context()
        in_thread(lambda: run.attach_trace_context(carrier) and run.span("work").__enter__().finish())

    row = spans_of(exporter)["work"]
    assert (row["step"], row["flags"]) == (7, SPAN_FLAGS["in_step_trace"])


def test_a_carrier_of_another_run_is_refused_by_both_names() -> None:
    with Run(MemoryExporter()) as other, other.trace("a") as span:
        carrier = span.context()

    with Run(MemoryExporter()) as run, pytest.raises(ValueError, match=f"run_id does not match.*{other.id}.*{run.id}"):
        run.attach_trace_context(carrier)

    with Run(MemoryExporter()) as run, pytest.raises(ValueError, match="project 'theirs'"):
        run.attach_trace_context({**carrier, "run_id": run.id, "project": "theirs"})


def test_where_nothing_is_recorded_any_carrier_is_taken() -> None:
    with Run(MemoryExporter()) as other, other.trace("a") as span:
        carrier = span.context()

    with Run(None) as run, run.attach_trace_context(carrier), run.span("b") as child:
        assert child.context()["trace_id"] == span.trace_id


@pytest.mark.parametrize(
    ("carrier", "error", "says"),
    [
        (None, TypeError, "NoneType"),
        ([("run_id", "r")], TypeError, "list"),
        ({}, ValueError, "nothing"),
        (message_from_string("Host: a\n\n"), ValueError, "'Host'"),
        (dict, TypeError, "not a type"),
        ({"trace_id": "1"}, ValueError, "'trace_id'"),
        ({"run_id": "r", "trace_id": "1", "span_id": "b" * 16}, ValueError, "32 hex digits"),
        ({"run_id": "r", "trace_id": "a" * 32}, ValueError, "16 hex digits"),
        ({**IDS, "step": "x"}, ValueError, "carrier's step"),
        ({**IDS, "rank": True}, ValueError, "carrier's rank"),
        (
            {"run_id": "r", "trace_id": "a" * 32, "span_id": "b" * 16, "launch_id": "x"},
            ValueError,
            "carrier's launch_id",
        ),
        ({**IDS, "run_id": 3}, ValueError, "carrier's run_id"),
        ("banana", ValueError, "W3C traceparent"),
        ({"traceparent": "00-zz"}, ValueError, "W3C traceparent"),
    ],
)
def test_what_is_no_carrier_is_said_at_once(carrier: object, error: type[Exception], says: str) -> None:
    with Run(MemoryExporter()) as run, pytest.raises(error, match=says):
        run.attach_trace_context(carrier)  # pyright: ignore[reportArgumentType]  # what untyped code may do


class Pairs:
    """Headers as servers keep them that are no mapping."""

    def items(self) -> Iterator[tuple[str, str]]:
        yield from (("Accept", "a"), ("Accept", "b"), ("Traceparent", FAR))


@pytest.mark.parametrize(
    "carrier",
    [
        FAR,
        {"traceparent": FAR},
        {"Traceparent": FAR, "Host": "a"},
        message_from_string(f"Host: a\nTraceparent: {FAR}\n\n"),
        Pairs(),
    ],
)
def test_a_traceparent_of_another_system_is_a_parent(carrier: Given) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.attach_trace_context(carrier), run.span("here") as span:
        assert str(span.context()["traceparent"]).startswith("00-0af7651916cd43dd8448eb211c80319c-")

    (row,) = exporter.rows("spans")
    assert (row["trace_hi"], row["trace_lo"]) == (0x0AF7651916CD43DD, 0x8448EB211C80319C)
    assert row["parent_span_id"] == 0xB7AD6B7169203331


@pytest.mark.parametrize(
    "text",
    [
        "",
        FAR[:-1],
        FAR.upper(),
        FAR + "-more",
        "ff" + FAR[2:],
        FAR.replace("b7ad6b7169203331", "0" * 16),
        FAR.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
    ],
)
def test_what_the_recommendation_forbids_is_no_traceparent(text: str) -> None:
    with pytest.raises(ValueError, match="W3C traceparent"):
        read_traceparent(text)


def test_a_traceparent_of_a_later_version_may_have_more() -> None:
    assert str(read_traceparent("01" + FAR[2:] + "-more")) == FAR


@pytest.mark.usefixtures("quiet")
def test_a_traceparent_in_the_environment_is_the_parent_of_roots_but_of_no_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRACEPARENT", FAR)

    with rankscope.init() as run:
        with run.trace("rollout"), run.span("turn"):
            pass
        in_thread(lambda: run.start_span("elsewhere").finish())
        with run.trace("apart", trace_id="a" * 32), run.step(0):
            pass

    rows = {row["name"]: row for row in rows_in(tmp_path / "spool", "spans")}
    far = 0xB7AD6B7169203331
    assert [rows[name]["parent_span_id"] for name in ("rollout", "elsewhere")] == [far, far]
    assert parent_of(rows, "turn") == "rollout"
    assert [rows[name]["parent_span_id"] for name in ("step", "apart")] == [0, 0]
    assert rows["rollout"]["trace_lo"] == rows["turn"]["trace_lo"] == 0x8448EB211C80319C
    assert rows["step"]["trace_lo"] != rows["rollout"]["trace_lo"]


def test_a_traceparent_that_is_none_is_said_and_not_used(tmp_path: Path) -> None:
    source = """
    import rankscope
    with rankscope.init() as run, run.trace("a"):
        pass
    """

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none", TRACEPARENT="banana")

    assert ended.code == 0
    assert "TRACEPARENT is not used: 'banana'" in ended.err
    assert [row["parent_span_id"] for row in rows_in(tmp_path / "spool", "spans")] == [0]


def test_tasks_and_threads_of_asyncio_find_their_parent_by_themselves() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        def work(name: str) -> None:
            with run.span(name):
                pass

        async def start() -> None:
            with run.trace("batch"):
                task = asyncio.ensure_future(asyncio.to_thread(work, "task"))
                await asyncio.to_thread(work, "thread")
            await task

        asyncio.run(start())

    rows = spans_of(exporter)
    assert [parent_of(rows, name) for name in ("task", "thread")] == ["batch", "batch"]


def test_a_wrapped_function_runs_under_the_span_wherever_it_runs() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        def work(name: str) -> str:
            with run.span(name):
                return name

        with run.trace("batch") as batch:
            wrapped = batch.wrap(work)
        in_thread(lambda: wrapped("thread"))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(wrapped, name="pool").result() == "pool"
            pool.submit(work, "not wrapped").result()
        wrapped("here")
        work("after")
        assert wrapped.__name__ == "work"

    rows = spans_of(exporter)
    names = ("thread", "pool", "here", "not wrapped", "after")
    assert [parent_of(rows, name) for name in names] == ["batch", "batch", "batch", None, None]


def test_a_wrapped_coroutine_runs_under_the_span_to_its_end() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        async def work(name: str) -> None:
            await asyncio.sleep(0)
            with run.span(name):
                await asyncio.sleep(0)

        async def start() -> None:
            with run.trace("batch") as batch:
                wrapped = batch.wrap(work)
            task = asyncio.ensure_future(wrapped("task"))
            with run.trace("meanwhile"):
                await wrapped("awaited")
                with run.span("own"):
                    await task

        asyncio.run(start())

    rows = spans_of(exporter)
    assert [parent_of(rows, name) for name in ("task", "awaited", "own")] == ["batch", "batch", "meanwhile"]


def test_a_wrapped_generator_hides_the_span_from_its_consumer() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:

        def work() -> Iterator[int]:
            with run.span("make"):
                yield 1

        with run.trace("batch") as batch:
            steps = batch.wrap(work)()
        for _ in steps:
            with run.span("use"):
                pass

    rows = spans_of(exporter)
    assert [parent_of(rows, name) for name in ("make", "use")] == ["batch", None]


def test_what_cannot_be_called_cannot_be_wrapped() -> None:
    with Run(MemoryExporter()) as run, run.span("a") as span, pytest.raises(TypeError, match="int"):
        span.wrap(5)  # pyright: ignore[reportArgumentType]  # what untyped code may do


@pytest.mark.usefixtures("quiet")
def test_threads_begin_where_they_were_started_once_that_is_asked_for(tmp_path: Path) -> None:
    before = [vars(owner).get(name) for owner, name in PATCHED]
    with rankscope.init(propagate_threads=True) as run:
        _record_in_threads(run)
        assert [vars(owner).get(name) for owner, name in PATCHED] != before
    assert [vars(owner).get(name) for owner, name in PATCHED] == before

    rows = {row["name"]: row for row in rows_in(tmp_path / "spool", "spans")}
    names = ("thread", "timer", "submit", "map", "second", "apply", "starmap", "imap", "outside")
    assert [parent_of(rows, name) for name in names] == [
        *("first", "first", "first", "first", "second parent"),
        *("first", "first", "first", None),
    ]


PATCHED: tuple[tuple[type, str], ...] = (
    (threading.Thread, "start"),
    (ThreadPoolExecutor, "submit"),
    *((cast("type", ThreadPool), name) for name in ("apply_async", "_map_async", "imap", "imap_unordered")),
)


def _record_in_threads(run: Run) -> None:
    def work(name: str, *_: object) -> None:
        with run.span(name):
            pass

    with ThreadPoolExecutor(1) as executor, ThreadPool(1) as pool:
        with run.trace("first"):
            thread, timer = threading.Thread(target=work, args=("thread",)), threading.Timer(0, work, ("timer",))
            for started in (thread, timer):
                started.start()
                started.join()
            executor.submit(work, "submit").result()
            list(executor.map(work, ["map"]))
            pool.apply(work, ("apply",))
            pool.starmap(work, [("starmap", 1)])
            list(pool.imap(func=work, iterable=["imap"]))
        with run.trace("second parent"):
            executor.submit(work, "second").result()
        executor.submit(work, "outside").result()
    assert "run" not in vars(thread)


@pytest.mark.usefixtures("quiet")
def test_a_patch_that_somebody_patched_over_is_left_and_does_nothing(tmp_path: Path) -> None:
    before = threading.Thread.start
    try:
        with rankscope.init(propagate_threads=True):
            ours = threading.Thread.start
            threading.Thread.start = partialmethod(ours)  # pyright: ignore[reportAttributeAccessIssue]
        in_thread(lambda: None)
        assert threading.Thread.start is not before
    finally:
        threading.Thread.start = before


def test_a_thread_started_twice_is_still_an_error(tmp_path: Path) -> None:
    source = """
    import threading
    import rankscope
    with rankscope.init(propagate_threads=True) as run, run.span("a"):
        thread = threading.Thread(target=print)
        thread.start()
        thread.join()
        try:
            thread.start()
        except RuntimeError:
            print("refused")
        assert "run" not in vars(thread)
    """

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none")

    assert (ended.code, ended.out.split()) == (0, ["refused"]), ended.err
