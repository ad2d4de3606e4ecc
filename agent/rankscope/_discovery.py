"""How processes of one user find the server on this machine: a file in the data folder.

Promises: never another user's server, never one that is gone; a reader never sees half a file.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from rankscope._host import is_alive

FILE = "up.json"


@dataclass(frozen=True, slots=True)
class Discovery:
    """A running server.

    Attributes:
        gateway: `host:port` of the gateway.
        query: URL of the query service, without a path.
        pid: The server's process.
        token: Hex; new at every start.
        version: Version of the server.
        broker: URL of its broker, a socket that only its user can open; empty: it does not say.
        ingest: URL of its HTTP ingest, without a path; empty: it does not say.
    """

    gateway: str
    query: str
    pid: int
    token: str
    version: str
    broker: str = ""
    ingest: str = ""


def write(folder: Path, discovery: Discovery) -> None:
    """Publish a server: a file of mode 0600, replaced whole.

    Raises:
        OSError: the folder cannot be written.
    """
    draft = folder / f".{FILE}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(asdict(discovery)))
    draft.replace(folder / FILE)


def read(folder: Path) -> Discovery | None:
    """The server of this user that runs now; None when there is none, or the file is not to be trusted."""
    try:
        with (folder / FILE).open() as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            fields = cast("dict[str, object]", json.load(file))
        texts = [str(fields[name]) for name in ("gateway", "query", "token", "version")]
        broker, ingest = (str(fields.get(name, "")) for name in ("broker", "ingest"))  # an older version does not say
        pid = int(str(fields["pid"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    gateway, query, token, version = texts
    return Discovery(gateway, query, pid, token, version, broker, ingest) if pid > 0 and is_alive(pid) else None


def remove(folder: Path) -> None:
    """Withdraw the server; nothing happens when none is published."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink()
