"""What the SDK can be told from outside: every setting once, with its variable, default and meaning.

An argument of `init` wins over the environment, the environment over the default. Nothing else in
the SDK reads settings from the environment; the rank's own variables are read in `_identity`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, cast

from rankscope._home import data_folder
from rankscope.errors import ConfigError

Mode = Literal["online", "disabled"]

MAX_ID_BYTES = 128
MAX_AXES = 16
MAX_AXIS_BYTES = 64
_MAX_WHOLE = 2**31 - 1
"""The most that a rank, a world size or a coordinate can be on the wire."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its environment variable, its default in words, one sentence."""

    variable: str
    default: str
    meaning: str


SETTINGS: dict[str, Setting] = {
    "endpoint": Setting("RANKSCOPE_ENDPOINT", "found in the data folder", "host:port of the gateway."),
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
    endpoint: str | None = None
    project: str = "default"
    run_id: str | None = None
    launch_id: bytes | None = None
    rank: int | None = None
    world_size: int | None = None
    mesh: tuple[tuple[str, int], ...] = ()
    mode: Mode = "online"
    quiet: bool = False
    level: int | None = None
    every: int | None = None

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: object) -> "Settings":
        """Settings from arguments (None: not given), then the environment, then the defaults.

        Raises:
            ConfigError: a value is not one; names the setting and the value.
        """
        values: dict[str, object] = {"home": data_folder(environ)}
        for field in fields(cls):
            setting = SETTINGS[field.name]
            given = arguments.get(field.name)
            if given is None and field.name != "home":
                given = environ.get(setting.variable) or None
            if given is not None:
                values[field.name] = _READERS[field.name](setting, given)
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


def _endpoint(setting: Setting, given: object) -> str:
    text = str(given).strip()
    for scheme in ("http://", "grpc://"):
        text = text.removeprefix(scheme)
    host, _, port = text.rstrip("/").rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise ConfigError(f"{setting.variable} is {given!r}: write host:port, such as 127.0.0.1:8471")
    return f"{host}:{port}"


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


def _switch(setting: Setting, given: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    try:
        return words[str(given).lower()]
    except KeyError:
        raise ConfigError(f"{setting.variable} is {given!r}: it is 1 or 0") from None


def _folder(setting: Setting, given: object) -> Path:
    del setting
    return Path(str(given)).expanduser()


_READERS = {
    "endpoint": _endpoint,
    "project": _identifier,
    "run_id": _identifier,
    "launch_id": _launch,
    "rank": _whole,
    "world_size": _whole,
    "mesh": _mesh,
    "mode": _mode,
    "home": _folder,
    "quiet": _switch,
    "level": _whole,
    "every": _whole,
}
"""How a setting's value is read, by name."""
