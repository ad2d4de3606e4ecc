"""What the SDK can be told from outside: every setting once, with its variable, default and meaning.

An argument of `init` wins over the environment, the environment over the default. Nothing else in
the SDK reads settings from the environment; the rank's own variables are read in `_rank`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, cast

from rankscope._home import data_folder
from rankscope.errors import ConfigError

Mode = Literal["online", "disabled"]
AgentMode = Literal["process", "thread", "none"]
Fsync = Literal["second", "always"]

MAX_ID_BYTES = 128
MAX_AXES = 16
MAX_AXIS_BYTES = 64
_LEAST_SPOOL_BYTES = 4 * 1024 * 1024
"""The hard limit of one batch: a smaller spool might never take one."""

_MAX_WHOLE = 2**31 - 1
"""The most that a rank, a world size or a coordinate can be on the wire."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its environment variable, its default in words, one sentence."""

    variable: str
    default: str
    meaning: str


SETTINGS: dict[str, Setting] = {
    "endpoint": Setting(
        "RANKSCOPE_ENDPOINT",
        "found in the data folder",
        "host:port of the gateway, or several parted by commas; https://host:port means TLS.",
    ),
    "project": Setting("RANKSCOPE_PROJECT", "default", "The unit of access; at most 128 bytes, without '/'."),
    "run_id": Setting(
        "RANKSCOPE_RUN_ID", "agreed by the ranks", "The run; the same on all ranks; at most 128 bytes, without '/'."
    ),
    "launch_id": Setting(
        "RANKSCOPE_LAUNCH_ID", "agreed by the ranks", "This start of the run, the same on all ranks: 32 hex digits."
    ),
    "rank": Setting("RANKSCOPE_RANK", "from the launcher", "Global rank, 0-based; together with the world size."),
    "world_size": Setting("RANKSCOPE_WORLD_SIZE", "from the launcher", "Number of ranks of the launch."),
    "mesh": Setting("RANKSCOPE_MESH", "none", "This rank's coordinates in the parallel mesh, as dp=2,tp=0."),
    "mode": Setting("RANKSCOPE_MODE", "online", "online, or disabled: nothing is recorded."),
    "spool": Setting(
        "RANKSCOPE_SPOOL", "spool in the data folder", "Where batches lie until they are in the store: a local disk."
    ),
    "spool_bytes": Setting(
        "RANKSCOPE_SPOOL_BYTES",
        "8 GiB or 20 % of the free space",
        "Most bytes a process keeps in its spool, at least 4 MiB; 64M and 8G are understood.",
    ),
    "spool_fsync": Setting(
        "RANKSCOPE_SPOOL_FSYNC", "second", "second: the disk has all but the last second; always: every batch."
    ),
    "spool_any_fs": Setting(
        "RANKSCOPE_SPOOL_ANY_FS", "0", "1: the spool may lie on a network's file system, which may hold training up."
    ),
    "agent": Setting(
        "RANKSCOPE_AGENT",
        "process",
        "Who sends: process (one for the node), thread (of this process), none (`rankscope drain`, later).",
    ),
    "key": Setting("RANKSCOPE_KEY", "none", "API key with the scope ingest; kept out of every output."),
    "tls_ca": Setting("RANKSCOPE_TLS_CA", "the system's", "File with the authorities that sign the gateway."),
    "tls_cert": Setting("RANKSCOPE_TLS_CERT", "none", "File with this node's certificate, for mutual TLS."),
    "tls_key": Setting("RANKSCOPE_TLS_KEY", "none", "File with the key of that certificate."),
    "insecure": Setting("RANKSCOPE_INSECURE", "0", "1: a key may cross a network without TLS."),
    "home": Setting("RANKSCOPE_HOME", "~/.local/share/rankscope", "The data folder."),
    "quiet": Setting("RANKSCOPE_QUIET", "0", "1: say nothing on stderr but errors."),
    "level": Setting("RANKSCOPE_LEVEL", "1", "Probe level of `watch`: 0 or 1."),
    "every": Setting("RANKSCOPE_EVERY", "10", "Stride of the steps that `watch` captures in full, at least 1."),
}
"""Every setting of the SDK, by the name of its attribute in `Settings`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force; `SETTINGS` says what each means. None: not set."""

    home: Path
    endpoint: tuple[str, ...] = ()
    project: str = "default"
    run_id: str | None = None
    launch_id: bytes | None = None
    rank: int | None = None
    world_size: int | None = None
    mesh: tuple[tuple[str, int], ...] = ()
    mode: Mode = "online"
    spool: Path | None = None
    spool_bytes: int | None = None
    spool_fsync: Fsync = "second"
    spool_any_fs: bool = False
    agent: AgentMode = "process"
    key: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    quiet: bool = False
    level: int | None = None
    every: int | None = None

    @property
    def spool_root(self) -> Path:
        """The folder of this node's spools."""
        return self.spool or self.home / "spool"

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: object) -> "Settings":
        """Settings from arguments (None: not given), then the environment, then the defaults.

        Raises:
            ConfigError: a value is not one; names the setting and the value.
        """
        values: dict[str, object] = {"home": data_folder(environ)}
        for name in (entry.name for entry in fields(cls)):
            setting = SETTINGS[name]
            given = arguments.get(name)
            if given is None and name != "home":
                given = environ.get(setting.variable) or None
            if given is not None:
                values[name] = _READERS[name](setting, given)
        return cls(**values)  # pyright: ignore[reportArgumentType]  # each reader returns its field's type


def checked_id(variable: str, given: object) -> str:
    """The id of a project or a run.

    Raises:
        ConfigError: it could not be stored, shown or addressed: it is one part of a URL's path.
    """
    text = str(given)
    fits = 0 < len(text.encode("utf-8", "replace")) <= MAX_ID_BYTES
    if not fits or not text.isprintable() or "/" in text or text in {".", ".."}:
        raise ConfigError(
            f"{variable} is {text[:MAX_ID_BYTES]!r}: it is 1 to {MAX_ID_BYTES} bytes of printable text without '/', "
            "and not '.' or '..'"
        )
    return text


def _identifier(setting: Setting, given: object) -> str:
    return checked_id(setting.variable, given)


def _launch(setting: Setting, given: object) -> bytes:
    try:
        launch_id = given if isinstance(given, bytes) else bytes.fromhex(str(given).replace("-", ""))
    except ValueError:
        launch_id = b""
    if len(launch_id) != 16:
        raise ConfigError(f"{setting.variable} is {given!r}: it is 32 hex digits, such as a UUID")
    return launch_id


def _whole(setting: Setting, given: object) -> int:
    try:
        number = int(cast("str", given))
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= _MAX_WHOLE:
        raise ConfigError(f"{setting.variable} is {given!r}: it is a whole number from 0 to {_MAX_WHOLE}")
    return number


def _endpoints(setting: Setting, given: object) -> tuple[str, ...]:
    """One or several `host:port`, as text or as a sequence; those with TLS keep their `https://`."""
    parts = given.split(",") if isinstance(given, str) else [str(part) for part in cast("Iterable[object]", given)]
    endpoints = tuple(_endpoint(setting, part.strip()) for part in parts if part.strip())
    if not endpoints:
        raise ConfigError(f"{setting.variable} is {given!r}: write host:port, such as 127.0.0.1:8471")
    return endpoints


def _endpoint(setting: Setting, text: str) -> str:
    if _SECRET.search(text):  # a key that slipped in here is in no message, no file and no other process
        raise ConfigError(
            f"{setting.variable} holds more than an address (it is not shown: it may be secret): "
            "write host:port, such as 127.0.0.1:8471, and a key into RANKSCOPE_KEY"
        )
    is_tls = text.startswith("https://")
    address = text
    for scheme in ("http://", "grpc://", "https://"):
        address = address.removeprefix(scheme)
    address = address.rstrip("/")
    host, _, port = address.rpartition(":")
    if (
        not host
        or "/" in host
        or any(map(str.isspace, host))
        or not (port.isascii() and port.isdigit())
        or not 0 < int(port) < 65_536
    ):
        raise ConfigError(f"{setting.variable} is {text!r}: write host:port, such as 127.0.0.1:8471")
    return f"https://{address}" if is_tls else address


def _mesh(setting: Setting, given: object) -> tuple[tuple[str, int], ...]:
    if isinstance(given, Mapping):
        pairs = [(str(axis), str(place)) for axis, place in cast("Mapping[object, object]", given).items()]
    else:
        split = (part.partition("=") for part in str(given).split(",") if part.strip())
        pairs = [(axis.strip(), place.strip()) for axis, _, place in split]
    if not all(axis and place.isascii() and place.isdigit() for axis, place in pairs):
        raise ConfigError(f"{setting.variable} is {given!r}: write axis=coordinate pairs, such as dp=2,tp=0")
    if len(pairs) > MAX_AXES or any(len(axis.encode("utf-8", "replace")) > MAX_AXIS_BYTES for axis, _ in pairs):
        raise ConfigError(
            f"{setting.variable} is {given!r}: at most {MAX_AXES} axes, with names of at most {MAX_AXIS_BYTES} bytes"
        )
    if any(len(place) > len(str(_MAX_WHOLE)) or int(place) > _MAX_WHOLE for _, place in pairs):
        raise ConfigError(f"{setting.variable} is {given!r}: a coordinate is at most {_MAX_WHOLE}")
    return tuple((axis, int(place)) for axis, place in pairs)


def _mode(setting: Setting, given: object) -> Mode:
    if given in ("online", "disabled"):
        return given
    raise ConfigError(f"{setting.variable} is {given!r}: it is online or disabled")


def _agent(setting: Setting, given: object) -> AgentMode:
    if given in ("process", "thread", "none"):
        return given
    raise ConfigError(f"{setting.variable} is {given!r}: it is process, thread or none")


def _fsync(setting: Setting, given: object) -> Fsync:
    if given in ("second", "always"):
        return given
    raise ConfigError(f"{setting.variable} is {given!r}: it is second or always")


def _bytes(setting: Setting, given: object) -> int:
    found = _BYTES.fullmatch(str(given).strip())
    size = int(found[1]) << _SHIFTS[found[2].upper()] if found else -1
    if size < _LEAST_SPOOL_BYTES:
        raise ConfigError(
            f"{setting.variable} is {given!r}: it is a number of bytes from {_LEAST_SPOOL_BYTES} on, such as 64M or 8G"
        )
    return size


def _key(setting: Setting, given: object) -> str:
    # The value is a secret: a message names the variable only.
    text = str(given).strip()
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise ConfigError(f"{setting.variable} holds no key: a key is printable ASCII without spaces")
    return text


def _switch(setting: Setting, given: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    try:
        return words[str(given).lower()]
    except KeyError:
        raise ConfigError(f"{setting.variable} is {given!r}: it is 1 or 0") from None


def _path(setting: Setting, given: object) -> Path:
    del setting
    return Path(str(given)).expanduser()


_SECRET = re.compile(r"[@?#]|rsk_", re.IGNORECASE)
"""What no address has, and what a user, a password, a query or a key of ours in one does."""

_BYTES = re.compile(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

_READERS = {
    "endpoint": _endpoints,
    "project": _identifier,
    "run_id": _identifier,
    "launch_id": _launch,
    "rank": _whole,
    "world_size": _whole,
    "mesh": _mesh,
    "mode": _mode,
    "spool": _path,
    "spool_bytes": _bytes,
    "spool_fsync": _fsync,
    "spool_any_fs": _switch,
    "agent": _agent,
    "key": _key,
    "tls_ca": _path,
    "tls_cert": _path,
    "tls_key": _path,
    "insecure": _switch,
    "home": _path,
    "quiet": _switch,
    "level": _whole,
    "every": _whole,
}
"""How a setting's value is read, by name."""
