"""`rankscope keys`: makes, lists and revokes the API keys that gateway and query service ask for.

It writes the key file where those services run; they look at it on every request, so nothing is restarted.
"""

import re
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope._setting_readers import checked_id
from rankscope.cli._app import app
from rankscope.cli._errors import NotThereError, WrongCallError
from rankscope.cli._output import say, say_aside, say_json
from rankscope.cli._source import AsJson, Home, chosen_folder
from rankscope.cli._table import say_table
from rankscope.up import UpError
from rankscope_proto.key_limits import KeyLimits
from rankscope_proto.keys import EVERY_PROJECT, KeyFile, KeyFileError, Scope, StoredKey

FILE = "keys.json"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}

BYTES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SERVICES = "as the service allows"

keys = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.add_typer(keys, name="keys", short_help="Make, list and revoke API keys.", help="Make, list and revoke API keys.")

KeysFile = Annotated[
    Path | None,
    typer.Option("--keys", envvar="RANKSCOPE_KEYS", help="The key file.", show_default="keys.json in the data folder"),
]

MaxSeconds = Annotated[
    float | None,
    typer.Option(envvar="RANKSCOPE_KEYS_MAX_SECONDS", help="Longest time of one query.", show_default=_SERVICES),
]
MaxRowsRead = Annotated[
    int | None,
    typer.Option(envvar="RANKSCOPE_KEYS_MAX_ROWS_READ", help="Rows one query may read.", show_default=_SERVICES),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_KEYS_MAX_MEMORY",
        help="Memory one query may take in the store, such as 512MiB.",
        show_default=_SERVICES,
    ),
]
MaxResultRows = Annotated[
    int | None,
    typer.Option(envvar="RANKSCOPE_KEYS_MAX_RESULT_ROWS", help="Rows one answer may have.", show_default=_SERVICES),
]


class ScopeOption(StrEnum):
    """What a key may do, as an option's choices."""

    INGEST = Scope.INGEST.value
    READ = Scope.READ.value
    CONTROL = Scope.CONTROL.value
    ADMIN = Scope.ADMIN.value


@keys.command("create", short_help="Make a key and print it, once.")
def create(  # noqa: PLR0913 - one for each option
    project: Annotated[
        list[str],
        typer.Option(envvar="RANKSCOPE_PROJECT", help="A project it may be used in; again for more; * is every one."),
    ],
    scope: Annotated[
        list[ScopeOption] | None,
        typer.Option(
            envvar="RANKSCOPE_KEYS_SCOPE",
            help="What it may do; again for more. admin is all, and deleting.",
            show_default="ingest and read",
        ),
    ] = None,
    name: Annotated[str, typer.Option(envvar="RANKSCOPE_KEYS_NAME", help="What the list calls it.")] = "",
    expires: Annotated[
        str | None,
        typer.Option(
            envvar="RANKSCOPE_KEYS_EXPIRES", help="Its lifetime, such as 90d or 12h.", show_default="for good"
        ),
    ] = None,
    max_seconds: MaxSeconds = None,
    max_rows_read: MaxRowsRead = None,
    max_memory: MaxMemory = None,
    max_result_rows: MaxResultRows = None,
    path: KeysFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. It is shown this once: the file keeps a digest.

    The --max options hold for each TQL or SQL query with the key, below what the query service allows itself.

    Example: rankscope keys create --project llm --scope ingest --expires 90d
    """
    scopes = [Scope(one.value) for one in scope or (ScopeOption.INGEST, ScopeOption.READ)]
    for one in project:
        if one != EVERY_PROJECT:
            checked_id("--project", one)
    file = key_path(path, home)
    try:
        limits = KeyLimits(max_seconds, max_rows_read, _bytes(max_memory), max_result_rows)
        key, stored = KeyFile(file).create(project, scopes, name=name, lifetime_ns=_lifetime_ns(expires), limits=limits)
    except KeyFileError as error:
        raise UpError(str(error)) from error
    except ValueError as error:
        raise WrongCallError(str(error)) from error
    if as_json:
        say_json({"key": key, **_json(stored), "file": str(file)})
        return
    say(key)
    say_aside(f"set it as RANKSCOPE_KEY where it is used; it is shown this once. Services read {file} by --keys")


@keys.command("ls", short_help="Which keys there are.")
def list_keys(path: KeysFile = None, *, home: Home = None, as_json: AsJson = False) -> None:
    """Which keys there are, the oldest first; the keys themselves are kept nowhere.

    Example: rankscope keys ls --json
    """
    try:
        stored = KeyFile(key_path(path, home)).keys()
    except KeyFileError as error:
        raise UpError(str(error)) from error
    items = [_json(one) for one in stored]
    if as_json:
        say_json({"items": items})
        return
    shown = [
        {
            **item,
            "scopes": ",".join(item["scopes"]),
            "projects": ",".join(item["projects"]),
            "limits": ",".join(f"{name}={value}" for name, value in item["limits"].items()),
        }
        for item in items
    ]
    say_table(shown, ("id", "state", "scopes", "projects", "name", "created", "expires", "limits"), none="no keys")


@keys.command("revoke", short_help="End a key.")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `ls` shows it.")],
    path: KeysFile = None,
    *,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """End a key at once, everywhere the file is read.

    Example: rankscope keys revoke 1a2b3c4d
    """
    file = key_path(path, home)
    try:
        stored = KeyFile(file).revoke(key_id) if file.exists() else None
    except KeyFileError as error:
        raise UpError(str(error)) from error
    if stored is None:
        raise NotThereError(f"no key {key_id!r} in {file}", hint="`rankscope keys ls` lists them by their ids")
    if as_json:
        say_json(_json(stored))
        return
    say(f"key {stored.key_id} is revoked")


def key_path(path: Path | None, home: Path | None) -> Path:
    """The key file: the one named, else that of the data folder."""
    return (path or chosen_folder(home) / FILE).expanduser().absolute()


def _lifetime_ns(text: str | None) -> int | None:
    """A duration in ns.

    Raises:
        WrongCallError: it is none.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    if found is None or not int(found[1]):
        raise WrongCallError(f"--expires {text!r} is no lifetime", hint="write a number and s, m, h, d or w, as 90d")
    return int(found[1]) * SECONDS[found[2]] * 10**9


def _bytes(text: str | None) -> int | None:
    """A size in bytes.

    Raises:
        WrongCallError: it is none.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,15}) ?(|KiB|MiB|GiB)", text.strip())
    size = int(found[1]) * BYTES[found[2]] if found else 0
    if size < BYTES["MiB"]:
        raise WrongCallError(f"--max-memory {text!r} is no size from 1MiB on", hint="write it as 512MiB or 2GiB")
    return size


def _json(stored: StoredKey) -> dict[str, Any]:
    return {
        "id": stored.key_id,
        "name": stored.name,
        "state": _state(stored),
        "scopes": sorted(stored.scopes),
        "projects": sorted(stored.projects),
        "created": _moment(stored.created_ns),
        "expires": _moment(stored.expires_ns),
        "revoked": _moment(stored.revoked_ns),
        "limits": stored.limits.given(),
    }


def _state(stored: StoredKey) -> str:
    if stored.revoked_ns is not None:
        return "revoked"
    return "valid" if stored.is_valid(time.time_ns()) else "expired"


def _moment(time_ns: int | None) -> str | None:
    return None if time_ns is None else datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
