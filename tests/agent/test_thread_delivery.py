"""Where a site forbids helper processes: a thread of the training sends."""

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rankscope.spool import spools
from rankscope.testing import rows_of
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import AgentStatus, Command
from tests.agent.gateways import ScriptedGateway
from tests.agent.programs import run_file, run_program
from tests.agent.spooled import rows_in
from tests.agent.test_init import STEP

DURABLE = STEP + 'run.finish(wait="durable", timeout=60)\n'


class DenyingGateway(ScriptedGateway):
    """Knows nobody's key."""

    def Attach(self, request_iterator: Iterator[AgentStatus], context: grpc.ServicerContext) -> Iterator[Command]:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "this key is unknown")


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


def batches_of(gateway: ScriptedGateway) -> list[Batch]:
    return [Batch.FromString(sealed.payload) for sealed in gateway.accepted]


def rows(gateway: ScriptedGateway, section: str) -> list[dict[str, object]]:
    return [row for batch in batches_of(gateway) for row in rows_of(batch, section)]


def test_all_of_a_run_arrives_and_nothing_is_left_behind(gateway: ScriptedGateway, tmp_path: Path) -> None:
    ended = run_program(DURABLE, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_AGENT="thread")

    assert ended.code == 0, ended.err
    assert ended.said[0] == f"rankscope: run r (project chars, 1 rank) is recorded at {gateway.endpoint}"
    assert [row["name"] for row in rows(gateway, "spans")] == ["step"]
    assert rows(gateway, "events")[-1]["kind"] == "end_of_stream"
    assert list(spools(tmp_path / "spool")) == []


def test_a_gateway_that_is_not_there_holds_nothing_up_and_the_spool_keeps_all(tmp_path: Path) -> None:
    gone = ScriptedGateway()
    gone.stop()

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gone.endpoint, RANKSCOPE_AGENT="thread")

    assert ended.code == 0
    assert "tried again" in ended.said[0]
    assert ended.said[1].endswith("5 rows spooled, 0 dropped, 0 not spooled")
    assert rows_in(tmp_path / "spool", "spans")


def test_a_refused_key_is_asked_about_and_the_endpoint_is_not(tmp_path: Path) -> None:
    denying = DenyingGateway()

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=denying.endpoint, RANKSCOPE_AGENT="thread")

    denying.stop()
    assert "is RANKSCOPE_KEY right? Training goes on" in ended.said[0]
    assert "is it running" not in ended.said[0]


def test_a_handshake_that_fails_is_said_by_us_and_not_by_grpc_once_a_second(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=f"https://{gateway.endpoint}", RANKSCOPE_AGENT="thread")

    assert "tried again" in ended.said[0]
    assert "ssl_transport_security" not in ended.err


def test_a_frozen_gateway_holds_the_end_up_no_longer(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.frozen.set()

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_AGENT="thread")

    assert ended.code == 0
    assert rows_in(tmp_path / "spool", "events")[-1]["kind"] == "end_of_stream"


def test_what_is_not_durable_in_time_is_said_and_kept(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.lags.set()
    source = STEP + 'run.finish(wait="durable", timeout=1.0)\n'

    ended = run_program(source, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_AGENT="thread")

    assert ended.code == 1
    assert "Unavailable: the store does not have all of run r yet; the data is safe in" in ended.err
    assert rows_in(tmp_path / "spool", "spans")


def test_a_rank_held_by_a_living_process_is_refused(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.holders[0] = AgentStatus(incarnation=b"h" * 16, node="n7", pid=os.getpid(), boot_id="x")

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_AGENT="thread")

    assert ended.code == 1
    assert f"rank 0 of run r is held by process {os.getpid()} on n7" in ended.err


def test_a_child_forked_from_a_process_that_used_grpc_sends_nothing_and_says_so(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    source = """
    import os
    child = os.fork()
    if child == 0:
        own = rankscope.init(run_id="own")
        own.log_metric("child", 1)
        rankscope.finish()
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    run.finish(wait="durable")
    """

    ended = run_program(
        STEP + source.replace("\n    ", "\n"), tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_AGENT="thread"
    )

    assert ended.code == 0, ended.err
    assert any("forked from one that had used gRPC" in line for line in ended.said)
    assert [row["name"] for row in rows(gateway, "scalars")] == ["loss"]
    assert [row["name"] for row in rows_in(tmp_path / "spool", "scalars")] == ["child"]


WORKERS = """
import multiprocessing
import rankscope

def work(carrier):
    run = rankscope.init(carrier=carrier, quiet=True)
    with run.start_span("in a worker"):
        pass
    run.flush()

if __name__ == "__main__":
    run = rankscope.init("chars", run_id="r", upload_mode="{mode}", agent="thread")
    with run.trace("batch") as batch:
        worker = multiprocessing.get_context("{start}").Process(target=work, args=(batch.context(),))
        worker.start()
        worker.join()
        assert worker.exitcode == 0, worker.exitcode
    rankscope.wait(timeout=60)
    run.finish(wait="durable", timeout=60)
"""


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_what_a_worker_of_a_rank_records_is_sent_too(
    gateway: ScriptedGateway, tmp_path: Path, start: str, mode: str
) -> None:
    program = tmp_path / "train.py"
    program.write_text(WORKERS.format(start=start, mode=mode))

    ended = run_file(program, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint)

    assert ended.code == 0, ended.err
    names = [str(row["name"]) for row in rows(gateway, "spans")]
    assert sorted(names) == ["batch", "in a worker"], ended.err
