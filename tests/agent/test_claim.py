"""A rank belongs to one living process."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rankscope._claim import Claim, Standing
from rankscope._connection import Connection
from rankscope._host import process_space
from rankscope._identity import Identity
from rankscope.errors import ConfigError
from rankscope_proto.v1.ingest_pb2 import AgentStatus
from tests.agent.gateways import ScriptedGateway
from tests.ground.processes import wait_until

WHO = Identity("p", "r", b"l" * 16, b"i" * 16, rank=1, world_size=2, node="n", pid=os.getpid(), boot_id="b")


def holder(pid: int, *, boot: str) -> AgentStatus:
    return AgentStatus(incarnation=b"h" * 16, rank=1, node="elsewhere", pid=pid, boot_id=boot)


def dead_pid() -> int:
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(child.stdout)


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def claims(gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Claim]]:
    """Claims to close at the end; waits are shortened so that nothing waits for a heartbeat of seconds."""
    monkeypatch.setattr("rankscope._claim.BEAT_S", 0.1)
    opened: list[Claim] = []
    yield opened
    for claim in opened:
        claim.close()


def claim_at(endpoint: str, claims: list[Claim]) -> Claim:
    claims.append(Claim(Connection(endpoint), WHO))
    return claims[-1]


def test_a_free_rank_is_granted_and_kept_by_heartbeats(gateway: ScriptedGateway, claims: list[Claim]) -> None:
    claim = claim_at(gateway.endpoint, claims)

    assert claim.settle(20).standing is Standing.GRANTED
    wait_until(lambda: len(gateway.claims) >= 3, what="beat")
    said = gateway.claims[-1]
    assert (said.project, said.run_id, said.rank, said.node, said.pid) == ("p", "r", 1, "n", os.getpid())
    assert (said.launch_id, said.incarnation, said.replaces) == (b"l" * 16, b"i" * 16, b"")


def test_a_rank_that_a_living_process_holds_is_refused_by_name(gateway: ScriptedGateway, claims: list[Claim]) -> None:
    gateway.holders[1] = holder(os.getppid(), boot=process_space())

    with pytest.raises(ConfigError, match=rf"rank 1 of run r is held by process {os.getppid()} on elsewhere"):
        claim_at(gateway.endpoint, claims).settle(20)


def test_a_holder_on_another_machine_is_believed_to_live(gateway: ScriptedGateway, claims: list[Claim]) -> None:
    gateway.holders[1] = holder(dead_pid(), boot="another boot")

    with pytest.raises(ConfigError, match="on elsewhere"):
        claim_at(gateway.endpoint, claims).settle(20)


@pytest.mark.parametrize("pid", [dead_pid(), os.getpid()], ids=["an id free here", "this process's own id"])
def test_a_holder_in_another_container_of_this_machine_is_believed_to_live(
    gateway: ScriptedGateway, claims: list[Claim], pid: int
) -> None:
    boot, _ = process_space().split(" ")
    gateway.holders[1] = holder(pid, boot=f"{boot} pid:[1]")

    with pytest.raises(ConfigError, match="on elsewhere"):
        claim_at(gateway.endpoint, claims).settle(20)


def test_a_holder_that_lets_go_within_a_heartbeat_makes_way(gateway: ScriptedGateway, claims: list[Claim]) -> None:
    gateway.holders[1] = holder(1, boot="another boot")
    claim = claim_at(gateway.endpoint, claims)
    wait_until(lambda: bool(gateway.claims), what="claim")

    del gateway.holders[1]

    assert claim.settle(20).standing is Standing.GRANTED


@pytest.mark.parametrize("pid", [dead_pid(), os.getpid()], ids=["another process", "an earlier run of this process"])
def test_a_holder_that_ended_on_this_machine_is_replaced(
    gateway: ScriptedGateway, claims: list[Claim], pid: int
) -> None:
    gateway.holders[1] = holder(pid, boot=process_space())

    assert claim_at(gateway.endpoint, claims).settle(20).standing is Standing.GRANTED
    assert gateway.claims[-1].replaces == b"h" * 16


def test_nobody_there_is_no_error_and_the_claim_is_made_when_somebody_is(claims: list[Claim]) -> None:
    first = ScriptedGateway()
    port = first.port
    first.stop()
    claim = claim_at(f"127.0.0.1:{port}", claims)

    answer = claim.settle(1.0)

    assert answer.standing is Standing.UNKNOWN
    assert f"127.0.0.1:{port}" in answer.failure
    late = ScriptedGateway(port)
    try:
        assert claim.settle(20).standing is Standing.GRANTED
    finally:
        late.stop()
