"""Collectives in one process: what is there without the recorder, what is overwritten, and that nothing is left."""

import gc
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import rankscope
from rankscope._gc_spans import CollectionSpans
from rankscope.collectives.attach import Collectives
from rankscope.collectives.calls import FUTURE_EVERY
from rankscope.collectives.recorder import SIZE_VARIABLES, FlightRecorder
from rankscope.errors import ConfigError
from rankscope_proto.names import GapCause
from tests.agent.collectives.alone import Alone, Recorded, group_of_one
from tests.ground.processes import wait_until

dist: Any = torch.distributed
dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage]  # there is no other way to count graphs
parallel: Any = DistributedDataParallel

pytestmark = pytest.mark.filterwarnings("ignore:.*")  # torch's, of its own functions


@pytest.fixture
def group() -> Iterator[None]:
    """The default process group, of one rank."""
    with group_of_one():
        yield


class Odd:
    """A torch whose recorder says what it is told to."""

    def __init__(self, said: Callable[[], bytes]) -> None:
        def dump(*_: object) -> bytes:
            return said()

        self._dump_fr_trace = dump


def without_keys() -> bytes:
    return pickle.dumps({"entries": [{"record_id": 0}]})


def failing() -> bytes:
    raise RuntimeError("no dump today")


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("module", "said"),
    [
        (object(), "this torch has no flight recorder"),
        (Odd(without_keys), "KeyError"),
        (Odd(failing), "no dump today"),
        (Odd(lambda: b"no pickle"), "not as expected"),
    ],
)
def test_without_a_recorder_that_can_be_read_calls_are_recorded_and_the_rest_is_stated(
    module: object, said: str
) -> None:
    alone = Alone(FlightRecorder(module))

    with alone.run.step(3):
        dist.all_reduce(torch.ones(4))
        dist.barrier()

    rows = alone.rows()
    assert [(row["op"], row["cseq"] - rows[0]["cseq"], row["step"]) for row in rows] == [
        ("all_reduce", 0, 3),
        ("barrier", 1, 3),
    ]
    (gap,) = alone.gaps()
    assert (gap["cause"], gap["data_kind"]) == (GapCause.UNSUPPORTED, "collectives")
    assert said in gap["detail"]


def test_a_recorder_that_is_switched_off_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE_VARIABLES[0], "0")

    assert "TORCH_FR_BUFFER_SIZE=0" in FlightRecorder().lack


@pytest.mark.usefixtures("group")
def test_what_the_recorder_overwrote_is_counted_exactly() -> None:
    plain, done = dist.all_reduce, 2_500  # more than the ring holds, and no wrapped call among them
    alone = Alone()

    for _ in range(done):
        plain(torch.ones(1))

    rows = alone.rows()
    (gap,) = alone.gaps()
    assert 0 < len(rows) < done
    assert len(rows) + gap["count"] == done
    assert (gap["cause"], gap["data_kind"]) == (GapCause.BUDGET, "collectives")
    numbers = [row["cseq"] for row in rows]
    assert numbers == list(range(done - len(rows) + 1, done + 1))


@pytest.mark.usefixtures("group")
def test_calls_need_no_recorder_to_be_whole_and_numbered() -> None:
    alone = Alone()

    for index in range(30):
        with alone.run.step(index):
            for _ in range(100):
                dist.all_reduce(torch.ones(1))

    rows = alone.rows()
    assert [row["cseq"] for row in rows] == list(range(1, 3_001))
    assert [row["step"] for row in rows] == [index for index in range(30) for _ in range(100)]
    assert not alone.gaps()


@pytest.mark.usefixtures("group")
def test_what_the_recorder_has_is_read_before_it_is_overwritten() -> None:
    plain, alone = dist.all_reduce, Alone()

    for index in range(60):
        with alone.run.step(index):
            for _ in range(100):
                plain(torch.ones(1))

    rows = alone.rows()
    assert [row["cseq"] for row in rows] == list(range(1, 6_001))
    assert [row["step"] for row in rows] == [index for index in range(60) for _ in range(100)]
    assert not alone.gaps()


@pytest.mark.usefixtures("group")
def test_an_end_that_is_told_between_a_reading_and_its_rows_is_kept_for_the_next() -> None:
    alone = Recorded()
    observed: Any = Collectives(alone.recording)
    observed.begin()
    model = parallel(torch.nn.Linear(8, 8))
    model.register_comm_hook(None, allreduce_hook)
    group = dist.group.WORLD

    while group._get_sequence_number_for_group() % FUTURE_EVERY != FUTURE_EVERY - 1:
        dist.barrier()
    observed._take(group._get_sequence_number_for_group())
    model(torch.ones(2, 8)).sum().backward()
    wait_until(lambda: bool(observed._ends.of_hooks), what="end")
    observed._settle()

    reduction = alone.rows()[-1]
    assert (reduction["op"], reduction["exit_source"]) == ("all_reduce", "hook")


@pytest.mark.usefixtures("group")
def test_a_call_that_raises_after_it_began_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*_: object, **__: object) -> None:
        dist.distributed_c10d.all_reduce(torch.ones(1))
        raise RuntimeError("connection reset by peer")

    monkeypatch.setattr(dist, "broadcast", torn)
    alone = Alone()

    with pytest.raises(RuntimeError, match="reset by peer"):
        dist.broadcast(torch.ones(1), group=None)

    (row,) = alone.rows()
    assert (row["op"], row["exit"], row["flags"] & 8) == ("broadcast", None, 8)


@pytest.mark.usefixtures("group")
def test_the_end_puts_everything_back_and_leaves_anothers_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: getattr(dist, name) for name in ("all_reduce", "barrier", "destroy_process_group")}
    of_ddp = parallel.__init__, parallel.register_comm_hook
    alone = Alone()
    ours = dist.all_reduce
    assert ours is not before["all_reduce"]

    def anothers(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    monkeypatch.setattr(dist, "broadcast", dist.broadcast)
    dist.all_reduce = anothers
    alone.run.finish()

    try:
        assert dist.all_reduce is anothers
        dist.all_reduce(torch.ones(1))
    finally:
        dist.all_reduce = before["all_reduce"]
    assert {name: getattr(dist, name) for name in before} == before
    assert (parallel.__init__, parallel.register_comm_hook) == of_ddp


@pytest.mark.usefixtures("group")
def test_graphs_are_as_many_as_without() -> None:
    def counted() -> tuple[int, int]:
        dynamo.reset()
        dynamo.utils.counters.clear()
        graphs: list[object] = []

        def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
            graphs.append(graph)
            return graph.forward

        @torch.compile(backend=backend)
        def work(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            dist.all_reduce(y)
            return y + 1

        assert work(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
        return len(graphs), sum(dynamo.utils.counters["graph_break"].values())

    plain = counted()
    alone = Alone()
    try:
        observed = counted()
    finally:
        alone.run.finish()

    assert observed == plain


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_a_run_records_collectives_unless_it_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    for variable in SIZE_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    plain = dist.all_reduce

    with rankscope.init(upload_mode="spool", spool=str(tmp_path), quiet=True, collectives=mode) as run:
        said = os.environ.pop(SIZE_VARIABLES[0], None)
        with run.step(0):
            is_wrapped = dist.all_reduce is not plain

    assert is_wrapped is (mode == "auto")
    assert said == ("512" if mode == "auto" else None)
    assert dist.all_reduce is plain
    assert not [
        callback for callback in gc.callbacks if isinstance(getattr(callback, "__self__", None), CollectionSpans)
    ]


def test_the_users_size_of_the_recorder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE_VARIABLES[1], "20000")
    monkeypatch.delenv(SIZE_VARIABLES[0], raising=False)

    with rankscope.init(upload_mode="spool", spool=str(tmp_path), quiet=True):
        assert SIZE_VARIABLES[0] not in os.environ


def test_another_word_for_collectives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="RANKSCOPE_COLLECTIVES is 'on': it is auto or off"):
        rankscope.init(upload_mode="spool", spool=str(tmp_path), collectives="on")  # pyright: ignore[reportArgumentType]  # what is tried


def test_a_long_garbage_collection_is_a_span_of_what_was_open() -> None:
    alone = Recorded()
    spans = CollectionSpans(alone.recording)
    spans.begin()
    try:
        with alone.run.step(5) as step, step.phase("forward"):
            kept = [[index] for index in range(30_000)]
            gc.collect()
        gc.collect()  # nothing is open
    finally:
        spans.end()
    with alone.run.step(6):
        gc.collect()

    rows = alone.rows("spans")
    phase = next(row for row in rows if row["name"] == "forward")
    long = [row for row in rows if row["name"] == "gc"]
    assert kept
    assert long
    assert {(row["parent_span_id"], row["step"]) for row in long} == {(phase["span_id"], 5)}
    assert all(row["duration"] >= 1_000_000 for row in long)
