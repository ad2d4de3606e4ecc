"""`offline_dir`: what could not be sent stays there, and `run.replay_offline()` brings it, each batch once."""

from pathlib import Path

import httpx
import pytest

import rankscope
from rankscope._replay import _missing  # pyright: ignore[reportPrivateUsage]  # what is asked between two moments
from rankscope.errors import ConfigError
from rankscope.spool import SpoolHead, spools
from tests.agent.programs import run_file, run_program
from tests.agent.spooled import batches_in, rows_in
from tests.ground.processes import free_port
from tests.ground.stacks import Stack

RECORD = """
import os
import rankscope
run = rankscope.init("offline", run_id="{run}", quiet=True)
for index in range(50):
    with run.trace(f"t{{index}}", kind="rollout", step=index):
        run.log_metric("loss", index)
"""

REPLAY = """
done, again = run.replay_offline(patience=60), run.replay_offline(patience=60)
print(done.left, len(done.faults), done.sent > 0)
print(again.left, len(again.faults), again.sent < done.sent)  # a heartbeat may have come meanwhile
"""

NOWHERE = "127.0.0.1:1"


def run_offline(source: str, stack: Stack, folder: Path, **environ: str) -> str:
    ended = run_program(source, stack.home, RANKSCOPE_OFFLINE_DIR=str(folder), **environ)
    assert ended.code == 0, ended.err
    return ended.out


def stored(stack: Stack, run: str) -> dict[str, int]:
    """Rows of a run in the store by section, all of which must be there, and no row twice."""
    found = stack.get(f"/runs/{run}/completeness?project=offline")
    assert found["complete"], found
    return {section["section"]: section["stored"] for section in found["sections"]}


@pytest.mark.parametrize("mode", ["spool", "async", "sync"])
def test_what_could_not_be_sent_is_replayed_by_the_next_process_once(stack: Stack, tmp_path: Path, mode: str) -> None:
    first, second = f"{mode}-dead", f"{mode}-next"
    dead = RECORD.format(run=first) + "run.hurry()\nprint(run.flush())\nrun.finish()\n"
    said = run_offline(dead, stack, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE, RANKSCOPE_UPLOAD_MODE=mode)
    assert said.split() == [str(mode != "sync")]
    assert len(rows_in(tmp_path, "spans")) == 50

    said = run_offline(
        RECORD.format(run=second) + REPLAY,
        stack,
        tmp_path,
        RANKSCOPE_ENDPOINT=stack.gateway,
        RANKSCOPE_UPLOAD_MODE=mode,
    )

    assert said.split("\n")[:2] == ["0 0 True", "0 0 True"]
    assert (stored(stack, first)["spans"], stored(stack, first)["scalars"]) == (50, 50)
    assert stack.get(f"/runs/{second}/traces?project=offline&limit=100")["total"] == 50
    assert {SpoolHead.read(folder).run_id for folder in spools(tmp_path)} <= {second}


def test_a_replay_that_finds_nobody_says_what_is_left_and_why_and_raises_nothing(stack: Stack, tmp_path: Path) -> None:
    source = """
done = run.replay_offline(patience=1)
print(done.sent, done.left > 0, done.faults)
run.hurry()
"""

    said = run_offline(RECORD.format(run="left") + source, stack, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE)

    assert said.startswith("0 True (")
    assert NOWHERE in said
    assert len(rows_in(tmp_path, "spans")) == 50


def test_a_replay_ends_though_another_process_and_another_thread_go_on_recording(stack: Stack, tmp_path: Path) -> None:
    source = """
import itertools, subprocess, sys, threading
def record(run):
    for index in itertools.count():
        run.log_metric("a", index)
        run.flush()
if len(sys.argv) == 1:
    other = subprocess.Popen([sys.executable, __file__, "other"], stdout=subprocess.PIPE)
    other.stdout.readline()
    threading.Thread(target=record, args=(run,), daemon=True).start()
    print(run.replay_offline(patience=60).left)
    sys.stdout.flush()
    other.kill()
    other.wait()
    os._exit(0)
print("ready", flush=True)
record(run)
"""
    program = tmp_path / "train.py"
    program.write_text(RECORD.format(run="busy") + source)
    folder = tmp_path / "kept"

    ended = run_file(
        program,
        stack.home,
        RANKSCOPE_OFFLINE_DIR=str(folder),
        RANKSCOPE_ENDPOINT=stack.gateway,
        RANKSCOPE_UPLOAD_MODE="spool",
    )

    assert (ended.code, ended.out.split()) == (0, ["0"]), ended.err


def test_what_is_replayed_behind_finish_is_the_run_s_own_too(stack: Stack, tmp_path: Path) -> None:
    said = run_offline(
        RECORD.format(run="behind") + "run.finish()\n" + REPLAY,
        stack,
        tmp_path,
        RANKSCOPE_ENDPOINT=stack.gateway,
        RANKSCOPE_UPLOAD_MODE="spool",
    )

    assert said.split("\n")[:2] == ["0 0 True", "0 0 True"]
    assert stored(stack, "behind")["spans"] == 50
    assert not spools(tmp_path)


def test_a_process_killed_in_a_replay_leaves_nothing_twice_and_nothing_out(stack: Stack, tmp_path: Path) -> None:
    for name in ("killed-a", "killed-b"):
        source = RECORD.format(run=name) + "run.finish()\n"
        run_offline(source, stack, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE, RANKSCOPE_UPLOAD_MODE="spool")
    killed = RECORD.format(run="killed-c") + "import threading\nthreading.Timer(0.2, lambda: os._exit(0)).start()\n"

    run_offline(killed + REPLAY, stack, tmp_path, RANKSCOPE_ENDPOINT=stack.gateway, RANKSCOPE_UPLOAD_MODE="spool")
    run_offline(
        RECORD.format(run="killed-d") + REPLAY,
        stack,
        tmp_path,
        RANKSCOPE_ENDPOINT=stack.gateway,
        RANKSCOPE_UPLOAD_MODE="spool",
    )

    for name in ("killed-a", "killed-b"):
        assert stored(stack, name)["spans"] == 50


def test_without_a_folder_there_is_nothing_to_replay(quiet: None) -> None:
    with rankscope.init("p", run_id="r", upload_mode="spool") as run, pytest.raises(ConfigError, match="offline_dir"):
        run.replay_offline()


def test_a_folder_that_can_hold_nothing_is_refused_by_its_name(
    quiet: None,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="offline_dir can hold nothing"):
        rankscope.init("p", run_id="r", offline_dir=tmp_path / "file" / "kept")


def test_the_folder_itself_is_where_the_spools_lie_and_the_node_s_agent_has_no_part_in_it(
    stack: Stack, tmp_path: Path
) -> None:
    run_offline(RECORD.format(run="where"), stack, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE, RANKSCOPE_UPLOAD_MODE="async")

    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name for folder in spools(tmp_path)]
    assert batches_in(tmp_path)[-1].header.run_id == "where"


def test_a_run_knows_where_it_is_shown_and_waits_for_the_store_by_itself(stack: Stack) -> None:
    source = """
import os
import rankscope
run = rankscope.init("shown", quiet=True)
run.log_metric("loss", 1)
rankscope.wait(timeout=60)
print(run.url)
run.finish()
rankscope.wait(run.id)
rankscope.wait("never heard of", timeout=0)
"""

    ended = run_program(source, stack.home)

    assert ended.code == 0, ended.err
    url = ended.out.strip()
    assert url.startswith(f"{stack.query}/api/v1/runs/")
    assert httpx.get(url, timeout=30).status_code == 200


def test_where_a_run_is_shown_is_not_known_of_a_gateway_elsewhere(stack: Stack) -> None:
    source = """
import rankscope
run = rankscope.init("shown", agent="none", quiet=True)
print([run.url])
"""

    elsewhere = run_program(source, stack.home, RANKSCOPE_ENDPOINT=f"127.0.0.1:{free_port()}")
    told = run_program(source, stack.home, RANKSCOPE_URL="https://rank.example/", RANKSCOPE_RUN_ID="a b")

    assert elsewhere.out.strip() == "['']"
    assert told.out.strip() == "['https://rank.example/api/v1/runs/a%20b?project=shown']"


def test_a_wait_for_the_store_that_takes_too_long_says_what_is_missing_and_where_it_lies(tmp_path: Path) -> None:
    source = """
import rankscope
from rankscope import errors
try:
    rankscope.wait()
except errors.ConfigError as error:
    print(error)
run = rankscope.init("p", run_id="r", agent="none", quiet=True)
try:
    rankscope.wait(timeout=0.2)
except errors.Unavailable as error:
    print(error)
"""

    ended = run_program(source, tmp_path)

    first, second = ended.out.splitlines()
    assert "call rankscope.init() first" in first
    assert "1 batches of run r are not in the store yet" in second
    assert str(tmp_path / "spool") in second


def test_a_spool_that_was_removed_meanwhile_is_not_left_and_one_that_cannot_be_read_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, unreadable = tmp_path / "removed", tmp_path / "unreadable"
    unreadable.mkdir()
    (unreadable / "spool.json").write_text("{")

    def were_there(root: Path) -> list[Path]:
        assert root == tmp_path
        return [removed, unreadable]

    monkeypatch.setattr("rankscope._replay.spools", were_there)

    assert _missing(tmp_path, tmp_path / "own") == {unreadable: 1}
