"""Who a spool belongs to: enough to deliver its batches, and to state their loss, from any machine."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rankscope._host import process_space, process_start
from rankscope.spool._errors import SpoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankscope._identity import Identity
    from rankscope_proto.v1.batch_pb2 import Header

FILE = "spool.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Trust:
    """How a spool's gateways are reached, as its process was told: names of files, never what they hold.

    Attributes:
        tls_ca: File with the authorities that sign the gateway; empty: not given. Absolute, as the others.
        tls_cert: File with the node's certificate.
        tls_key: File with that certificate's key.
        insecure: Whether a key may cross a network without TLS.
    """

    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    insecure: bool = False

    @classmethod
    def of(cls, given: object) -> "Trust":
        """What a spool's file says of it; nothing where it was written without.

        Raises:
            TypeError, KeyError: it says something else.
        """
        if given is None:
            return cls()
        values = cast("dict[str, object]", given)
        files = [str(values[name]) for name in ("tls_ca", "tls_cert", "tls_key")]
        return cls(files[0], files[1], files[2], insecure=values["insecure"] is True)


@dataclass(frozen=True, slots=True)
class SpoolHead:
    """The process that a spool belongs to.

    Attributes:
        incarnation: UUIDv7 of the process start, 16 bytes.
        project: The unit of access.
        run_id: The run.
        launch_id: 16 bytes.
        process_role: Code of `ProcessRole`.
        rank: Global, 0-based; -1: none.
        local_rank: Within the node; -1: none.
        world_size: Ranks of the launch.
        node: Host name.
        pid: The process.
        process_start: When it started, in clock ticks since boot; -1: not known.
        process_space: Where process ids compare; empty: not known.
        boot_id: Boot of the node.
        endpoints: Gateways to send to, `host:port` each; empty: not known.
        created_ns: Wall clock when the spool was made.
        trust: How those gateways are reached; empty: as whoever sends thinks right.
        sends_itself: Whether the process sends it as long as it lives, and nobody else does.
    """

    incarnation: bytes
    project: str
    run_id: str
    launch_id: bytes
    process_role: int
    rank: int = -1
    local_rank: int = -1
    world_size: int = 1
    node: str = ""
    pid: int = 0
    process_start: int = -1
    process_space: str = ""
    boot_id: str = ""
    endpoints: tuple[str, ...] = ()
    created_ns: int = 0
    trust: Trust = Trust()
    sends_itself: bool = False

    @classmethod
    def of(
        cls,
        identity: "Identity",
        *,
        endpoints: "Sequence[str]" = (),
        trust: Trust | None = None,
        created_ns: int,
        sends_itself: bool = False,
    ) -> "SpoolHead":
        """The head of this process's own spool."""
        started = process_start(identity.pid)
        return cls(
            identity.incarnation,
            identity.project,
            identity.run_id,
            identity.launch_id,
            identity.process_role.code,
            rank=identity.rank,
            local_rank=identity.local_rank,
            world_size=identity.world_size,
            node=identity.node,
            pid=identity.pid,
            process_start=-1 if started is None else started,
            process_space=process_space(),
            boot_id=identity.boot_id,
            endpoints=tuple(endpoints),
            created_ns=created_ns,
            trust=trust or Trust(),
            sends_itself=sends_itself,
        )

    @classmethod
    def of_header(cls, header: "Header") -> "SpoolHead":
        """As much of the head as a batch's own header says: not where to send, nor when the process started."""
        return cls(
            header.incarnation,
            header.project,
            header.run_id,
            header.launch_id,
            header.process_role,
            rank=header.rank,
            local_rank=header.local_rank,
            world_size=header.world_size,
            node=header.node,
            pid=header.pid,
            boot_id=header.boot_id,
            created_ns=header.sealed,
        )

    @classmethod
    def read(cls, folder: Path) -> "SpoolHead":
        """The head of the spool in a folder.

        Raises:
            SpoolError: there is none, or it cannot be read; names the file.
        """
        path = folder / FILE
        try:
            values = cast("dict[str, object]", json.loads(path.read_text()))
            if values.pop("version", None) != VERSION:
                raise ValueError(f"version is not {VERSION}")
            return cls(**{field.name: _value(_given(values, field.name), field.name) for field in fields(cls)})  # pyright: ignore[reportArgumentType]  # each value is converted to its field's type
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise SpoolError(f"{path} cannot be read as the head of a spool: {error}") from error

    def write(self, folder: Path) -> None:
        """Put the head into a folder, whole or not at all, and to stay through the end of the host.

        Raises:
            OSError: the folder cannot be written.
        """
        values = asdict(self) | {"version": VERSION}
        values |= {"incarnation": self.incarnation.hex(), "launch_id": self.launch_id.hex()}
        write_whole(folder / FILE, json.dumps(values).encode(), synced=True)


_BYTES = ("incarnation", "launch_id")
_NUMBERS = {"process_role", "rank", "local_rank", "world_size", "pid", "process_start", "created_ns"}


_ADDED = {"trust", "sends_itself"}
"""Fields that spools of before lack."""


def _given(values: "dict[str, object]", name: str) -> object:
    return values.get(name) if name in _ADDED else values[name]


def _value(given: object, name: str) -> object:
    if name in _BYTES:
        found = bytes.fromhex(str(given))
        if len(found) != 16:
            raise ValueError(f"{name} is {given!r}: it is 32 hex digits")
        return found
    if name in _NUMBERS:
        return int(str(given))
    if name == "endpoints":
        return tuple(map(str, cast("list[object]", given)))
    if name == "trust":
        return Trust.of(given)
    if name == "sends_itself":
        return given is True
    return str(given)


def write_whole(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Replace a file of mode 0600: a reader sees the old one or the new one.

    Args:
        path: The file.
        data: All that it will hold.
        synced: Return only once it would survive the host.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
