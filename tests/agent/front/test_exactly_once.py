"""Whoever dies, wherever: what a client was answered for is in the store once, and what it was not it sends again."""

import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from rankscope.spool import spools
from rankscope.testing import rows_of
from rankscope_proto import failpoints
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.agents import AgentProcess
from tests.agent.front.clients import Fronted, Sender, whole
from tests.agent.gateways import ScriptedGateway
from tests.agent.spooled import rows_in
from tests.ground.processes import Children, python, wait_until
from tests.ground.stacks import clean_environ

PLACES = [
    ("front.before_accept", False),
    ("front.after_accept", False),
    ("front.after_seal", False),
    ("front.after_append", False),
    ("spool.append", False),
    ("front.after_seal", True),
    ("front.after_append", True),
]
"""Where a process is killed, and whether what it left is drained before the next one comes."""

FIRST, SECOND, THIRD = (f"{number:016x}" for number in (1, 2, 3))


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


class Agents:
    """The agent of one folder, started as often as it takes."""

    def __init__(self, children: Children, root: Path, gateway: ScriptedGateway) -> None:
        self._children = children
        self._root = root
        self._gateway = gateway
        self._started = 0

    def start(self, *, failpoint: str = "") -> AgentProcess:
        self._started += 1
        agent = AgentProcess(
            self._children,
            self._root,
            endpoint=self._gateway.endpoint,
            options=("--http", "127.0.0.1:0"),
            environ={"RANKSCOPE_FAILPOINT": failpoint},
            name=f"agent-{self._started}",
        )
        agent.child.await_that(lambda: "HTTP ingest" in agent.child.output(), what="take requests")
        return agent

    def drain(self) -> None:
        """What another one does that knows nothing of HTTP."""
        command = list(map(str, python("rankscope", "drain", self._root, "--endpoint", self._gateway.endpoint)))
        subprocess.run(command, check=True, timeout=60, capture_output=True, env=clean_environ())


@pytest.fixture
def agents(children: Children, tmp_path: Path, gateway: ScriptedGateway) -> Agents:
    return Agents(children, tmp_path / "spool", gateway)


def sender_of(agent: AgentProcess) -> Sender:
    found = re.search(r"HTTP ingest (http://\S+?)/api", agent.child.output())
    assert found
    return Sender(found[1])


def stored(gateway: ScriptedGateway) -> Counter[str]:
    """How often the gateway accepted each span."""
    batches = [Batch.FromString(sealed.payload) for sealed in list(gateway.accepted)]
    return Counter(f"{row['span_id']:016x}" for batch in batches for row in rows_of(batch, "spans"))


@pytest.mark.parametrize(("place", "drains"), PLACES)
def test_a_kill_anywhere_between_a_request_and_the_spool_loses_and_doubles_nothing(
    place: str, drains: bool, agents: Agents, gateway: ScriptedGateway
) -> None:
    # Given a span that is stored, and an agent that is killed at the second one
    first = agents.start(failpoint=f"{place}:kill@2")
    sender_of(first).post(*whole(FIRST), key="1")
    wait_until(lambda: stored(gateway)[FIRST] == 1, what="the first span is stored")
    events = whole(SECOND)
    with suppress(httpx.TransportError):
        assert sender_of(first).post(*events, key="2").status_code == 200
    assert first.child.wait() == -signal.SIGKILL

    # When somebody sends what is there, another agent comes, and the client sends again
    if drains:
        agents.drain()
    second = agents.start()
    assert sender_of(second).post(*events, key="2").json()["inserted"] == 2
    sender_of(second).post(*whole(THIRD), key="3")

    # Then each span is stored once, also after the agent has ended in order
    wait_until(lambda: stored(gateway).keys() == {FIRST, SECOND, THIRD}, what="all three are stored")
    second.child.signal(signal.SIGTERM)
    assert second.child.wait() == 0
    assert set(stored(gateway).values()) == {1}


def test_an_agent_that_is_told_to_end_sends_what_it_took(agents: Agents, gateway: ScriptedGateway) -> None:
    agent = agents.start()
    end_alone = whole(FIRST)[1]

    sender_of(agent).post(end_alone)
    agent.child.signal(signal.SIGTERM)

    assert agent.child.wait() == 0
    assert stored(gateway) == {FIRST: 1}


def test_what_finds_no_room_in_the_spool_waits_in_the_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front = Fronted(tmp_path / "spool")
    front.send(*whole(FIRST))
    with monkeypatch.context() as full:
        full.setattr(failpoints, "_points", failpoints.parse("spool.append:fail"))
        assert front.written() == []
        front.send(*whole(SECOND))
        assert front.written() == []

    rows = front.written()

    assert sorted(f"{row['span_id']:016x}" for row in rows) == [FIRST, SECOND]
    front.close()


def test_a_batch_that_found_no_room_when_its_process_ended_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = Fronted(tmp_path / "spool")
    front.send(*whole(FIRST))
    with monkeypatch.context() as full:
        full.setattr(failpoints, "_points", failpoints.parse("spool.append:fail"))
        front.close()

    front.open()
    front.desk.tend()

    assert len(rows_in(front.root, "spans")) == 1
    assert len(spools(front.root)) == 2
    front.close()
