"""A real agent process, and what its socket says."""

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rankscope._host import process_space
from rankscope._identity import Identity
from tests.ground.processes import Child, Children, python
from tests.ground.stacks import clean_environ


class AgentProcess:
    """`rankscope agent` on a root of its own.

    Attributes:
        root: The folder of the spools.
        child: The process.
    """

    def __init__(
        self,
        children: Children,
        root: Path,
        *,
        endpoint: str,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        name: str = "agent",
    ) -> None:
        self.root = root
        command = python("rankscope", "agent", "--spool", root, "--endpoint", endpoint, *options)
        home = str(root.parent / "home")
        # Nobody's rows but the ranks', unless a test asks for them.
        given = {"RANKSCOPE_HOME": home, "RANKSCOPE_SAMPLE": "off", **(environ or {})}
        self.child: Child = children.start(command, name=name, environ=clean_environ(**given))

    def await_ready(self) -> "AgentProcess":
        """Returns once it listens."""
        self.child.await_that(lambda: self._pid() == self.child.pid, what="listen")
        return self

    def connect(self) -> socket.socket:
        """A connection to its socket."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(str(self._facts()["socket"]))
        return connection

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one line."""
        with self.connect() as connection:
            return said(connection, request)

    def status(self) -> dict[str, Any]:
        """How things stand."""
        return self.ask({"op": "status"})

    def _facts(self) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", json.loads((self.root / "agent.json").read_text()))
        except (OSError, ValueError):
            return {}

    def _pid(self) -> int:
        return int(self._facts().get("pid", 0))


def said(connection: socket.socket, request: Mapping[str, Any]) -> dict[str, Any]:
    """The first line that answers a request."""
    connection.sendall(json.dumps(request).encode() + b"\n")
    return next_line(connection)


def next_line(connection: socket.socket) -> dict[str, Any]:
    """The next line; {} at the end."""
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            return {}
        line += part
    return cast("dict[str, Any]", json.loads(line))


def attach_request(identity: Identity, *, claim: bool = True, pid: int | None = None) -> dict[str, Any]:
    """What a trainer says when it comes."""
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
            "pid": identity.pid if pid is None else pid,
            "boot_id": process_space(),
        },
        "claim": claim,
    }
