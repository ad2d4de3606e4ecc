"""Processes that work for a rank: they join its run by a carrier, and record beside it."""

from pathlib import Path

import pytest

from rankscope._delivery import AgentOnly
from rankscope.errors import Unavailable
from rankscope.spool import spools
from rankscope.testing import rows_of
from rankscope_proto.names import ProcessRole, RunStatus, SpanStatus
from tests.agent.agents import ScriptedAgent
from tests.agent.programs import Ended, run_program
from tests.agent.spooled import assert_exact, batches_in, batches_of, is_ended, rows_in
from tests.agent.test_trace_op import parent_of

TRAINER = """
import multiprocessing, os, signal, sys, time
import rankscope

def work(carrier, name="work"):
    run = rankscope.init(carrier=carrier)
    with run.span(name):
        run.log_metric("in worker", 1)

def fail(carrier):
    work(carrier)
    raise LookupError("broken")

def hang(carrier, ready):
    run = rankscope.init(carrier=carrier)
    with run.span("hang"):
        ready.set()
        time.sleep(60)

def start():
    return rankscope.init("chars", "try", run_id="r", config={"lr": 1})

if __name__ == "__main__":
    MAIN
"""


def run_trainer(main: str, tmp_path: Path, **environ: str) -> Ended:
    """Run the program from a file, which `spawn` needs."""
    program = tmp_path / "trainer.py"
    program.write_text(TRAINER.replace("    MAIN", main.replace("\n    ", "\n").replace("\n", "\n    ")))
    source = f"import runpy\nrunpy.run_path({str(program)!r}, run_name='__main__')"
    if "spawn" in main:
        source = f"import os, sys\nos.execv(sys.executable, [sys.executable, {str(program)!r}])"
    return run_program(source, tmp_path, **{"RANKSCOPE_AGENT": "none", **environ})


def spans_in(tmp_path: Path) -> dict[object, dict[str, object]]:
    return {row["name"]: row for row in rows_in(tmp_path / "spool", "spans")}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_joins_the_run_of_its_carrier_and_claims_and_says_nothing(tmp_path: Path, method: str) -> None:
    main = f"""
    context = multiprocessing.get_context({method!r})  # spawn
    with start() as run, run.trace("batch", step=4) as batch:
        worker = context.Process(target=work, args=(batch.context(),))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    assert len(ended.said) == 2, ended.err
    rows = spans_in(tmp_path)
    assert parent_of(rows, "work") == "batch"
    assert rows["work"]["step"] == 4
    headers = {batch.header.process_role: batch.header for batch in batches_in(tmp_path / "spool")}
    worker, trainer = headers[ProcessRole.WORKER.code], headers[ProcessRole.TRAINER.code]
    assert (worker.run_id, worker.project, worker.launch_id) == ("r", "chars", trainer.launch_id)
    assert (worker.rank, worker.parent_rank, worker.world_size, worker.worker_index) == (0, 0, 1, -1)
    assert worker.incarnation != trainer.incarnation
    for folder in spools(tmp_path / "spool"):
        assert is_ended(folder)
        assert_exact(batches_of(folder))


def test_what_a_forked_worker_records_through_its_parents_run_is_its_own(tmp_path: Path) -> None:
    main = """
    context = multiprocessing.get_context("fork")
    with start() as run, run.trace("batch") as batch:

        def item(carrier):
            rankscope.init(carrier=carrier)
            with run.span("item"):
                run.log_metric("through the closure", 1)
            run.flush()

        worker = context.Process(target=item, args=(batch.context(),))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    rows = spans_in(tmp_path)
    assert parent_of(rows, "item") == "batch"
    assert [row["name"] for row in rows_in(tmp_path / "spool", "scalars")] == ["through the closure"]


def test_a_forked_worker_takes_over_what_its_parents_init_was_given(tmp_path: Path) -> None:
    main = f"""
    context = multiprocessing.get_context("fork")
    where = {str(tmp_path / "elsewhere")!r}
    with rankscope.init(spool=where, rank=1, world_size=2, run_id="r", launch_id="a" * 32) as run:
        with run.trace("batch") as batch:
            worker = context.Process(target=work, args=(batch.context(),))
            worker.start()
            worker.join()
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    headers = {batch.header.process_role: batch.header for batch in batches_in(tmp_path / "elsewhere")}
    worker = headers[ProcessRole.WORKER.code]
    assert (worker.rank, worker.parent_rank, worker.world_size) == (1, 1, 2)


def test_workers_of_a_data_loader_record_each_item_under_the_step_that_asked_for_it(tmp_path: Path) -> None:
    main = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    with start() as run:

        @run.trace_op("load")
        def load(index):
            with rankscope.current_run().span("decode"):
                return torch.tensor(index)

        class Numbers(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return load(index)

        with run.trace("epoch") as epoch:
            carrier = epoch.context()
            loader = DataLoader(Numbers(), batch_size=2, num_workers=2,
                worker_init_fn=lambda index: rankscope.init(carrier=carrier))
            assert sum(int(batch.sum()) for batch in loader) == 28
            del loader
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    rows = rows_in(tmp_path / "spool", "spans")
    (epoch,) = [row for row in rows if row["name"] == "epoch"]
    loads = [row for row in rows if row["name"] == "load"]
    assert len(loads) == 8
    assert {row["parent_span_id"] for row in loads} == {epoch["span_id"]}
    decodes = [row for row in rows if row["name"] == "decode"]
    assert sorted(str(row["parent_span_id"]) for row in decodes) == sorted(str(row["span_id"]) for row in loads)
    indices = {b.header.worker_index for b in batches_in(tmp_path / "spool") if b.header.process_role == 2}
    assert indices == {0, 1}
    assert all(is_ended(folder) for folder in spools(tmp_path / "spool"))


def test_a_worker_that_is_kept_is_told_with_each_task_whose_it_is(tmp_path: Path) -> None:
    main = """
    with start() as run, multiprocessing.get_context("fork").Pool(1) as pool:
        for name in ("first", "second"):
            with run.trace(name) as trace:
                pool.apply(work, (trace.context(), f"work for {name}"))
        pool.close()
        pool.join()
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    rows = spans_in(tmp_path)
    assert [parent_of(rows, f"work for {name}") for name in ("first", "second")] == ["first", "second"]
    assert len(spools(tmp_path / "spool")) == 2


def test_work_that_is_done_in_the_trainer_itself_joins_nothing(tmp_path: Path) -> None:
    main = """
    with start() as run:
        with run.trace("batch") as batch:
            work(batch.context())
        work(batch.context(), "after")
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    rows = spans_in(tmp_path)
    assert [parent_of(rows, "work"), parent_of(rows, "after")] == ["batch", None]
    assert {batch.header.process_role for batch in batches_in(tmp_path / "spool")} == {ProcessRole.TRAINER.code}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_fails_says_so(tmp_path: Path, method: str) -> None:
    main = f"""
    context = multiprocessing.get_context({method!r})
    with start() as run, run.trace("batch") as batch:
        worker = context.Process(target=fail, args=(batch.context(),))
        worker.start()
        worker.join()
        assert worker.exitcode == 1
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    assert "LookupError: broken" in ended.err
    assert _statuses(tmp_path) == {
        ProcessRole.TRAINER.code: RunStatus.FINISHED.code,
        ProcessRole.WORKER.code: RunStatus.FAILED.code,
    }


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_is_terminated_ends_its_open_spans_as_interrupted(tmp_path: Path, method: str) -> None:
    main = f"""
    context = multiprocessing.get_context({method!r})
    with start() as run, run.trace("batch") as batch:
        ready = context.Event()
        worker = context.Process(target=hang, args=(batch.context(), ready))
        worker.start()
        assert ready.wait(60)
        worker.terminate()
        worker.join()
        assert worker.exitcode == -signal.SIGTERM, worker.exitcode
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    assert spans_in(tmp_path)["hang"]["status"] == SpanStatus.INTERRUPTED.code
    assert _statuses(tmp_path)[ProcessRole.WORKER.code] == RunStatus.INTERRUPTED.code


def test_a_worker_uses_the_agent_that_lives_and_takes_none_of_its_places(tmp_path: Path) -> None:
    agent = ScriptedAgent(tmp_path / "spool")
    started: list[Path] = []
    try:
        delivery = AgentOnly(tmp_path / "spool", lambda: started.append(tmp_path))
        assert delivery.settle() == ""
        assert delivery.begin(tmp_path / "spool" / "own") == ""
        delivery.close()
    finally:
        agent.stop()

    assert (agent.requests, started) == ([], [])


def test_a_worker_starts_an_agent_where_none_lives_and_goes_on_without_one(tmp_path: Path) -> None:
    started: list[Path] = []
    assert AgentOnly(tmp_path, lambda: started.append(tmp_path)).settle() == ""
    assert started == [tmp_path]

    def fail() -> None:
        raise Unavailable("no program")

    assert AgentOnly(tmp_path, fail).settle() == f"no agent answers in {tmp_path}: no program"
    assert AgentOnly(tmp_path, None).settle() == ""


def test_a_carrier_and_what_init_is_asked_for_may_not_contradict(tmp_path: Path) -> None:
    main = """
    with start() as run, run.trace("a") as span:
        carrier = span.context()
    for asked in ({"run_id": "other"}, {"project": "other"}):
        try:
            rankscope.init(**asked, carrier=carrier)
        except rankscope.errors.ConfigError as error:
            print(error)
    try:
        rankscope.init(carrier={**carrier, "launch_id": ""})
    except ValueError as error:
        print(error)
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    asked = "and init was asked for {0} 'other': leave it out, the carrier says it"
    assert ended.out.splitlines() == [
        f"the carrier belongs to run 'r', {asked.format('run')}",
        f"the carrier belongs to project 'chars', {asked.format('project')}",
        "the carrier has no launch_id: pass on all of what span.context() returned",
    ]


def test_whoever_works_for_a_run_that_is_not_recorded_records_nothing_and_fails_nowhere(tmp_path: Path) -> None:
    main = """
    context = multiprocessing.get_context("spawn")
    with rankscope.init(upload_mode="disabled") as run, run.trace("a") as span:
        worker = context.Process(target=work, args=(span.context(),))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        with run.attach_trace_context(span.context()):
            pass
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    assert not (tmp_path / "spool").exists()


def test_a_traceparent_alone_joins_no_run_and_is_the_parent_of_roots(tmp_path: Path) -> None:
    main = """
    carrier = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
    with rankscope.init(carrier=carrier) as run, run.trace("root"):
        pass
    """

    ended = run_trainer(main, tmp_path)

    assert ended.code == 0, ended.err
    assert spans_in(tmp_path)["root"]["parent_span_id"] == int("b" * 16, 16)
    assert {batch.header.process_role for batch in batches_in(tmp_path / "spool")} == {ProcessRole.TRAINER.code}


def _statuses(tmp_path: Path) -> dict[int, object]:
    """The last status that each process said, by its role."""
    said: dict[int, object] = {}
    for batch in batches_in(tmp_path / "spool"):
        for row in rows_of(batch, "run_info"):
            said[batch.header.process_role] = row["status"]
    return said
