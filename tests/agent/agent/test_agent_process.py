"""The agent as a process: one a root, there as long as it is needed, whatever ends it loses nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rankscope.spool import spools
from rankscope_proto.v1.ingest_pb2 import AgentStatus
from tests.agent.agent.agents import AgentProcess, attach_request, next_line, said
from tests.agent.agent.spools import Trainer
from tests.agent.gateways import ScriptedGateway, refuse
from tests.ground.processes import Children, alive, wait_until


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def agent(children: Children, root: Path, gateway: ScriptedGateway) -> AgentProcess:
    return AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_it_sends_what_every_rank_of_the_node_spools(agent: AgentProcess, root: Path, gateway: ScriptedGateway) -> None:
    trainers = [Trainer(root, rank=rank) for rank in range(8)]
    for trainer in trainers:
        trainer.append(5)

    wait_until(lambda: all(trainer.writer.durable == 5 for trainer in trainers), what="be durable")

    assert len(gateway.accepted) == 40
    report = agent.status()
    assert (len(report["spools"]), report["backlog_bytes"]) == (8, 0)
    assert {spool["endpoint"] for spool in report["spools"]} == {gateway.endpoint}
    assert resident_mib(agent.child.pid) < 150
    for trainer in trainers:
        trainer.end()
    wait_until(lambda: not spools(root), what="remove them and what was stated of them")


def test_a_second_agent_of_a_root_says_who_is_there(
    agent: AgentProcess, children: Children, root: Path, gateway: ScriptedGateway
) -> None:
    refused = AgentProcess(children, root, endpoint=gateway.endpoint, name="second")
    content = AgentProcess(children, root, endpoint=gateway.endpoint, options=["--exit-when-idle"], name="third")

    assert refused.child.wait() == 1
    assert f"process {agent.child.pid}" in refused.child.output()
    assert content.child.wait() == 0
    assert f"process {agent.child.pid}" in content.child.output()
    assert agent.status()["pid"] == agent.child.pid


def test_another_agent_adopts_what_a_killed_one_left(
    agent: AgentProcess, children: Children, root: Path, gateway: ScriptedGateway
) -> None:
    gateway.durable_below = 2
    trainer = Trainer(root)
    trainer.append(10)
    wait_until(lambda: len(gateway.accepted) == 10, what="be accepted")

    os.kill(agent.child.pid, signal.SIGKILL)
    agent.child.wait()
    trainer.append(5, is_last=True)
    gateway.durable_below = None
    gateway.forget(from_seq=6)
    trainer.end()
    AgentProcess(children, root, endpoint=gateway.endpoint, name="second").await_ready()

    wait_until(lambda: not spools(root), what="deliver all and remove it")
    assert [one.seq for one in gateway.accepted] == [*range(10), *range(6, 15)]
    assert all(one.again for one in gateway.accepted[10:14])


def test_told_to_end_it_drains_and_ends(agent: AgentProcess, root: Path, gateway: ScriptedGateway) -> None:
    trainer = Trainer(root)
    trainer.append(50, is_last=True)
    trainer.end()

    agent.child.signal(signal.SIGTERM)

    assert agent.child.wait() == 0
    assert not spools(root)
    assert len(gateway.accepted) == 50
    assert not (root / "agent.json").exists()


def test_told_to_end_it_stays_while_a_trainer_lives(agent: AgentProcess, root: Path, gateway: ScriptedGateway) -> None:
    trainer = Trainer(root)
    trainer.append()
    wait_until(lambda: trainer.writer.durable == 1, what="be durable")

    agent.child.signal(signal.SIGTERM)
    trainer.append()
    wait_until(lambda: trainer.writer.durable == 2, what="be durable after the signal")
    trainer.append(is_last=True)
    trainer.end()

    assert agent.child.wait() == 0
    assert len(gateway.accepted) == 3


def test_one_that_a_rank_started_ends_when_the_rank_has(
    children: Children, root: Path, gateway: ScriptedGateway
) -> None:
    trainer = Trainer(root)
    trainer.append(2)
    agent = AgentProcess(children, root, endpoint=gateway.endpoint, options=["--exit-when-idle"]).await_ready()
    with agent.connect() as connection:
        assert said(connection, attach_request(trainer.identity))["claim"] == "granted"
        trainer.append(is_last=True)
        trainer.end()

    assert agent.child.wait() == 0
    assert len(gateway.accepted) == 3
    assert not spools(root)


def test_what_cannot_be_sent_is_staged_out_at_the_end(
    children: Children, root: Path, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    gateway.durable_below = 0
    trainer = Trainer(root)
    trainer.append(3, is_last=True)
    trainer.end()
    target = tmp_path / "shared"
    agent = AgentProcess(children, root, endpoint=gateway.endpoint, options=["--stage-out", str(target)])
    agent.await_ready()
    wait_until(lambda: len(gateway.accepted) == 3, what="be accepted")

    def is_over() -> bool:
        if (root / "agent.json").exists():
            agent.child.signal(signal.SIGTERM)  # the second one means now
        return agent.child.returncode is not None

    wait_until(is_over, what="end")
    assert agent.child.returncode == 0
    assert [folder.name for folder in spools(target)] == [f"n-{trainer.identity.incarnation.hex()}"]


def test_a_frozen_agent_goes_on_where_it_was(agent: AgentProcess, root: Path, gateway: ScriptedGateway) -> None:
    trainer = Trainer(root)
    trainer.append(3)
    wait_until(lambda: trainer.writer.durable == 3, what="be durable")

    agent.child.signal(signal.SIGSTOP)
    trainer.append(20)
    agent.child.signal(signal.SIGCONT)

    wait_until(lambda: trainer.writer.durable == 23, what="be durable")
    trainer.end()
    assert [one.seq for one in gateway.accepted] == list(range(23))


def test_an_idle_agent_does_next_to_nothing(agent: AgentProcess) -> None:
    before = cpu_ticks(agent.child.pid)
    seen = [agent.status()["pid"]]

    # A hundred answers say that it is there; the bound is on what it took all in all, not on a time.
    wait_until(lambda: seen.append(agent.status()["pid"]) is None and len(seen) > 100, what="answer")

    assert cpu_ticks(agent.child.pid) - before < 100


def test_a_trainer_that_comes_is_granted_its_rank_and_keeps_it_while_its_connection_lasts(
    agent: AgentProcess, root: Path, gateway: ScriptedGateway
) -> None:
    trainer = Trainer(root, rank=3)
    with agent.connect() as connection:
        assert said(connection, attach_request(trainer.identity)) == {"claim": "granted", "holder": None, "failure": ""}
        assert agent.status()["trainers"] == 1
        assert (gateway.claims[0].rank, gateway.claims[0].pid) == (3, os.getpid())
    wait_until(lambda: agent.status()["trainers"] == 0, what="be let go")
    trainer.end()


def test_a_rank_that_a_living_process_holds_is_refused_with_its_name(
    agent: AgentProcess, root: Path, gateway: ScriptedGateway
) -> None:
    gateway.holders[0] = AgentStatus(incarnation=b"h" * 16, rank=0, node="elsewhere", pid=77, boot_id="another")
    trainer = Trainer(root)

    with agent.connect() as connection:
        answer = said(connection, attach_request(trainer.identity))

    trainer.end()
    assert answer["claim"] == "refused"
    assert (answer["holder"]["node"], answer["holder"]["pid"]) == ("elsewhere", 77)


def test_a_trainer_is_told_when_its_rank_is_lost(agent: AgentProcess, root: Path, gateway: ScriptedGateway) -> None:
    trainer = Trainer(root)
    with agent.connect() as connection:
        assert said(connection, attach_request(trainer.identity))["claim"] == "granted"
        gateway.holders[0] = AgentStatus(incarnation=b"h" * 16, rank=0, node="elsewhere", pid=77)

        assert next_line(connection)["claim"] == "refused"
    trainer.end()


def test_without_a_gateway_a_trainer_hears_why_nobody_answers(children: Children, root: Path) -> None:
    gone = ScriptedGateway()
    gone.stop()
    agent = AgentProcess(children, root, endpoint=gone.endpoint).await_ready()
    trainer = Trainer(root)

    with agent.connect() as connection:
        answer = said(connection, attach_request(trainer.identity))

    trainer.end()
    assert answer["claim"] == "unknown"
    assert gone.endpoint in answer["failure"]


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"nonsense\n", b'{"op": "attach"}\n', b"\n"])
def test_whoever_says_something_else_is_told_so(agent: AgentProcess, line: bytes) -> None:
    with agent.connect() as connection:
        connection.sendall(line)
        assert "error" in next_line(connection)
    assert alive(agent.child.pid)


def test_a_denied_key_is_said_once_a_minute_and_the_data_kept(
    children: Children, root: Path, gateway: ScriptedGateway
) -> None:
    gateway.answers.extend([refuse(grpc.StatusCode.UNAUTHENTICATED, "not a key")] * 4)
    agent = AgentProcess(
        children, root, endpoint=gateway.endpoint, environ={"RANKSCOPE_KEY": "rsk_0badc0de_secret"}
    ).await_ready()
    trainers = [Trainer(root, rank=rank) for rank in range(4)]
    for trainer in trainers:
        trainer.append()

    wait_until(lambda: all(trainer.writer.durable == 1 for trainer in trainers), what="be delivered afterwards")

    for trainer in trainers:
        trainer.end()
    said_lines = [line for line in agent.child.output().splitlines() if "denies access" in line]
    assert len(said_lines) == 1
    assert "secret" not in agent.child.output()
    assert set(gateway.keys) == {"Bearer rsk_0badc0de_secret"}
