"""`init` in a process of its own: where data goes, what is refused, what a second call does."""

import os
from pathlib import Path

import pytest

import rankscope
from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope.errors import ConfigError
from rankscope.spool import SpoolHead, spools
from rankscope_proto.names import RunStatus
from tests.agent.programs import run_program
from tests.agent.spooled import batches_in, is_ended, rows_in

STEP = """
import rankscope
run = rankscope.init("chars", "try", run_id="r", config={"lr": 1}, tags=["a"])
with run.step(0):
    run.log_metric("loss", 1)
"""

NOWHERE = "127.0.0.1:1"


def test_a_run_says_where_it_goes_and_what_went_and_needs_no_finish(tmp_path: Path) -> None:
    root = tmp_path / "spool"

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE, RANKSCOPE_AGENT="none")

    assert (ended.code, ended.said) == (
        0,
        [
            f"rankscope: run r (project chars, 1 rank) is kept in {root}: send it with `rankscope drain {root}`",
            "rankscope: run r, rank 0: 5 rows spooled, 0 dropped, 0 not spooled",
        ],
    )
    header = batches_in(root)[-1].header
    assert (header.project, header.run_id, header.rank, header.world_size) == ("chars", "r", 0, 1)
    assert [row["name"] for row in rows_in(root, "spans")] == ["step"]
    last = rows_in(root, "run_info")[-1]
    assert (last["status"], last["name"], last["config"], last["tags"]) == (
        RunStatus.FINISHED.code,
        "try",
        '{"lr": 1}',
        ["a"],
    )
    (folder,) = spools(root)
    assert is_ended(folder)
    assert SpoolHead.read(folder).endpoints == (NOWHERE,)


def test_a_local_server_is_found_by_its_file_and_looked_up_anew_by_whoever_sends(tmp_path: Path) -> None:
    _discovery.write(tmp_path, Discovery(NOWHERE, "http://127.0.0.1:1", os.getpid(), "ab", "0"))

    ended = run_program(STEP, tmp_path, RANKSCOPE_AGENT="none")

    assert "no server" not in ended.said[0]
    (folder,) = spools(tmp_path / "spool")
    assert SpoolHead.read(folder).endpoints == ()


def test_with_nowhere_to_go_it_records_and_says_how_to_send_it(tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path)

    assert ended.code == 0
    line, end = ended.said
    assert f"is kept in {tmp_path / 'spool'}" in line
    for way in ("rankscope up", f"rankscope drain {tmp_path / 'spool'}", "RANKSCOPE_ENDPOINT"):
        assert way in line
    assert "5 rows spooled" in end
    assert rows_in(tmp_path / "spool", "spans")


@pytest.mark.parametrize("agent", ["process", "none"])
def test_neither_grpc_nor_torch_is_loaded_into_the_training(tmp_path: Path, agent: str) -> None:
    source = STEP + "run.finish()\nimport sys\nprint(sorted({'torch', 'grpc'} & set(sys.modules)))\n"
    endpoint = {} if agent == "process" else {"RANKSCOPE_ENDPOINT": NOWHERE}

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT=agent, **endpoint)

    assert ended.out.strip() == "[]", ended.err


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        ("raise ValueError('no')", 1, RunStatus.FAILED),
        ("raise KeyboardInterrupt", -2, RunStatus.INTERRUPTED),
        ("import sys; sys.exit(7)", 7, RunStatus.FINISHED),
        ("run.finish(); run.finish(); import sys; sys.exit(3)", 3, RunStatus.FINISHED),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, RunStatus.INTERRUPTED),
    ],
)
def test_the_exit_code_is_the_programs_own_and_the_run_says_how_it_ended(
    tmp_path: Path, end: str, code: int, status: RunStatus
) -> None:
    ended = run_program(f"{STEP}\n{end}\n", tmp_path, RANKSCOPE_AGENT="none", RANKSCOPE_QUIET="1")

    assert ended.code == code
    assert not ended.said
    root = tmp_path / "spool"
    assert rows_in(root, "run_info")[-1]["status"] == status.code
    assert rows_in(root, "events")[-1]["kind"] == "end_of_stream"
    assert is_ended(spools(root)[0])


def test_disabled_it_records_nothing(tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE, RANKSCOPE_UPLOAD_MODE="disabled")

    assert "RANKSCOPE_UPLOAD_MODE is disabled" in ended.said[0]
    assert list(tmp_path.iterdir()) == []


def test_other_ranks_say_nothing(tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_AGENT="none", RANKSCOPE_RANK="1", RANKSCOPE_WORLD_SIZE="2")

    assert (ended.code, ended.said) == (0, [])
    assert batches_in(tmp_path / "spool")[-1].header.rank == 1


def test_a_spool_where_none_can_be_is_refused_if_somebody_named_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    ended = run_program(STEP, tmp_path, RANKSCOPE_SPOOL=str(tmp_path / "file" / "spool"))

    assert ended.code == 1
    assert "ConfigError" in ended.err
    assert "RANKSCOPE_SPOOL" in ended.err


def test_a_data_folder_that_can_hold_no_spool_makes_way_for_the_temporary_one(tmp_path: Path) -> None:
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    (tmp_path / "spool").write_text("in the way")

    ended = run_program(STEP, tmp_path, TMPDIR=str(elsewhere))

    root = elsewhere / f"rankscope-{os.getuid()}" / "spool"
    assert ended.code == 0
    assert f"Until then batches lie in {root}" in ended.said[0]
    assert rows_in(root, "spans")


def test_a_key_does_not_leave_for_another_machine_in_plaintext(tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT="gateway.example:1", RANKSCOPE_KEY="rsk_secret")

    assert ended.code == 1
    assert "write https://gateway.example:1, or set RANKSCOPE_INSECURE=1" in ended.err
    assert "rsk_secret" not in ended.err


def test_a_key_lies_beside_the_batches_for_whoever_sends_them_and_nowhere_else(tmp_path: Path) -> None:
    run_program(STEP, tmp_path, RANKSCOPE_KEY="rsk_secret", RANKSCOPE_AGENT="none")

    holding = [path for path in tmp_path.rglob("*") if path.is_file() and b"rsk_secret" in path.read_bytes()]
    assert [path.name for path in holding] == ["key"]
    assert holding[0].stat().st_mode & 0o777 == 0o600


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
