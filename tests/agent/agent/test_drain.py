"""`drain`, `run` and `wait`: what lies in folders goes when somebody says so, and is waited for."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rankscope.spool import spools, stage_out
from tests.agent.agent.agents import AgentProcess
from tests.agent.agent.spools import Trainer
from tests.agent.disks import small_disk
from tests.agent.gateways import ScriptedGateway, refuse
from tests.ground.processes import ROOT, Children, python, wait_until
from tests.ground.stacks import clean_environ


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "home" / "spool"


def call(
    tmp_path: Path, *arguments: str | Path, timeout_s: float = 90, **more: str
) -> "subprocess.CompletedProcess[str]":
    environ = clean_environ(RANKSCOPE_HOME=str(tmp_path / "home"), **more)
    return subprocess.run(
        list(map(str, python("rankscope", *arguments))),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        env=environ,
        check=False,
    )


def told(done: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(done.stdout)


def left_trainer(root: Path, *, run_id: str = "r", endpoint: str = "") -> Trainer:
    """What a trainer left that is gone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    trainer = Trainer(root, run_id=run_id, pid=gone.pid, endpoint=endpoint)
    trainer.append(3, is_last=True)
    trainer.end()
    return trainer


def test_a_folder_is_drained_and_draining_it_again_finds_nothing(
    gateway: ScriptedGateway, root: Path, tmp_path: Path
) -> None:
    left_trainer(root)

    first = call(tmp_path, "drain", root, "--endpoint", gateway.endpoint, "--json")
    second = call(tmp_path, "drain", root, "--endpoint", gateway.endpoint, "--json")

    assert (first.returncode, told(first)) == (0, {"removed": 1, "left": [], "faults": []})
    assert (second.returncode, told(second)) == (0, {"removed": 0, "left": [], "faults": []})
    assert [one.seq for one in gateway.accepted] == [0, 1, 2]


def test_a_staged_copy_and_its_original_are_one_delivery(gateway: ScriptedGateway, root: Path, tmp_path: Path) -> None:
    trainer = left_trainer(root)
    shared, copied = tmp_path / "shared", tmp_path / "copied"
    stage_out(root, shared)
    shutil.copytree(shared, copied)

    for folder in (shared, root, copied):
        done = call(tmp_path, "drain", folder, "--endpoint", gateway.endpoint, "--json")
        assert (done.returncode, told(done)["removed"]) == (0, 1), folder

    assert [one.payload for one in gateway.accepted] == [batch.payload for batch in trainer.batches]
    assert all(one.again for one in gateway.accepted)


def test_a_key_that_is_denied_leaves_the_data_and_says_so(gateway: ScriptedGateway, root: Path, tmp_path: Path) -> None:
    gateway.answers.extend([refuse(grpc.StatusCode.PERMISSION_DENIED, "no such project")] * 9)
    left_trainer(root)

    done = call(
        tmp_path, "drain", "--endpoint", gateway.endpoint, "--patience", "1", "--json", RANKSCOPE_KEY="rsk_wrong"
    )

    assert done.returncode == 1
    assert told(done)["left"][0]["batches"] == 3
    assert "PERMISSION_DENIED" in told(done)["faults"][0]
    assert "rsk_wrong" not in done.stdout + done.stderr
    assert len(spools(root)) == 1


def test_the_key_of_who_drains_goes_with_all_that_was_recorded_without_one(
    gateway: ScriptedGateway, root: Path, tmp_path: Path
) -> None:
    left_trainer(root, endpoint=gateway.endpoint)
    stage_out(root, tmp_path / "shared")

    done = call(tmp_path, "drain", tmp_path / "shared", RANKSCOPE_KEY="rsk_mine")

    assert done.returncode == 0, done.stderr
    assert gateway.keys == ["Bearer rsk_mine"]


def test_a_spool_that_cannot_be_read_is_left_and_named(gateway: ScriptedGateway, root: Path, tmp_path: Path) -> None:
    trainer = left_trainer(root)
    (trainer.folder / "spool.json").write_text("{")
    for segment in trainer.folder.glob("*.seg"):
        segment.write_bytes(b"\0" * 4096)

    drained = call(tmp_path, "drain", "--endpoint", gateway.endpoint, "--patience", "0.5")
    waited = call(tmp_path, "wait", "r", "--timeout", "0.2")

    assert (drained.returncode, waited.returncode) == (1, 1)
    assert str(trainer.folder) in drained.stdout


def test_spools_that_cannot_be_written_beside_are_left_with_what_to_do(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", mebibytes=16) as disk:
        trainer = left_trainer(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

        done = call(tmp_path, "drain", disk, "--endpoint", gateway.endpoint, "--patience", "0.5", "--json")

    assert done.returncode == 1
    assert told(done)["left"][0]["batches"] == 3
    (fault,) = told(done)["faults"]
    assert str(trainer.folder) in fault
    assert "copy its folder to a disk that can be written" in fault


def test_where_no_gateway_is_known_it_says_how_to_name_one(root: Path, tmp_path: Path) -> None:
    left_trainer(root)

    done = call(tmp_path, "drain", "--patience", "0.5")

    assert done.returncode == 1
    assert "RANKSCOPE_ENDPOINT" in done.stderr


def test_a_folder_that_is_none_is_a_wrong_call(root: Path, tmp_path: Path) -> None:
    trainer = left_trainer(root)

    absent = call(tmp_path, "drain", tmp_path / "absent")
    single = call(tmp_path, "drain", trainer.folder)

    assert (absent.returncode, single.returncode) == (2, 2)
    assert str(trainer.folder.parent) in single.stderr


def test_what_an_agent_sends_is_left_to_it_and_waited_for(
    gateway: ScriptedGateway, children: Children, root: Path, tmp_path: Path
) -> None:
    gateway.durable_below = 0
    left_trainer(root)
    AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()
    wait_until(lambda: len(gateway.accepted) == 3, what="be accepted")

    done = call(tmp_path, "drain", "--endpoint", gateway.endpoint, "--patience", "1", "--json")

    assert done.returncode == 1
    assert "is held by process" in told(done)["faults"][0]


def test_wait_ends_when_the_store_has_the_run_and_says_what_is_left_where_it_has_not(
    gateway: ScriptedGateway, children: Children, root: Path, tmp_path: Path
) -> None:
    left_trainer(root, run_id="other")
    left_trainer(root, run_id="mine")

    early = call(tmp_path, "wait", "mine", "--timeout", "0.2", "--json")
    AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()
    late = call(tmp_path, "wait", "mine", "--json")

    assert early.returncode == 1
    assert [one["run_id"] for one in told(early)["left"]] == ["mine"]
    assert (late.returncode, told(late)) == (0, {"run": "mine", "left": []})


RECORDING = """
import rankscope, sys
run = rankscope.init("p")
run.log_metric("loss", 1.0)
run.finish()
sys.exit(7)
"""


def test_a_run_without_a_name_cannot_be_waited_for(root: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "wait", "")

    assert done.returncode == 2
    assert "a run's id is not empty" in done.stderr


def test_of_a_folder_without_spools_drain_says_so(root: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "drain", str(tmp_path))

    assert done.returncode == 0
    assert done.stdout == f"no spool lies in {tmp_path}\n"


def test_run_keeps_the_exit_status_and_delivers_what_was_recorded(
    gateway: ScriptedGateway, root: Path, tmp_path: Path
) -> None:
    done = call(
        tmp_path, "run", "--run-id", "mine", "--endpoint", gateway.endpoint, "--", sys.executable, "-c", RECORDING
    )

    assert done.returncode == 7, done.stderr
    wait_until(lambda: not spools(root), what="be removed by the agent")
    assert b"mine" in gateway.accepted[0].payload
    end_agent(root)


def test_run_passes_signals_on(children: Children, root: Path, gateway: ScriptedGateway, tmp_path: Path) -> None:
    program = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); print('up', flush=True); "
    command = python(
        "rankscope", "run", "--endpoint", gateway.endpoint, "--", sys.executable, "-c", program + "signal.pause()"
    )
    runner = children.start(command, name="run", environ=clean_environ(RANKSCOPE_HOME=str(tmp_path / "home")))
    runner.await_that(lambda: "up" in runner.output(), what="start its command")

    runner.signal(signal.SIGTERM)

    assert runner.wait() == 9
    end_agent(root)


def test_a_command_that_a_signal_ended_is_told_as_shells_tell_it(
    root: Path, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    kill_itself = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    done = call(tmp_path, "run", "--endpoint", gateway.endpoint, "--", sys.executable, "-c", kill_itself)

    assert done.returncode == 128 + signal.SIGKILL
    end_agent(root)


def test_a_program_that_is_not_there_is_a_wrong_call(root: Path, gateway: ScriptedGateway, tmp_path: Path) -> None:
    done = call(tmp_path, "run", "--endpoint", gateway.endpoint, "--", "no-such-program-anywhere")

    assert done.returncode == 2
    assert "no-such-program-anywhere" in done.stderr
    end_agent(root)


def end_agent(root: Path) -> None:
    """Ends the agent that a command started for its ranks."""
    try:
        pid = int(json.loads((root / "agent.json").read_text())["pid"])
    except (OSError, ValueError):
        return
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not (root / "agent.json").exists(), what="end the agent")
