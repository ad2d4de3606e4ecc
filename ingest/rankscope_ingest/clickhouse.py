"""The store as the ingest tiers use it; the only module that imports clickhouse-connect.

One code for chdb:// and http(s)://. Every call runs in a thread. A client is thrown away after
any error: on chDB a handle whose query failed can return that query's rows with its next answer.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError
from pydantic import SecretStr

from rankscope_ingest.addresses import shown
from rankscope_ingest.errors import CannotStart, StoreRefused, StoreUncertain, StoreUnfit
from rankscope_proto.columns import SECTIONS
from rankscope_proto.storage import INSERT_SETTINGS, landing_schema

FLOOR = (26, 2)
"""Text indexes are no experiment since then: `spans` has one of its attributes."""

TARGETS = (*(section.table for section in SECTIONS), "batches", "trace_index")
"""Every table that a view of `landing` fills."""

VIEWS = frozenset(f"{target}_from_landing" for target in TARGETS)
"""Every view that fills one."""

PARSING = frozenset({6, 26, 27, 32, 33, 38, 41, 53, 69, 70, 72, 117, 128, 131, 190, 349, 443, 444})
"""Codes under which bytes that cannot be parsed are refused; several of them are also a view's."""
OVERLOADED = frozenset({159, 202, 209, 210, 241, 252, 999})
"""Time-out, too many queries, network, memory, too many parts, Keeper: passes by itself."""
NO_SPACE = 243

_CODE = re.compile(r"\bcode: (\d+)", re.IGNORECASE)
_WINDOW = re.compile(r"replicated_deduplication_window = (\d+)")
_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
Result = TypeVar("Result")
Row = Sequence[object]


class _Client(Protocol):
    """What is called on a clickhouse-connect client."""

    def command(self, cmd: str, parameters: dict[str, object] | None = None) -> object: ...
    def query(self, query: str, parameters: dict[str, object] | None = None) -> "_Answer": ...
    def raw_insert(self, table: str, *, insert_block: bytes, settings: dict[str, str | int], fmt: str) -> object: ...
    def close(self) -> None: ...


class _Answer(Protocol):
    result_rows: Sequence[Row]


class Store:
    """A connection to the store, opened at the first call.

    Args:
        url: As `addresses.store_url` lets it pass.
    """

    def __init__(self, url: SecretStr) -> None:
        self._url = url
        self._client: _Client | None = None
        self._lock = threading.Lock()
        self._schema = landing_schema()

    async def command(self, statement: str, **parameters: object) -> None:
        """Runs a statement that returns nothing.

        Raises:
            StoreUncertain: It failed; it may have taken effect.
        """
        await self._call(lambda client: client.command(statement, parameters=parameters or None))

    async def rows(self, query: str, **parameters: object) -> Sequence[Row]:
        """Runs a query and returns its rows."""
        return await self._call(lambda client: client.query(query, parameters=parameters or None).result_rows)

    async def write(
        self, body: bytes, *, token: str, settings: Mapping[str, str | int] | None = None, table: str = "landing"
    ) -> None:
        """Inserts one group into `landing` and returns once every table has it.

        Args:
            body: Length-delimited `Batch` messages; one insert is one block.
            token: Deduplication token: the same body under the same token has no further effect.
            settings: Those under which the insert was begun; None: this version's.
            table: Where to, if elsewhere; its columns are those of `landing`.

        Raises:
            StoreRefused: It says that it cannot parse the body; a view's fault may read the same.
            StoreUncertain: It failed, perhaps in some tables only; the same body under the same token may follow.
        """
        own = {"format_schema": self._schema, "insert_deduplication_token": token}
        every = {**(INSERT_SETTINGS if settings is None else settings), **own}
        try:
            await self._call(lambda client: client.raw_insert(table, insert_block=body, settings=every, fmt="Protobuf"))
        except StoreUncertain as error:
            if error.number in PARSING:
                raise StoreRefused(str(error), number=error.number) from error
            raise

    async def probe(self, body: bytes) -> None:
        """Parses a group and keeps nothing: what `landing_probe` refuses does not parse.

        Raises:
            StoreRefused: It does not parse.
            StoreUncertain: The store could not try.
        """
        await self.write(body, token="", table="landing_probe")

    async def inserts(self) -> frozenset[str]:
        """Ids of the inserts that run now, whoever began them."""
        found = await self.rows(
            "SELECT query_id FROM system.processes WHERE query_kind = 'Insert' AND current_database = currentDatabase()"
            " AND query ILIKE '%landing%'"
        )
        return frozenset(str(name) for (name,) in found)

    async def views(self) -> frozenset[tuple[str, str]]:
        """The views of `landing` that stand, each with what tells it from another one under its name."""
        found = await self.rows(
            "SELECT name, toString(uuid) FROM system.tables "
            "WHERE database = currentDatabase() AND engine = 'MaterializedView'"
        )
        return frozenset((str(name), str(identity)) for name, identity in found)

    async def check_version(self) -> None:
        """Refuses a server older than `FLOOR`.

        Raises:
            StoreUnfit: It is.
        """
        version = str((await self.rows("SELECT version()"))[0][0])
        if tuple(int(part) for part in version.split(".")[:2]) < FLOOR:
            floor = ".".join(str(part) for part in FLOOR)
            raise StoreUnfit(
                f"ClickHouse at {shown(self._url)} is version {version}; rankscope needs {floor} or newer, "
                "because spans have a text index of their attributes: upgrade the server"
            )

    async def check_tables(self) -> None:
        """Refuses tables that would double rows on a repeated insert, or are not there.

        Raises:
            StoreUnfit: Names the tables.
        """
        found = await self.rows("SELECT name, engine_full FROM system.tables WHERE database = currentDatabase()")
        engines = {str(name): str(engine) for name, engine in found}
        if missing := [name for name in (*TARGETS, *sorted(VIEWS), "landing", "landing_probe") if name not in engines]:
            raise StoreUnfit(f"ClickHouse at {shown(self._url)} has no {', '.join(missing)}: run `rankscope migrate`")
        open_tables = [name for name in TARGETS if not _has_window(engines[name])]
        if open_tables:
            raise StoreUnfit(
                f"no deduplication window on {', '.join(open_tables)}: a repeated insert would double rows; "
                "ALTER TABLE … MODIFY SETTING non_replicated_deduplication_window = 10000"
            )

    async def close(self) -> None:
        """Closes the connection; the next call opens another."""
        await asyncio.to_thread(self._discard)

    async def _call(self, work: Callable[[_Client], Result]) -> Result:
        return await asyncio.to_thread(self._locked, work)

    def _locked(self, work: Callable[[_Client], Result]) -> Result:
        with self._lock:
            client = self._opened()
            try:
                return work(client)
            except (ClickHouseError, OSError) as error:
                self._discard_now()
                raise _mapped(f"ClickHouse at {shown(self._url)}: {_first_line(error)}", error) from error

    def _opened(self) -> _Client:
        if self._client is None:
            self._client = _connect(self._url)
        return self._client

    def _discard(self) -> None:
        with self._lock:
            self._discard_now()

    def _discard_now(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _mapped(text: str, error: Exception) -> StoreUncertain:
    """What an error means: only its code tells; without one the answer was lost."""
    found = _CODE.search(str(error))
    number = int(found[1]) if found else 0
    if number == NO_SPACE:
        return StoreUncertain(f"{text}; its disk is full: free space there", why="no_space", number=number)
    return StoreUncertain(text, why="overloaded" if number in OVERLOADED else "uncertain", number=number)


def folder_of(url: SecretStr) -> Path | None:
    """The folder of a chdb:// URL; None for a server."""
    parts = urlsplit(url.get_secret_value())
    return Path(parts.path) if parts.scheme == "chdb" else None


def _connect(url: SecretStr) -> _Client:
    try:
        client = _client_of(url, folder_of(url))
    except (ClickHouseError, OSError) as error:
        raise _unreachable(url, error) from error
    return cast("_Client", client)


def _client_of(url: SecretStr, folder: Path | None) -> object:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        return clickhouse_connect.get_client(dsn=url.get_secret_value())
    # A session would refuse a second query beside a running one.
    return clickhouse_connect.get_client(dsn=url.get_secret_value(), autogenerate_session_id=False)


def _unreachable(url: SecretStr, error: Exception) -> Exception:
    folder = folder_of(url)
    if folder is None:
        return StoreUncertain(
            f"ClickHouse at {shown(url)} did not answer ({_first_line(error)}); "
            "is it running, and is RANKSCOPE_CLICKHOUSE_URL right?"
        )
    holders = holders_of(folder)
    if holders:
        who = ", ".join(holders)
        return CannotStart(f"{folder} is held by {who}; a folder has one process: read through its --url, or stop it")
    return CannotStart(f"cannot open {folder}: {_first_line(error)}")


def holders_of(folder: Path) -> list[str]:
    """The other processes that have files open below a folder, as `pid 123 (name)`."""
    root = f"{folder.resolve()}/"
    others = (path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid())
    return [f"pid {process.name} ({_command_of(process)})" for process in others if _holds(process, root)]


def _command_of(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "ended meanwhile"


def _holds(process: Path, root: str) -> bool:
    try:
        return any(str(link.readlink()).startswith(root) for link in (process / "fd").iterdir())
    except OSError:  # ended meanwhile, or another user's
        return False


def _has_window(engine: str) -> bool:
    windows = [int(window) for window in _WINDOW.findall(engine)]
    return any(windows) or engine.startswith("Replicated")


def _first_line(error: Exception) -> str:
    """What happened, in one short line; of a failed connection only what the system said."""
    text = str(error).strip().split("\n", 1)[0]
    if of_the_system := _SYSTEM_ERROR.search(text):
        return of_the_system[1]
    return text[:300] or type(error).__name__
