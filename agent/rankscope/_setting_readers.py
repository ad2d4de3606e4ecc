"""How the value of a setting is read: from text of the environment, or from an argument of `init`.

Promises: a wrong value is a `ConfigError` at once, with the setting's name, the value and what it may be; a key is
never shown.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rankscope._checked import MAX_RANK
from rankscope.errors import ConfigError
from rankscope.privacy import LEAST_PREVIEW, MOST_PREVIEW, checked_pattern
from rankscope_proto.names import Role, SpanKind

UploadMode = Literal["async", "sync", "spool", "disabled"]
AgentMode = Literal["process", "thread", "none"]
Fsync = Literal["second", "always"]
CollectivesMode = Literal["auto", "off"]

MAX_ID_BYTES = 128
MAX_AXES = 16
MAX_AXIS_BYTES = 64
_LEAST_SPOOL_BYTES = 4 * 1024 * 1024
"""The hard limit of one batch: a smaller spool might never take one."""

_MAX_WHOLE = MAX_RANK
"""The most that a world size or a coordinate can be on the wire, too."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its environment variable, its default in words, one sentence."""

    variable: str
    default: str
    meaning: str


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
    except (TypeError, ValueError, OverflowError):
        number = -1
    is_cut = isinstance(given, float) and not given.is_integer()
    if is_cut or not 0 <= number <= _MAX_WHOLE:
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


def _upload_mode(setting: Setting, given: object) -> UploadMode:
    if given in ("async", "sync", "spool", "disabled"):
        return given
    raise ConfigError(f"{setting.variable} is {given!r}: it is async, sync, spool or disabled")


def _agent(setting: Setting, given: object) -> AgentMode:
    if given in ("process", "thread", "none"):
        return given
    raise ConfigError(f"{setting.variable} is {given!r}: it is process, thread or none")


def _collectives(setting: Setting, given: object) -> CollectivesMode:
    if given not in ("auto", "off"):
        raise ConfigError(f"{setting.variable} is {given!r}: it is auto or off")
    return given


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


def _count(setting: Setting, given: object) -> int:
    number = _whole(setting, given)
    if not number:
        raise ConfigError(f"{setting.variable} is {given!r}: it is a whole number from 1 to {_MAX_WHOLE}")
    return number


def _preview_bytes(setting: Setting, given: object) -> int:
    number = _whole(setting, given)
    if not LEAST_PREVIEW <= number <= MOST_PREVIEW:
        raise ConfigError(
            f"{setting.variable} is {given!r}: it is a number of bytes from {LEAST_PREVIEW} to {MOST_PREVIEW}"
        )
    return number


def _rate(setting: Setting, given: object) -> float:
    try:
        rate = float(cast("str", given))
    except (TypeError, ValueError):
        rate = -1.0
    if isinstance(given, bool) or not 0.0 <= rate <= 1.0:
        raise ConfigError(f"{setting.variable} is {given!r}: it is a share from 0 (none) to 1 (all)")
    return rate


def _rates(setting: Setting, given: object) -> tuple[tuple[str, float], ...]:
    """Kind and share of each: from a mapping, or from text such as `tool=0.1,model=1`."""
    if isinstance(given, Mapping):
        pairs = [(str(kind), share) for kind, share in cast("Mapping[object, object]", given).items()]
    else:
        split = [part.partition("=") for part in str(given).split(",") if part.strip()]
        if not all(share for _, _, share in split):
            raise ConfigError(f"{setting.variable} is {given!r}: write kind=share pairs, such as tool=0.1,model=1")
        pairs = [(kind, cast("object", share)) for kind, _, share in split]
    rates = {kind.strip().lower(): _rate(setting, share) for kind, share in pairs}
    unknown = sorted(rates.keys() - {kind.value for kind in SpanKind})
    if unknown:
        kinds = ", ".join(kind.value for kind in SpanKind)
        raise ConfigError(f"{setting.variable} is {given!r}: {unknown[0]!r} is no kind, which is one of {kinds}")
    return tuple(rates.items())


def _words(setting: Setting, given: object) -> tuple[str, ...]:
    """Words from a sequence, or from text with commas between them."""
    return _texts(setting, given.split(",") if isinstance(given, str) else given)


def _roles(setting: Setting, given: object) -> tuple[Role, ...]:
    words = _words(setting, given)
    unknown = [word for word in words if word not in list(Role)]
    if unknown:
        raise ConfigError(
            f"{setting.variable} is {given!r}: {unknown[0]!r} is no role, which is one of {', '.join(Role)}"
        )
    return tuple(map(Role, words))


def _patterns(setting: Setting, given: object) -> tuple[str, ...]:
    """Regular expressions from a sequence, or from text, one a line: a comma may be a part of one."""
    patterns = _texts(setting, given.split("\n") if isinstance(given, str) else given)
    if not patterns and not isinstance(given, str) and given:
        raise ConfigError(f"{setting.variable} is {given!r}: an empty pattern matches everything")
    for pattern in patterns:
        try:
            checked_pattern(pattern)
        except ValueError as error:
            raise ConfigError(f"{setting.variable}: {error}") from None
    return patterns


def _texts(setting: Setting, given: object) -> tuple[str, ...]:
    try:
        items = tuple(cast("Iterable[object]", given))
    except TypeError:
        items = (None,)
    if not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{setting.variable} is {given!r}: it is a sequence of texts")
    return tuple(item.strip() for item in cast("tuple[str, ...]", items) if item.strip())


def _url(setting: Setting, given: object) -> str:
    url = str(given).strip().rstrip("/")
    if not url.startswith(("http://", "https://")) or any(map(str.isspace, url)):
        raise ConfigError(f"{setting.variable} is {given!r}: write a URL, such as http://127.0.0.1:8470")
    return url


def _path(setting: Setting, given: object) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"{setting.variable} is {given!r}: it is a path, as text or a Path")
    return Path(cast("str | os.PathLike[str]", given)).expanduser()


_SECRET = re.compile(r"[@?#]|rsk_", re.IGNORECASE)
"""What no address has, and what a user, a password, a query or a key of ours in one does."""

_BYTES = re.compile(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

READERS: Mapping[str, Callable[[Setting, object], object]] = {
    "endpoint": _endpoints,
    "project": _identifier,
    "run_id": _identifier,
    "launch_id": _launch,
    "rank": _whole,
    "world_size": _whole,
    "mesh": _mesh,
    "url": _url,
    "upload_mode": _upload_mode,
    "offline_dir": _path,
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
    "include": _words,
    "exclude": _words,
    "roles": _roles,
    "capture_file": _path,
    "trace_sample_rate": _rate,
    "trace_sample_by_kind": _rates,
    "max_spans_per_trace": _count,
    "redact_keys": _words,
    "redact_patterns": _patterns,
    "preview_bytes": _preview_bytes,
    "collectives": _collectives,
    "gc_spans": _switch,
    "propagate_threads": _switch,
}
"""How a setting's value is read, by name."""
