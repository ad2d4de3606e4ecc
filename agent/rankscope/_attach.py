"""The trainer's side of the node's agent: find it, start it where none lives, and hold its rank through it.

Promises: no gRPC in this process; whatever becomes of the agent, training goes on and batches wait in the spool;
an agent that died is started again. A forked child has no part in it.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rankscope._host import is_stopped, process_space, process_start
from rankscope._identity import Identity
from rankscope._looked_at import may_look, peer_of
from rankscope.errors import ConfigError, Unavailable

AGENT_FILE = "agent.json"
SETTLE_S = 8.0
"""How long `init` waits for the answer: an agent takes a second to start and 3 s to find out that no gateway
answers, and a rank whose holder seems to live is asked for twice, a heartbeat of 3 s apart."""

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
"""Pauses before an agent that went away is looked for again: they double while it does not stay."""

STOPPED_S = 3.0
"""How long an agent that was stopped (SIGSTOP, a debugger, a frozen container) is waited for: longer than a busy
disk stops one."""

LINE_BYTES = 64 * 1024

logger = logging.getLogger("rankscope")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent says of a claim.

    Attributes:
        claim: "granted", "refused", or "unknown": nobody answered yet.
        holder: Who holds the rank, if refused: process, node and incarnation.
        failure: Why nobody answered.
    """

    claim: str
    holder: tuple[int, str, str] | None = None
    failure: str = ""

    @classmethod
    def of(cls, line: bytes) -> "Answer":
        """The answer in a line.

        Raises:
            ValueError: it is none.
        """
        try:
            said = cast("dict[str, object]", json.loads(line))
            holder = cast("dict[str, object] | None", said.get("holder"))
            who = (int(str(holder["pid"])), str(holder["node"]), str(holder.get("incarnation", ""))) if holder else None
            return cls(str(said["claim"]), who, str(said.get("failure", "")))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no answer: {line[:100]!r}") from error


class Attachment:
    """The connection to the node's agent, kept by a daemon thread while the process records.

    Args:
        root: The folder of the node's spools.
        identity: Who claims.
        start: Starts an agent for the root; None: only one that lives is used.
    """

    upload = None
    """This process sends nothing."""

    def __init__(self, root: Path, identity: Identity, *, start: Callable[[], None] | None) -> None:
        self._root = root
        self._identity = identity
        self._start = start
        self._changed = threading.Condition()
        self._answer: Answer | None = None
        self._socket: socket.socket | None = None
        self._is_closed = False
        _living.add(self)
        self._thread = threading.Thread(target=self._run, name="rankscope-attach", daemon=True)
        self._thread.start()

    def settle(self) -> str:
        """Wait for the first answer.

        Returns:
            "" when the rank is this process's; else what stands in the way, for now.

        Raises:
            ConfigError: a living process holds the rank; names its node and pid.
        """
        with self._changed:
            answer = self._changed.wait_for(lambda: self._answer, min(STOPPED_S, SETTLE_S))
            if answer is None and not is_stopped(_agent_pid(self._root)):
                answer = self._changed.wait_for(lambda: self._answer, max(0.0, SETTLE_S - STOPPED_S))
        if answer is None:
            return _unanswered(self._root)
        if answer.claim == "refused" and answer.holder is not None:
            raise ConfigError(_taken(answer.holder, self._identity))
        return "" if answer.claim == "granted" else answer.failure or "no gateway answers"

    def begin(self, folder: Path) -> str:
        """Nobody is told: the agent looks for new spools by itself."""
        del folder
        return ""

    def close(self) -> None:
        """Give the rank up; the agent goes on with what is in the spool."""
        with self._changed:
            self._is_closed = True
            connection = self._socket
            self._changed.notify_all()
        if connection is not None:
            _shut(connection)

    def forget(self) -> None:
        """In a forked child: the connection is the parent's, whose end the agent must be able to see."""
        self._is_closed = True
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                os.close(connection.detach())  # `close` would wait for the reader, which lives in the parent only

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._is_closed:
            began = time.monotonic()
            try:
                self._attend(self._connected())
            except (OSError, ValueError, Unavailable) as error:
                self._fail(f"no agent answers in {self._root}: {error}")
            if time.monotonic() - began > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _connected(self) -> socket.socket:
        """A connection to the agent that lives, or to one that was started now.

        Raises:
            OSError: there is none.
            Unavailable: none could be started.
        """
        found = connect(self._root)
        if found is None and self._start is not None:
            self._start()
            found = connect(self._root)
        if found is None:
            raise OSError("none is running")
        return found

    def _attend(self, connection: socket.socket) -> None:
        """Claim, then take answers until the connection ends."""
        with connection:
            with self._changed:
                self._socket = connection
                if self._is_closed:
                    return
            may_look(peer_of(connection))
            connection.sendall(json.dumps(self._request()).encode() + b"\n")
            with connection.makefile("rb") as lines:
                while line := lines.readline(LINE_BYTES):
                    self._take(Answer.of(line))

    def _request(self) -> dict[str, object]:
        identity = self._identity
        return {
            "op": "attach",
            "incarnation": identity.incarnation.hex(),
            "identity": {
                "project": identity.project,
                "run_id": identity.run_id,
                "launch_id": identity.launch_id.hex(),
                "process_role": identity.process_role.code,
                "rank": identity.rank,
                "node": identity.node,
                "pid": identity.pid,
                "boot_id": process_space(),
            },
            "claim": True,
        }

    def _fail(self, failure: str) -> None:
        with self._changed:
            self._answer = self._answer or Answer("unknown", failure=failure)
            self._changed.notify_all()

    def _take(self, answer: Answer) -> None:
        with self._changed:
            was_granted = self._answer is not None and self._answer.claim == "granted"
            self._answer = answer
            self._changed.notify_all()
        if was_granted and answer.claim == "refused" and answer.holder is not None:
            logger.warning("%s; this process goes on recording", _taken(answer.holder, self._identity))


def connect(root: Path) -> socket.socket | None:
    """A connection to the agent of a root; None when none lives."""
    try:
        said = cast("dict[str, object]", json.loads((root / AGENT_FILE).read_text()))
        pid, path = int(str(said["pid"])), str(said["socket"])
        if process_start(pid) != int(str(said["process_start"])):
            return None  # its file outlived it
    except (OSError, ValueError, TypeError, KeyError):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _agent_pid(root: Path) -> int:
    """The process that its file names as the agent; 0: none."""
    try:
        return int(str(json.loads((root / AGENT_FILE).read_text())["pid"]))
    except (OSError, ValueError, TypeError, KeyError):
        return 0


def _unanswered(root: Path) -> str:
    pid = _agent_pid(root)
    who = f"the agent in {root} (process {pid})" if pid else f"the agent in {root}"
    if is_stopped(pid):
        return f"{who} is stopped: shall it go on (`kill -CONT {pid}`)?"
    return f"{who} does not answer: what does {root / 'agent.log'} say?"


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it ended by itself


def _taken(holder: tuple[int, str, str], own: Identity) -> str:
    pid, node, _ = holder
    return (
        f"rank {own.rank} of run {own.run_id} is held by process {pid} on {node or 'an unnamed node'}, "
        "which lives; end it, or give this process its own rank (RANKSCOPE_RANK) or run (RANKSCOPE_RUN_ID)"
    )


_living: "weakref.WeakSet[Attachment]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for attachment in tuple(_living):
        attachment.forget()


os.register_at_fork(after_in_child=_forget_in_child)
