"""A rank belongs to one living process: the claim on it, and the heartbeat that keeps it.

The claim is asked for once, by `init`, and renewed for as long as the process records. A gateway
that cannot be reached does not stop the training: the claim is asked for again when it answers, and
a refusal then is only said, since at ingest nothing is refused for who sent it.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from rankscope._connection import Connection, Route, failure_of
from rankscope._grpc import grpc
from rankscope._host import is_alive, process_space
from rankscope._identity import Identity
from rankscope.errors import ConfigError
from rankscope_proto.v1.ingest_pb2 import AgentStatus, Command
from rankscope_proto.v1.ingest_pb2_grpc import ControlStub

BEAT_S = 3.0
"""Pause between heartbeats; a claim lapses 10 s after the last one."""

RELEASE_S = 0.3
CONNECT_S = 3.0
"""How long `init` waits for the gateway's answer."""

logger = logging.getLogger("rankscope")


class Standing(Enum):
    """How a claim stands."""

    UNKNOWN = "nobody answered yet"
    GRANTED = "the rank is this process's"
    REFUSED = "another process holds it"


class Answer(NamedTuple):
    """The last answer to a claim: how it stands, who holds the rank if refused, why nobody answered."""

    standing: Standing
    holder: AgentStatus | None
    failure: str


class Claim:
    """Asks for a rank and keeps it, from a daemon thread of its own.

    Args:
        connection: The way to the gateway.
        identity: Who claims.
        space: Where that process's id compares; None: this process's own space.
        key: The API key, asked for at each attempt; None: the connection's own.
        told: Called with each answer of the gateway, in the claim's own thread.
    """

    def __init__(
        self,
        connection: Connection,
        identity: Identity,
        *,
        space: str | None = None,
        key: Callable[[], str | None] = lambda: None,
        told: Callable[[Answer], object] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._space = process_space() if space is None else space
        self._key = key
        self._told = told
        self._replaces = b""
        self._changed = threading.Condition()
        self._answer = self._unanswered()
        self._asked = 0
        self._is_closed = False
        self._call: grpc.Call | None = None
        self._thread = threading.Thread(target=self._run, name="rankscope-claim", daemon=True)
        self._thread.start()

    def settle(self, timeout_s: float = CONNECT_S) -> Answer:
        """Wait for the first answer; a rank whose holder is dead is taken over.

        Returns:
            The answer; UNKNOWN when nobody answered in time.

        Raises:
            ConfigError: a living process holds the rank; names its node and pid.
        """
        answer = self.settled(timeout_s)
        if answer.standing is Standing.REFUSED and answer.holder is not None:
            raise ConfigError(_taken(answer.holder, self._identity))
        return answer

    def settled(self, timeout_s: float = CONNECT_S) -> Answer:
        """The first answer that will last: a dead holder is replaced, a living one is given one beat to go."""
        answer = self._next_answer(timeout_s)
        if answer.standing is not Standing.REFUSED or answer.holder is None:
            return answer
        if self._is_dead(answer.holder):
            self._ask_again(replaces=answer.holder.incarnation)
        else:
            self._ask_again(after_s=BEAT_S)
        return self._next_answer(timeout_s)

    def close(self) -> None:
        """Give the rank up."""
        with self._changed:
            self._is_closed = True
            call = self._call
            self._changed.notify_all()
        # Our side of the stream ends in order, which frees the rank at once instead of after 10 s.
        self._thread.join(RELEASE_S)
        if call is not None:
            call.cancel()

    def _next_answer(self, timeout_s: float) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self._answer.standing is not Standing.UNKNOWN, timeout_s)
            return self._answer

    def _ask_again(self, *, replaces: bytes = b"", after_s: float = 0.0) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, after_s)
            self._replaces = replaces
            self._answer = self._unanswered()
            self._asked += 1
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()

    def _unanswered(self) -> Answer:
        return Answer(Standing.UNKNOWN, None, f"the gateway at {self._connection.endpoint} did not answer")

    def _run(self) -> None:
        pauses = random.Random()
        while not self._is_closed:
            asked = self._asked
            failure = self._attended()
            with self._changed:
                if failure and self._answer.standing is Standing.UNKNOWN:
                    self._answer = self._answer._replace(failure=failure)
                self._changed.wait_for(lambda: self._is_closed or self._asked != asked, pauses.uniform(0.5, 1.5))  # noqa: B023  # called at once

    def _attended(self) -> str:
        """Attend once; what ended it, "" where the gateway did in order."""
        try:
            route = self._connection.route(self._key())
        except ConfigError as error:
            return str(error)
        try:
            self._attend(route)
        except grpc.RpcError as error:
            self._connection.leave(route.endpoint)
            return str(failure_of(error, route.endpoint).error)
        return ""

    def _attend(self, route: Route) -> None:
        """One stream: the claim, then heartbeats, until it ends."""
        call = ControlStub(route.channel).Attach(self._statuses(self._asked), metadata=route.metadata)
        with self._changed:
            self._call = call
        for command in call:
            self._take(command)

    def _statuses(self, asked: int) -> Iterator[AgentStatus]:
        while not self._is_closed and self._asked == asked:
            yield self._status()
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._asked != asked, BEAT_S)

    def _status(self) -> AgentStatus:
        identity = self._identity
        return AgentStatus(
            project=identity.project,
            run_id=identity.run_id,
            launch_id=identity.launch_id,
            process_role=identity.process_role.code,
            rank=identity.rank,
            incarnation=identity.incarnation,
            node=identity.node,
            pid=identity.pid,
            boot_id=self._space,
            replaces=self._replaces,
        )

    def _take(self, command: Command) -> None:
        if command.WhichOneof("command") != "claim":
            return
        granted = command.claim.granted
        with self._changed:
            if self._answer.standing is Standing.GRANTED and not granted:
                logger.warning("%s; this process goes on recording", _taken(command.claim.holder, self._identity))
            standing = Standing.GRANTED if granted else Standing.REFUSED
            self._answer = answer = Answer(standing, None if granted else command.claim.holder, "")
            self._changed.notify_all()
        self._told(answer)

    def _is_dead(self, holder: AgentStatus) -> bool:
        """Whether the holder surely does not run, seen from its own machine; nor an earlier run of this process."""
        if not self._space or holder.boot_id != self._space:
            return False
        if holder.pid == self._identity.pid:
            return True
        return self._space == process_space() and not is_alive(holder.pid)


def _taken(holder: AgentStatus, own: Identity) -> str:
    return (
        f"rank {own.rank} of run {own.run_id} is held by process {holder.pid} on {holder.node or 'an unnamed node'}, "
        "which lives; end it, or give this process its own rank (RANKSCOPE_RANK) or run (RANKSCOPE_RUN_ID)"
    )
