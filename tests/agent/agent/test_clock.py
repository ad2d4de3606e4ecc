"""How far the clocks of a node's processes are from the gateways', as the agent says it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from rankscope._clock import SystemClock
from rankscope._connection import Access
from rankscope._host import boot_id
from rankscope.agent.clock import Clocks
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbours
from rankscope.agent.ways import Ways
from rankscope.testing import rows_of
from rankscope_proto.v1.ingest_pb2 import StandReply, StandRequest
from tests.agent.agent.spools import Trainer
from tests.agent.agent.standing_rows import batches_of_agents
from tests.agent.gateways import ScriptedGateway
from tests.ground.processes import wait_until

MS, S = 10**6, 10**9
HOUR = 3600 * S


class ShiftedClock(SystemClock):
    """The clock of a process that began when the wall clock was set otherwise."""

    def __init__(self, shift_ns: int) -> None:
        super().__init__()
        self._shift_ns = shift_ns

    def wall_at(self, mono_ns: int) -> int:
        return super().wall_at(mono_ns) + self._shift_ns

    def wall_ns(self) -> int:
        return super().wall_ns() + self._shift_ns


class ForeignMonotonic(SystemClock):
    """The clock of a process in a time namespace: right by the wall, and its monotonic clock is another one."""

    def mono_ns(self) -> int:
        return time.monotonic_ns() - HOUR

    def wall_at(self, mono_ns: int) -> int:
        return super().wall_at(mono_ns + HOUR)


class Node:
    """The processes of one machine, and the agent's look at their clocks."""

    def __init__(self, root: Path, *gateways: ScriptedGateway, key: str = "") -> None:
        self.root = root
        self.ways = Ways(Access(key=key or None), tuple(one.endpoint for one in gateways), home=root)
        self.diaries = Diaries(root)
        self.clocks = Clocks(self.ways, self.diaries)
        self._neighbours = Neighbours(root)

    def look(self) -> None:
        """A round."""
        self.clocks.visit(self._neighbours.look())

    def rows(self) -> list[dict[str, Any]]:
        """What was said."""
        return [row for batch in batches_of_agents(self.root) for row in rows_of(batch, "clocks")]

    def rows_of(self, trainer: Trainer) -> list[dict[str, Any]]:
        """What was said of one process."""
        lower = int.from_bytes(trainer.identity.incarnation[8:], "big")
        return [row for row in self.rows() if row["of_lo"] == lower]

    def await_rows(self, *trainers: Trainer, count: int = 1) -> None:
        """Make rounds until that much is said of each."""

        def is_said() -> bool:
            self.look()
            return all(len(self.rows_of(one)) >= count for one in trainers)

        wait_until(is_said, what="be said")

    def await_agents(self, count: int) -> None:
        """Make rounds until so many agents have told of a clock."""

        def is_told() -> bool:
            self.look()
            return len(measured_by(self.root)) == count

        wait_until(is_told, what="be told by this agent, too")

    def close(self) -> None:
        """End everything."""
        self.clocks.close()
        self._neighbours.close()
        self.diaries.close()
        self.ways.close()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def gateway(closing: ExitStack, *, clock: str = "gate boot-g", ahead_ns: int = 0) -> ScriptedGateway:
    made = ScriptedGateway()
    closing.callback(made.stop)
    made.clock, made.ahead_ns = clock, ahead_ns
    return made


def node(closing: ExitStack, root: Path, *gateways: ScriptedGateway) -> Node:
    made = Node(root, *gateways)
    closing.callback(made.close)
    return made


def trainer(
    closing: ExitStack, root: Path, *, rank: int = 0, clock: SystemClock | None = None, key: str = ""
) -> Trainer:
    class Clocked(Trainer):
        boot_id = boot_id()

        def make_clock(self) -> SystemClock:
            return clock or SystemClock()

    made = Clocked(root, rank=rank, key=key)
    closing.callback(made.end)
    made.append()
    return made


def test_the_offset_is_that_of_the_gateways_clock_within_its_error(tmp_path: Path, closing: ExitStack) -> None:
    watched = node(closing, tmp_path, gateway(closing, ahead_ns=HOUR))
    one = trainer(closing, tmp_path)

    watched.await_rows(one)

    (row, *_) = watched.rows_of(one)
    assert row["server"] == "gate boot-g"
    assert abs(row["offset"] - HOUR) <= row["error"] + MS  # the wall clock may be slewed meanwhile
    assert 0 < row["error"] <= row["rtt"]
    assert row["samples"] >= 1
    assert row["drift"] is None


def test_processes_of_one_node_are_told_of_at_one_moment_of_the_server(tmp_path: Path, closing: ExitStack) -> None:
    watched = node(closing, tmp_path, gateway(closing))
    plain = trainer(closing, tmp_path)
    behind = trainer(closing, tmp_path, rank=1, clock=ShiftedClock(-MS // 4))

    watched.await_rows(plain, behind)

    (first, *_), (second, *_) = watched.rows_of(plain), watched.rows_of(behind)
    assert first["time"] + first["offset"] == second["time"] + second["offset"]
    assert first["time"] != second["time"]


def test_a_process_that_comes_later_is_told_of_beside_those_that_were_there(tmp_path: Path, closing: ExitStack) -> None:
    watched = node(closing, tmp_path, gateway(closing))
    first = trainer(closing, tmp_path)
    watched.await_rows(first)

    second = trainer(closing, tmp_path, rank=1)
    watched.await_rows(second)

    moments = [{row["time"] + row["offset"] for row in watched.rows_of(one)} for one in (first, second)]
    assert moments[0] & moments[1]


def test_each_gateway_is_asked_so_that_their_clocks_compare(tmp_path: Path, closing: ExitStack) -> None:
    gateways = gateway(closing, clock="a boot-a"), gateway(closing, clock="b boot-b", ahead_ns=-HOUR)
    watched = node(closing, tmp_path, *gateways)
    one = trainer(closing, tmp_path)

    def servers() -> dict[str, int]:
        watched.look()
        return {row["server"]: row["offset"] for row in watched.rows_of(one)}

    wait_until(lambda: len(servers()) == 2, what="be held against both")

    assert HOUR - S < servers()["a boot-a"] - servers()["b boot-b"] < HOUR + S


def test_a_clock_that_is_set_is_told_of_at_once(tmp_path: Path, closing: ExitStack) -> None:
    watched = node(closing, tmp_path, served := gateway(closing))
    one = trainer(closing, tmp_path)
    watched.await_rows(one)

    served.ahead_ns = HOUR

    def is_told() -> bool:
        watched.look()
        return abs(watched.rows_of(one)[-1]["offset"] - HOUR) < S

    wait_until(is_told, what="be told")


def test_an_agent_that_begins_again_measures_again(tmp_path: Path, closing: ExitStack) -> None:
    served = gateway(closing)
    one = trainer(closing, tmp_path)
    for times in (1, 2):
        watched = Node(tmp_path, served)
        watched.await_rows(one)
        watched.await_agents(times)
        watched.close()


def measured_by(root: Path) -> set[bytes]:
    """The agents that told of a clock."""
    return {batch.header.incarnation for batch in batches_of_agents(root) if len(batch.clocks.time)}


@pytest.mark.parametrize("clock", [ForeignMonotonic(), ShiftedClock(HOUR)])
def test_a_process_whose_monotonic_clock_may_be_another_one_is_not_told_of(
    tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch, clock: SystemClock
) -> None:
    # Of a process in another container nobody can say which namespace it has: its header alone must do.
    monkeypatch.setattr("rankscope.agent.neighbours.process_space", lambda: "another container")
    watched = node(closing, tmp_path, gateway(closing))
    odd, plain = trainer(closing, tmp_path, clock=clock), trainer(closing, tmp_path, rank=1)

    watched.await_rows(plain)

    assert watched.rows_of(odd) == []


def test_a_process_that_began_before_the_wall_clock_was_set_is_told_of_where_it_is_seen_to_share_the_clock(
    tmp_path: Path, closing: ExitStack
) -> None:
    watched = node(closing, tmp_path, gateway(closing))
    one = trainer(closing, tmp_path, clock=ShiftedClock(-HOUR))

    watched.await_rows(one)

    assert abs(watched.rows_of(one)[0]["offset"] - HOUR) < S


def test_a_gateway_is_asked_on_while_a_process_that_sends_there_has_sealed_nothing(
    tmp_path: Path, closing: ExitStack
) -> None:
    watched = node(closing, tmp_path, gateway(closing))
    sealed = trainer(closing, tmp_path)
    other = gateway(closing, clock="b boot-b")
    closing.callback(Trainer(tmp_path, rank=1, endpoint=other.endpoint).end)
    watched.await_rows(sealed)
    tickers = dict(vars(watched.clocks)["_tickers"])

    watched.look()

    assert len(tickers) == 2
    assert vars(watched.clocks)["_tickers"] == tickers


class Locked(ScriptedGateway):
    """A gateway that one key opens.

    Attributes:
        key: The key.
        opened: Keys that did.
    """

    key = "old"

    def __init__(self) -> None:
        super().__init__()
        self.opened: set[str] = set()

    def Stand(self, request: StandRequest, context: grpc.ServicerContext) -> StandReply:
        if ("authorization", f"Bearer {self.key}") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "not the key")
        self.opened.add(self.key)
        return super().Stand(request, context)


def test_where_a_key_was_revoked_between_two_runs_the_gateway_is_asked_with_the_next_ones(
    tmp_path: Path, closing: ExitStack
) -> None:
    served = Locked()
    closing.callback(served.stop)
    served.clock = "gate boot-g"
    watched = node(closing, tmp_path, served)
    first = trainer(closing, tmp_path, key="old")
    watched.await_rows(first)
    first.end()
    watched.look()
    served.key = "new"

    trainer(closing, tmp_path, rank=1, key="new")

    def is_asked() -> bool:
        watched.look()
        return "new" in served.opened

    wait_until(is_asked, what="be asked with the new key")


def test_a_gateway_that_does_not_tell_the_time_leaves_no_rows_and_no_diary(tmp_path: Path, closing: ExitStack) -> None:
    old = gateway(closing, clock="")
    watched = node(closing, tmp_path, old)
    trainer(closing, tmp_path)

    watched.look()
    (ticker,) = vars(watched.clocks)["_tickers"].values()
    wait_until(lambda: ticker.asked >= 1, what="be asked")
    watched.look()

    assert watched.diaries.opened == 0
