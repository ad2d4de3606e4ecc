"""A trainer that is killed: each span it had open is in the store once, interrupted, and none that had ended."""

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.agent.left_open import left_rows
from rankscope.spool import SpoolReader, spools, stage_out
from rankscope.testing import rows_of
from rankscope_ingest.validate import check
from rankscope_proto.names import ProcessRole, SpanStatus
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.agents import AgentProcess
from tests.agent.agent.dying import OPEN, dying
from tests.agent.agent.test_drain import call, told
from tests.agent.gateways import ScriptedGateway
from tests.ground.processes import Children, wait_until

ENDED = {"ended first"}

WORKERS = """
import multiprocessing, os, signal, sys, time
import rankscope
run = rankscope.init("chars", run_id="r", quiet=True, rank=3, world_size=4)

def work(carrier):
    worker = rankscope.init(carrier=carrier)
    with worker.span("in worker"):
        time.sleep(600)

batch = run.trace("batch", step=9).__enter__()
worker = multiprocessing.get_context("fork").Process(target=work, args=(batch.context(),), daemon=True)
worker.start()
print("open", flush=True)
for line in sys.stdin:
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    batch.finish()
    rankscope.finish()
    print("done", flush=True)
"""


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def root(home: Path) -> Path:
    """Of a trainer that was killed."""
    with dying(home) as trainer:
        trainer.await_left(OPEN)
        trainer.await_sealed("ended first")
    return home / "spool"


def statements(gateway: ScriptedGateway) -> list[Batch]:
    """What was stated for processes that no longer can."""
    batches = [Batch.FromString(one.payload) for one in gateway.accepted]
    return [batch for batch in batches if batch.header.process_role == ProcessRole.AGENT.code]


def spans(gateway: ScriptedGateway) -> list[dict[str, Any]]:
    """All spans that were accepted."""
    return [row for one in gateway.accepted for row in rows_of(Batch.FromString(one.payload), "spans")]


def names(gateway: ScriptedGateway) -> Counter[str]:
    return Counter(row["name"] for row in spans(gateway))


def end_of(span: dict[str, Any]) -> int:
    """Wall clock in ns."""
    return int(span["start"] + span["duration"])


def drain(root: Path, gateway: ScriptedGateway) -> None:
    done = call(root.parent.parent, "drain", root, "--endpoint", gateway.endpoint, "--json")
    assert done.returncode == 0, done.stderr
    assert told(done)["left"] == []


def test_what_was_open_is_stated_as_interrupted_with_all_that_is_known_of_it(
    gateway: ScriptedGateway, root: Path
) -> None:
    drain(root, gateway)

    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)
    rows = {row["name"]: row for row in spans(gateway)}
    assert {rows[name]["status"] for name in OPEN} == {SpanStatus.INTERRUPTED.code}
    episode, step, tool = rows["episode"], rows["step"], rows["tool"]
    assert (episode["attributes"], episode["numbers"]) == ({"model": "m7"}, {"turn": 4.0})
    assert tool["parent_span_id"] == episode["span_id"]
    assert (tool["trace_hi"], tool["trace_lo"]) == (episode["trace_hi"], episode["trace_lo"])
    assert (step["step"], episode["step"]) == (7, None)
    assert episode["duration"] > step["duration"] > 0
    assert rows["tool"]["path"] == "episode/tool"


def test_it_is_stated_under_the_rank_run_and_launch_of_the_process(gateway: ScriptedGateway, root: Path) -> None:
    drain(root, gateway)

    heads = [batch.header for batch in statements(gateway)]
    trainer = Batch.FromString(gateway.accepted[0].payload).header
    assert heads
    for head in heads:
        assert (head.project, head.run_id, head.rank, head.world_size) == ("chars", "r", 3, 4)
        assert (head.launch_id, head.node, head.pid) == (trainer.launch_id, trainer.node, trainer.pid)
        assert head.incarnation != trainer.incarnation
        assert head.emitted_spans in (0, len(OPEN))
    for sealed in gateway.accepted:
        check(sealed, now_ns=trainer.sealed)


def test_a_span_that_ended_after_the_file_was_written_is_not_stated(gateway: ScriptedGateway, home: Path) -> None:
    with dying(home) as trainer:
        trainer.await_left(OPEN)
        trainer.await_sealed("ended first")
        trainer.say("write no more")
        trainer.say("end late")
        trainer.await_sealed("ends late")

    drain(trainer.root, gateway)

    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)
    rows = {row["name"]: row for row in spans(gateway)}
    assert rows["ends late"]["status"] == SpanStatus.OK.code
    assert min(end_of(rows[name]) for name in OPEN - {"ends late"}) >= end_of(rows["ends late"])


def test_a_span_lasts_as_long_as_its_process_is_known_to_have_lived(gateway: ScriptedGateway, home: Path) -> None:
    with dying(home) as trainer:
        trainer.await_left(OPEN)
        since_ns = time.time_ns()
        wait_until(lambda: time.time_ns() - since_ns > 4 * 10**9, what="hang")

    drain(trainer.root, gateway)

    episode = next(row for row in spans(gateway) if row["name"] == "episode")
    assert end_of(episode) - since_ns > 10**9


def test_draining_again_and_every_copy_adds_nothing(gateway: ScriptedGateway, root: Path, tmp_path: Path) -> None:
    stage_out(root, tmp_path / "shared")
    shutil.copytree(root, tmp_path / "copied")

    for folder in (root, tmp_path / "shared", tmp_path / "copied", root):
        drain(folder, gateway)

    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)


@pytest.mark.parametrize(
    "point",
    ["agent.adopt", "agent.close_spans", "agent.after_close_spans", "agent.after_send@3", "agent.before_free@2"],
)
def test_an_agent_killed_while_it_states_them_leaves_the_rest_to_the_next(
    children: Children, gateway: ScriptedGateway, root: Path, point: str
) -> None:
    name, _, on_pass = point.partition("@")
    failpoint = {"RANKSCOPE_FAILPOINT": f"{name}:kill" + (f"@{on_pass}" if on_pass else "")}
    first = AgentProcess(children, root, endpoint=gateway.endpoint, environ=failpoint)
    assert first.child.wait() == -signal.SIGKILL

    AgentProcess(children, root, endpoint=gateway.endpoint, name="next").await_ready()
    wait_until(lambda: not spools(root), what="deliver all")

    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)
    drain(root, gateway)
    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)


def test_an_agent_that_lives_states_nothing_while_the_trainer_does(
    children: Children, gateway: ScriptedGateway, home: Path
) -> None:
    with dying(home) as trainer:
        AgentProcess(children, trainer.root, endpoint=gateway.endpoint).await_ready()
        trainer.await_left(OPEN)
        trainer.await_sealed("ended first")
        wait_until(lambda: names(gateway)["ended first"] == 1, what="be accepted")
        assert not statements(gateway)

        trainer.kill()
        wait_until(lambda: not spools(trainer.root), what="deliver all")

    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)


def test_of_a_worker_that_is_killed_too_and_where_its_trainer_goes_on(gateway: ScriptedGateway, home: Path) -> None:
    with dying(home, WORKERS) as trainer:
        trainer.await_left({"batch", "in worker"})
        trainer.say("kill the worker")

    drain(trainer.root, gateway)

    assert names(gateway) == {"batch": 1, "in worker": 1}
    rows = {row["name"]: row for row in spans(gateway)}
    batch, worker = rows["batch"], rows["in worker"]
    assert (batch["status"], worker["status"]) == (SpanStatus.OK.code, SpanStatus.INTERRUPTED.code)
    assert (worker["parent_span_id"], worker["step"]) == (batch["span_id"], 9)
    (head,) = [batch.header for batch in statements(gateway) if batch.header.emitted_spans]
    assert (head.rank, head.parent_rank, head.run_id) == (3, 3, "r")


def test_a_trainer_that_finishes_says_it_itself(gateway: ScriptedGateway, home: Path) -> None:
    with dying(home) as trainer:
        trainer.await_left(OPEN)
        trainer.await_sealed("ended first")
        trainer.say("finish")
        assert not list(trainer.root.glob("*/left_open"))

    drain(trainer.root, gateway)

    assert not statements(gateway)
    assert names(gateway) == dict.fromkeys(OPEN | ENDED, 1)


def test_where_the_batches_that_would_tell_are_gone_nothing_is_said(root: Path) -> None:
    (folder,) = spools(root)
    before = SpoolReader(folder)
    left = before.left_open()
    assert left is not None
    assert left_rows(before) is not None
    before.note_standing(left.seq + 1, left.seq + 1)
    before.close()
    for segment in folder.glob("*.seg"):
        segment.unlink()
    reader = SpoolReader(folder)

    assert left_rows(reader) is None
    reader.close()
