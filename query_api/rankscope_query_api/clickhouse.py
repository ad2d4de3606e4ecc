"""The one door to ClickHouse or chDB: bound parameters in, columns out, foreign errors mapped.

It promises three things. A handle that saw any error is never used again: after a failed query the same chDB handle
returns the failed query's rows in front of the next answer (909,325 rows of another project were seen). A handle
that reads cannot write: its limits are set first and then `readonly=1`, which nothing on it can undo; what deletes
has a handle of its own, for that long only. An integer
parameter outside its type is refused: ClickHouse wraps it silently (`{x:UInt8}` with 256 reads 0).
"""

import asyncio
import functools
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from rankscope_query_api.addresses import shown_store_url
from rankscope_query_api.errors import (
    InvalidQueryError,
    InvalidRequestError,
    LimitExceededError,
    QueryError,
    RefusedStatementError,
    StoreUnavailableError,
)
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import Table, Value

_LIMIT_CODES = frozenset({158, 159, 160, 241, 307, 394, 396})
"""Too many rows, too slow, too much memory, too many bytes: the limits of the handle."""

_MISSING_CODES = frozenset({60, 81})
"""Unknown table, unknown database."""

_BAD_PATTERN_CODE = 427

_TIMED_OUT_CODES = frozenset({159, 394})
"""It ran too long, or was ended from elsewhere."""

_OUR_FAULT_CODES = frozenset({49, 74, 75, 76, 202, 209, 210, 243, 439, 516, 999, 1000, 1001, 1002})
"""A fault in the store, a file, a connection or a disk of it, too many queries or threads, a password that is no longer
right: no statement is to blame."""

_TIMES_AS_TICKS = {"DateTime*": "int"}
"""Python's own times end at microseconds."""

_ERASE_TIMEOUT_S = 3600
"""Parts are rewritten, and a run may be in many."""

_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

_PLACEHOLDER = re.compile(r"\{(\w+):(?:Array\()?(U?)Int(8|16|32|64)\)?\}")


class Selecting(Protocol):
    """What a reader needs of the door."""

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs one statement; see `ClickHouse.select`."""
        ...

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """Runs statements that delete; see `ClickHouse.erase`."""
        ...


class NobodysProject:
    """The door as a project that does not exist sees it, whatever project is asked for.

    Args:
        door: The door.
    """

    PROJECT = "/"
    """No project is called so: the gateway refuses a name with a slash."""

    def __init__(self, door: Selecting) -> None:
        self._door = door

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs one statement; see `ClickHouse.select`."""
        return await self._door.select(statement, self._own(parameters))

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """Runs statements that delete; see `ClickHouse.erase`."""
        await self._door.erase(statements, self._own(parameters))

    def _own(self, parameters: Mapping[str, Value]) -> Mapping[str, Value]:
        return {**parameters, "project": self.PROJECT} if "project" in parameters else parameters


class ClickHouse:
    """A few read-only handles to one database, each used by one thread of its own.

    Args:
        settings: Address and limits.
        metrics: Where the time of each query is counted.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._url = settings.clickhouse_url.get_secret_value()
        self._executor = ThreadPoolExecutor(settings.query_handles, thread_name_prefix="rankscope-query")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._open: set[Client] = set()

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs one statement.

        Args:
            statement: One SELECT; every value is a `{name:Type}` placeholder.
            parameters: The values of the placeholders.

        Raises:
            InvalidRequestError: An integer does not fit its placeholder.
            LimitExceededError: The statement would cost more than a handle allows.
            StoreUnavailableError: The store did not answer or has no tables.
        """
        check_ranges(statement, parameters)
        started = time.perf_counter()
        outcome = "failed"
        try:
            loop = asyncio.get_running_loop()
            table = await loop.run_in_executor(self._executor, self._select, statement, parameters)
            outcome = "ok"
            return table
        finally:
            self._metrics.store_seconds.labels(outcome).observe(time.perf_counter() - started)

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """Runs statements that delete, one after the other, on a handle of their own, which is closed afterwards.

        Args:
            statements: Every value is a `{name:Type}` placeholder.
            parameters: The values of the placeholders.

        Raises:
            StoreUnavailableError: The store did not answer or has no tables.
            QueryError: It refused; what came before the refused statement is done.
        """
        await asyncio.to_thread(self._erase, statements, parameters)

    async def close(self) -> None:
        """Waits for the queries that run and closes every handle."""
        await asyncio.to_thread(self._executor.shutdown)
        for client in tuple(self._open):
            self._discard(client)

    def _select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        try:
            client = self._handle(remembers="PREWHERE" not in statement)
        except (ClickHouseError, OSError, ValueError, TypeError) as error:
            raise self._unreachable(error) from error
        try:
            result = client.query(
                statement, parameters=dict(parameters), column_oriented=True, query_formats=_TIMES_AS_TICKS
            )
            return Table(result.column_names, result.result_columns, [kind.name for kind in result.column_types])
        except ClickHouseError as error:
            self._discard(client)
            raise self._mapped(error) from error
        except BaseException:
            self._discard(client)
            raise

    def _erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        try:
            client = _writing_client(self._url)
        except (ClickHouseError, OSError, ValueError, TypeError) as error:
            raise self._unreachable(error) from error
        try:
            for statement in statements:
                client.command(statement, parameters=dict(parameters))
        except ClickHouseError as error:
            raise self._mapped(error) from error
        finally:
            client.close()

    def _handle(self, *, remembers: bool) -> Client:
        """This thread's handle for statements that may use what the store remembers of conditions, or may not.

        Under a filter over a sub-select with PREWHERE and LIMIT, ClickHouse 26.9 remembers what the filter left out as
        left out by the PREWHERE: from then on whatever has that condition, of whichever handle, reads no row of those
        parts (240 of 240 rows gone).
        """
        clients: dict[bool, Client] = self._own.__dict__.setdefault("clients", {})
        if remembers not in clients:
            clients[remembers] = self._connect(remembers=remembers)
        return clients[remembers]

    def _connect(self, *, remembers: bool) -> Client:
        settings = self._settings
        limits: dict[str, str | int | float] = {
            "max_execution_time": settings.query_timeout_s,
            "max_rows_to_read": settings.query_max_rows_read,
            "max_memory_usage": settings.query_max_memory_bytes,
            "max_result_rows": settings.query_max_result_rows,
            "max_result_bytes": settings.query_max_result_bytes,
            "result_overflow_mode": "throw",
            "use_query_condition_cache": int(remembers),
        }
        embedded = urlsplit(self._url).scheme == "chdb"
        client = _embedded_client(self._url, limits) if embedded else _server_client(self._url, limits)
        with self._lock:
            self._open.add(client)
        return client

    def _discard(self, client: Client) -> None:
        clients: dict[bool, Client] = self._own.__dict__.get("clients", {})
        for remembers in [key for key, own in clients.items() if own is client]:
            del clients[remembers]
        with self._lock:
            self._open.discard(client)
        client.close()

    def _mapped(self, error: ClickHouseError) -> QueryError:
        code = getattr(error, "code", None)
        text = _first_line(error)
        if code in _LIMIT_CODES:
            return self._beyond(code, text)
        if code == _BAD_PATTERN_CODE:
            return InvalidQueryError(f"a regular expression is not usable: {text}", hint="RE2 syntax is understood")
        if code in _MISSING_CODES:
            return StoreUnavailableError(
                f"the database has not the tables of rankscope: {text}", hint="run `rankscope migrate` once"
            )
        if code is None:
            return self._unreachable(error)
        return _failed(text) if code in _OUR_FAULT_CODES else RefusedStatementError(text)

    def _beyond(self, code: int | None, text: str) -> LimitExceededError:
        if code in _TIMED_OUT_CODES:
            return LimitExceededError(
                f"the query ran longer than {self._settings.query_timeout_s:g} s and was stopped in the store",
                hint="ask for fewer steps, ranks or rows, or raise RANKSCOPE_QUERY_TIMEOUT_S",
                code="timed_out",
            )
        return LimitExceededError(
            f"the query costs more than it may: {text}",
            hint="ask for fewer steps, ranks or rows, or raise the RANKSCOPE_QUERY_* limits",
        )

    def _unreachable(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"the store at {shown_store_url(self._url)} did not answer: {_first_line(error)}",
            hint="is it running, and is RANKSCOPE_CLICKHOUSE_URL right?",
        )


def _embedded_client(url: str, limits: Mapping[str, str | int | float]) -> Client:
    client = clickhouse_connect.get_client(dsn=url)
    # Limits travel once, by SET: clickhouse-connect would append them to each query, and readonly=1 refuses that.
    for name, value in limits.items():
        client.command(f"SET {name} = {value!r}")
    client.command("SET readonly = 1")
    return client


def _server_client(url: str, limits: Mapping[str, str | int | float]) -> Client:
    client = clickhouse_connect.get_client(
        dsn=url,
        settings=dict(limits),
        autogenerate_session_id=False,  # a session refuses a second query at a time
        connect_timeout=5,
        send_receive_timeout=int(limits["max_execution_time"]) + 10,
    )
    client.set_client_setting("readonly", 1)  # last: it travels behind the settings it would refuse
    return client


def _writing_client(url: str) -> Client:
    if urlsplit(url).scheme == "chdb":
        return clickhouse_connect.get_client(dsn=url)
    return clickhouse_connect.get_client(
        dsn=url, autogenerate_session_id=False, connect_timeout=5, send_receive_timeout=_ERASE_TIMEOUT_S
    )


@functools.lru_cache(maxsize=512)
def _integer_placeholders(statement: str) -> tuple[tuple[str, int, int], ...]:
    """(name, least, greatest value) of each integer placeholder."""
    found: list[tuple[str, int, int]] = []
    for name, unsigned, bits in _PLACEHOLDER.findall(statement):
        size = int(bits)
        found.append((name, 0, 2**size - 1) if unsigned else (name, -(2 ** (size - 1)), 2 ** (size - 1) - 1))
    return tuple(found)


def check_ranges(statement: str, parameters: Mapping[str, Value]) -> None:
    """Refuses an integer that its placeholder's type cannot hold.

    Raises:
        InvalidRequestError: Names the value and the range.
    """
    for name, low, high in _integer_placeholders(statement):
        given = parameters[name]
        for value in given if isinstance(given, list | tuple) else (given,):
            if isinstance(value, int) and not low <= value <= high:
                raise InvalidRequestError(f"{name} is {value}", hint=f"it must lie in {low}..{high}")


def _failed(text: str) -> QueryError:
    return QueryError(f"the store failed at a query: {text}", hint="its log holds the details")


def _first_line(error: Exception) -> str:
    """What happened, in one short line; of a failed connection only what the system said."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if of_the_system := _SYSTEM_ERROR.search(text):
        return of_the_system[1]
    return text.partition(" (for url ")[0][:300]
