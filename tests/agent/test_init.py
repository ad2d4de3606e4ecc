"""`init` in a process of its own: where data goes, what is refused, what a second call does."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankscope
from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope.errors import ConfigError
from rankscope.testing import rows_of
from rankscope_proto.names import RunStatus
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import AgentStatus
from tests.agent.gateways import ScriptedGateway
from tests.agent.programs import run_program

STEP = """
import rankscope
run = rankscope.init("chars", "try", run_id="r", config={"lr": 1}, tags=["a"])
with run.step(0):
    run.log_metric("loss", 1)
"""

PATIENT = STEP + "run.finish(timeout_s=3_600)\n"
"""Ends within the program's bound only if a wait without progress is given up."""


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("RANKSCOPE_", "TORCHELASTIC_", "SLURM_")) or name in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))
    monkeypatch.setenv("RANKSCOPE_QUIET", "1")


def batches_of(gateway: ScriptedGateway) -> list[Batch]:
    return [Batch.FromString(sealed.payload) for sealed in gateway.accepted]


def rows(gateway: ScriptedGateway, section: str) -> list[dict[str, object]]:
    return [row for batch in batches_of(gateway) for row in rows_of(batch, section)]


def test_a_run_says_where_it_goes_and_what_went_and_needs_no_finish(gateway: ScriptedGateway, tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint)

    assert ended.code == 0
    assert ended.said == [
        f"rankscope: run r (project chars, 1 rank) is recorded at {gateway.endpoint}",
        "rankscope: run r, rank 0: 5 rows sent, 0 dropped, 0 not sent",
    ]
    header = batches_of(gateway)[-1].header
    assert (header.project, header.run_id, header.rank, header.world_size) == ("chars", "r", 0, 1)
    assert [row["name"] for row in rows(gateway, "spans")] == ["step"]
    last = rows(gateway, "run_info")[-1]
    assert (last["status"], last["name"], last["config"], last["tags"]) == (
        RunStatus.FINISHED.code,
        "try",
        '{"lr": 1}',
        ["a"],
    )


def test_a_local_server_is_found_by_its_file(gateway: ScriptedGateway, tmp_path: Path) -> None:
    _discovery.write(tmp_path, Discovery(gateway.endpoint, "http://127.0.0.1:1", os.getpid(), "ab", "0"))

    ended = run_program(STEP, tmp_path)

    assert gateway.endpoint in ended.said[0]
    assert rows(gateway, "spans")


def test_with_nowhere_to_go_it_says_so_and_how_to_change_that(tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path)

    assert ended.code == 0
    (line,) = ended.said
    assert line.startswith("rankscope: nothing is recorded")
    assert "rankscope up" in line
    assert "RANKSCOPE_ENDPOINT" in line


def test_without_a_server_neither_torch_nor_grpc_is_loaded(tmp_path: Path) -> None:
    source = STEP + "import sys\nprint(sorted({'torch', 'grpc', 'lark'} & set(sys.modules)))\n"

    assert run_program(source, tmp_path).out.strip() in {"[]", "['lark']"}


def test_a_gateway_that_is_not_there_holds_nothing_up(tmp_path: Path) -> None:
    gone = ScriptedGateway()
    gone.stop()

    ended = run_program(PATIENT, tmp_path, RANKSCOPE_ENDPOINT=gone.endpoint)

    assert ended.code == 0
    assert "tried again" in ended.said[0]
    assert ended.said[1].endswith("0 rows sent, 0 dropped, 5 not sent")


def test_a_frozen_gateway_holds_the_end_up_no_longer(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.frozen.set()

    ended = run_program(PATIENT, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint)

    assert ended.said[1].endswith("5 not sent")


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        ("raise ValueError('no')", 1, RunStatus.FAILED),
        ("raise KeyboardInterrupt", -2, RunStatus.INTERRUPTED),
        ("import sys; sys.exit(7)", 7, RunStatus.FINISHED),
        ("run.finish(); run.finish(); import sys; sys.exit(3)", 3, RunStatus.FINISHED),
    ],
)
def test_the_exit_code_is_the_programs_own_and_the_run_says_how_it_ended(
    gateway: ScriptedGateway, tmp_path: Path, end: str, code: int, status: RunStatus
) -> None:
    ended = run_program(f"{STEP}\n{end}\n", tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_QUIET="1")

    assert ended.code == code
    assert not ended.said
    assert rows(gateway, "run_info")[-1]["status"] == status.code
    assert rows(gateway, "events")[-1]["kind"] == "end_of_stream"


def test_disabled_it_records_nothing(gateway: ScriptedGateway, tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_MODE="disabled")

    assert "RANKSCOPE_MODE is disabled" in ended.said[0]
    assert not gateway.arrived


def test_other_ranks_say_nothing(gateway: ScriptedGateway, tmp_path: Path) -> None:
    ended = run_program(
        STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint, RANKSCOPE_RANK="1", RANKSCOPE_WORLD_SIZE="2"
    )

    assert (ended.code, ended.said) == (0, [])
    assert batches_of(gateway)[-1].header.rank == 1


def test_a_rank_held_by_a_living_process_is_refused(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.holders[0] = AgentStatus(incarnation=b"h" * 16, node="n7", pid=os.getpid(), boot_id="x")

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint)

    assert ended.code == 1
    assert f"rank 0 of run r is held by process {os.getpid()} on n7" in ended.err


def test_forked_children_record_nothing_and_end_as_they_want(gateway: ScriptedGateway, tmp_path: Path) -> None:
    source = """
    import os, sys
    for _ in range(5):
        child = os.fork()
        if child == 0:
            with run.span("child"):
                run.log_metric("child", 1)
            rankscope.current_run().log_metric("child", 1)
            assert (rankscope.init() is run, rankscope.init().is_recording) == (False, False)
            rankscope.finish()
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    with run.step(1):
        pass
    """

    ended = run_program(STEP + source.replace("\n    ", "\n"), tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint)

    assert ended.code == 0, ended.err
    assert sum("forked from one that had used gRPC" in line for line in ended.said) == 5
    assert [row["name"] for row in rows(gateway, "spans")] == ["step", "step"]
    assert [row["name"] for row in rows(gateway, "scalars")] == ["loss"]
    assert len({sealed.incarnation for sealed in gateway.accepted}) == 1


def test_a_child_forked_from_a_run_that_records_nowhere_makes_its_own(gateway: ScriptedGateway, tmp_path: Path) -> None:
    source = f"""
    import os
    import rankscope
    run = rankscope.init("chars", mode="disabled")
    child = os.fork()
    if child == 0:
        own = rankscope.init("chars", run_id="own", endpoint="{gateway.endpoint}")
        own.log_metric("child", 1)
        rankscope.finish()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rankscope.current_run() is run
    """

    ended = run_program(source, tmp_path)

    assert ended.code == 0, ended.err
    assert [row["name"] for row in rows(gateway, "scalars")] == ["child"]
    assert batches_of(gateway)[-1].header.run_id == "own"


def test_a_second_init_is_the_same_run_or_an_error_that_says_what_to_do(quiet: None) -> None:
    run = rankscope.init("p", run_id="r")
    try:
        assert rankscope.init() is rankscope.init("p") is rankscope.init(run_id="r") is rankscope.current_run() is run
        with pytest.raises(ConfigError, match=r"run 'r' and was asked for run 'other': finish\(\) the run 'r' first"):
            rankscope.init(run_id="other")
        with pytest.raises(ConfigError, match="project 'p' and was asked for project 'q'"):
            rankscope.init("q")
    finally:
        rankscope.finish()

    with pytest.raises(ConfigError, match=r"call rankscope\.init\(\) first"):
        rankscope.current_run()
    other = rankscope.init("q")
    assert other is not run
    other.finish()
    rankscope.finish()


def test_a_rank_outside_the_world_is_an_error_before_anything_else(quiet: None) -> None:
    with pytest.raises(ConfigError, match="rank 4 of a world of 4"):
        rankscope.init(rank=4, world_size=4, endpoint="127.0.0.1:1")
