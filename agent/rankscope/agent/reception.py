"""The agent's Unix socket: trainers attach here, and whoever asks is told how things stand.

Lines of JSON. A trainer's connection is its life: its rank is claimed while it lasts and its process lives, and given
up when it ends. A trainer needs no gRPC for that.
"""

import contextlib
import json
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from rankscope._claim import Answer, Claim, Standing
from rankscope._connection import Connection
from rankscope._host import is_alive, process_space
from rankscope._identity import Identity
from rankscope.errors import RankscopeError
from rankscope_proto.names import ProcessRole

LINE_BYTES = 64 * 1024
LOOK_S = 1.0
MAX_GUESTS = 256

Json = Mapping[str, object]
Desk = Callable[[bytes], tuple[Connection, Callable[[], str | None]]]
"""Incarnation → the way to its gateway, and its API key, asked at each attempt."""


class Reception:
    """Listens on a socket in a folder of its own.

    Args:
        desk: Knows the way to a trainer's gateway; raises RankscopeError where there is none.
        status: What `{"op": "status"}` answers.
        on_attach: Called when a trainer came.

    Attributes:
        path: The socket.
    """

    def __init__(self, desk: Desk, *, status: Callable[[], Json], on_attach: Callable[[], object]) -> None:
        # A socket's path has at most 108 bytes: a spool's may be longer.
        self._folder = Path(tempfile.mkdtemp(prefix="rankscope-"))
        self.path = self._folder / "agent"
        self._desk = desk
        self._status = status
        self._on_attach = on_attach
        self._lock = threading.Lock()
        self._guests: set[socket.socket] = set()
        self._trainers = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        threading.Thread(target=self._listen, name="rankscope-listen", daemon=True).start()

    @property
    def trainers(self) -> int:
        """Processes attached now."""
        return self._trainers

    def close(self) -> None:
        """End every connection, and give up the ranks."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            guests = tuple(self._guests)
        for guest in guests:
            with contextlib.suppress(OSError):
                guest.shutdown(socket.SHUT_RDWR)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            try:
                guest, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                is_full = len(self._guests) >= MAX_GUESTS
                if not is_full:
                    self._guests.add(guest)
            if is_full:
                guest.close()
                continue
            threading.Thread(target=self._receive, args=(guest,), name="rankscope-guest", daemon=True).start()

    def _receive(self, guest: socket.socket) -> None:
        try:
            with guest, contextlib.suppress(OSError), guest.makefile("rb") as lines:
                while self._serve(guest, lines.readline(LINE_BYTES)):
                    pass
        finally:
            with self._lock:
                self._guests.discard(guest)

    def _serve(self, guest: socket.socket, line: bytes) -> bool:
        """Answer one line; whether another one may follow. An empty one is the end."""
        if not line:
            return False
        try:
            request = cast("dict[str, object]", json.loads(line))
            operation = request.get("op")
            if operation == "status":
                _send(guest, self._status())
                return True
            if operation == "attach":
                self._attend(guest, _identity(request), space=_space(request), claims=bool(request.get("claim")))
                return False
            _send(guest, {"error": f"op is {operation!r}: it is attach or status"})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            _send(guest, {"error": f"not a request: {error}"})
        return False

    def _attend(self, guest: socket.socket, identity: Identity, *, space: str, claims: bool) -> None:
        with self._lock:
            self._trainers += 1
        self._on_attach()
        try:
            claim = self._claimed(guest, identity, space=space) if claims else None
            try:
                _outlast(guest, identity.pid, is_near=space == process_space())
            finally:
                if claim is not None:
                    claim.close()
        finally:
            with self._lock:
                self._trainers -= 1

    def _claimed(self, guest: socket.socket, identity: Identity, *, space: str) -> Claim | None:
        """A claim on the trainer's behalf; it is told how the claim stands, first when that is settled."""
        try:
            connection, key = self._desk(identity.incarnation)
        except RankscopeError as error:
            _send(guest, _said(Answer(Standing.UNKNOWN, None, str(error))))
            return None
        settled = threading.Event()

        def tell(answer: Answer) -> None:
            if settled.is_set():
                with contextlib.suppress(OSError):
                    _send(guest, _said(answer))

        claim = Claim(connection, identity, space=space, key=key, told=tell)
        answer = claim.settled()
        settled.set()
        try:
            _send(guest, _said(answer))
        except OSError:
            claim.close()
            raise
        return claim


def _send(guest: socket.socket, document: Json) -> None:
    guest.sendall(json.dumps(document).encode() + b"\n")


def _said(answer: Answer) -> Json:
    holder = answer.holder
    return {
        "claim": answer.standing.name.lower(),
        "holder": holder
        and {
            "node": holder.node,
            "pid": holder.pid,
            "incarnation": holder.incarnation.hex(),
            "boot_id": holder.boot_id,
        },
        "failure": answer.failure,
    }


def _identity(request: Json) -> Identity:
    who = cast("dict[str, object]", request["identity"])
    roles = {role.code: role for role in ProcessRole}
    return Identity(
        str(who["project"]),
        str(who["run_id"]),
        bytes.fromhex(str(who["launch_id"])),
        bytes.fromhex(str(request["incarnation"])),
        rank=int(str(who["rank"])),
        node=str(who["node"]),
        pid=int(str(who["pid"])),
        process_role=roles[int(str(who["process_role"]))],
    )


def _space(request: Json) -> str:
    return str(cast("dict[str, object]", request["identity"]).get("boot_id", ""))


def _outlast(guest: socket.socket, pid: int, *, is_near: bool) -> None:
    """Wait until the trainer ends its side, or its process is gone: a forked child may hold the connection open."""
    waiting = select.poll()
    waiting.register(guest, select.POLLIN)
    while not is_near or is_alive(pid):
        if waiting.poll(LOOK_S * 1_000) and not guest.recv(LINE_BYTES):
            return
