"""The one door to ClickHouse or chDB: bound parameters in, columns out, foreign errors mapped.

It promises three things. A handle that saw any error is never used again: after a failed query the same chDB handle
returns the failed query's rows in front of the next answer (909,325 rows of another project were seen). A handle
that reads cannot write: its limits are set first and then `readonly=1`, which nothing on it can undo; what deletes
or writes has a handle of its own, for that long only. An integer
parameter outside its type is refused: ClickHouse wraps it silently (`{x:UInt8}` with 256 reads 0).
"""

import asyncio
import contextlib
import functools
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from rankscope_proto.storage import INSERT_SETTINGS, landing_schema
from rankscope_query_api.addresses import shown_store_url
from rankscope_query_api.errors import InvalidRequestError, QueryError, StoreUnavailableError
from rankscope_query_api.limits import THE_SERVICE, Asker, Limits
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.room import HELD, Holding
from rankscope_query_api.settings import Settings
from rankscope_query_api.store_errors import mapped
from rankscope_query_api.turns import Turns
from rankscope_query_api.values import Table, Value

logger = logging.getLogger(__name__)

_TIMES_AS_TICKS = {"DateTime*": "int"}
"""Python's own times end at microseconds."""

_ERASE_TIMEOUT_S = 3600
"""Parts are rewritten, and a run may be in many."""

_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

_PLACEHOLDER = re.compile(r"\{(\w+):(?:Array\()?(U?)Int(8|16|32|64)\)?\}")


_KILL = "KILL QUERY WHERE Settings['log_comment'] = {mark:String} ASYNC"
"""One may end one's own queries on a handle that only reads. A handle is known by a comment of its own: the text of a
statement with parameters is written anew by the store, without what was put before it, and chDB takes no query id."""

_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 1.0
"""Pauses between two looks at whether a query that nobody waits for has ended: the store may not have begun it yet when
it is told to end it."""

_MOST_KEPT = 8
"""Handles that a thread keeps, each for other limits: opening one takes 26 ms with chDB."""


class Selecting(Protocol):
    """What a reader needs of the door."""

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs one statement; see `ClickHouse.select`."""
        ...

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """Runs statements that delete; see `ClickHouse.erase`."""
        ...

    async def insert(self, body: bytes, *, token: str) -> None:
        """Writes batches; see `ClickHouse.insert`."""
        ...


@dataclass(slots=True)
class _Query:
    """One statement on its way through a handle.

    Attributes:
        statement: The statement.
        parameters: The values of its placeholders.
        limits: What it may cost.
        has_ended: Set once its handle is free.
        lock: Held while the store is told to end it, so that no later query of its handle is meant.
        mark: Of the handle that it runs on; "": on none.
    """

    statement: str
    parameters: Mapping[str, Value]
    limits: Limits
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    mark: str = ""


class ClickHouse:
    """A few read-only handles to one database, each used by one thread of its own.

    A query whose asker is gone (its task was cancelled) is ended in the store; its handle is free once it has.

    Args:
        settings: Address and limits.
        metrics: Where the time of each query is counted.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._url = settings.clickhouse_url.get_secret_value()
        self._executor = ThreadPoolExecutor(settings.query_handles, thread_name_prefix="rankscope-query")
        self._ender = ThreadPoolExecutor(1, thread_name_prefix="rankscope-query-end")
        self._turns = Turns(settings)
        self._endings: set[asyncio.Task[None]] = set()
        self._own = threading.local()
        self._lock = threading.Lock()
        self._open: dict[Client, str] = {}

    async def select(self, statement: str, parameters: Mapping[str, Value], *, asker: Asker = THE_SERVICE) -> Table:
        """Runs one statement.

        Args:
            statement: One SELECT; every value is a `{name:Type}` placeholder.
            parameters: The values of the placeholders.
            asker: Whose limits and whose turn it is.

        Raises:
            InvalidRequestError: An integer does not fit its placeholder.
            LimitExceededError: The statement would cost more than its asker may.
            BusyError: No handle came free for the asker, or there is no room for more answers.
            StoreUnavailableError: The store did not answer or has no tables.
        """
        check_ranges(statement, parameters)
        started = time.perf_counter()
        outcome = "failed"
        try:
            query, held = _Query(statement, parameters, Limits.of(self._settings, asker)), HELD.get()
            with held.asking() if held else contextlib.nullcontext():
                table = await self._in_turn(query, asker, held=held)
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

        def erase(client: Client) -> None:
            for statement in statements:
                client.command(statement, parameters=dict(parameters))

        await asyncio.to_thread(self._write, erase)

    async def insert(self, body: bytes, *, token: str) -> None:
        """Writes length-delimited batches, once for each token; on a handle of its own, and raises as `erase` does."""
        settings = {**INSERT_SETTINGS, "format_schema": landing_schema(), "insert_deduplication_token": token}

        def insert(client: Client) -> None:
            client.raw_insert("landing", insert_block=body, fmt="Protobuf", settings=settings)

        await asyncio.to_thread(self._write, insert)

    async def close(self) -> None:
        """Waits for the queries that run and closes every handle."""
        await asyncio.to_thread(self._executor.shutdown)
        await asyncio.gather(*self._endings)
        await asyncio.to_thread(self._ender.shutdown)
        for client in tuple(self._open):
            self._discard(client)

    async def _in_turn(self, query: _Query, asker: Asker, *, held: Holding | None) -> Table:
        await self._turns.take(asker)
        while held is not None and not held.has_room:
            # Nobody waits for room with a handle in hand: who fills it may need one to be done.
            self._turns.give_back(asker)
            await held.admit()
            await self._turns.take(asker)
        self._metrics.handles_held.inc()
        loop = asyncio.get_running_loop()

        def free() -> None:
            self._turns.give_back(asker)
            self._metrics.handles_held.dec()
            query.has_ended.set()

        work = self._executor.submit(self._select, query)
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(free))
        try:
            table = await asyncio.wrap_future(work)
            if held is not None:
                held.read(table.columns)
            return table
        except asyncio.CancelledError:
            ending = loop.create_task(self._end(query), name="query-end")
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            raise

    def _select(self, query: _Query) -> Table:
        try:
            client = self._handle(query.limits, remembers=_may_remember(query.statement))
        except (ClickHouseError, OSError, ValueError, TypeError) as error:
            raise self._unreachable(error) from error
        query.mark = self._open[client]
        try:
            result = client.query(
                query.statement,
                parameters=dict(query.parameters),
                column_oriented=True,
                query_formats=_TIMES_AS_TICKS,
            )
            return Table(result.column_names, result.result_columns, [kind.name for kind in result.column_types])
        except ClickHouseError as error:
            self._discard(client)
            raise self._mapped(error, query.limits) from error
        except BaseException:
            self._discard(client)
            raise
        finally:
            with query.lock:
                query.mark = ""

    async def _end(self, query: _Query) -> None:
        """Has a query ended that nobody waits for, and looks until its handle is free."""
        loop, pause_s = asyncio.get_running_loop(), _FIRST_LOOK_S
        while not query.has_ended.is_set():
            await loop.run_in_executor(self._ender, self._kill, query)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(query.has_ended.wait(), pause_s)
            pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _kill(self, query: _Query) -> None:
        client: Client | None = None
        try:
            client = self._handle(Limits.of(self._settings, THE_SERVICE), remembers=True)
            with query.lock:
                if query.mark:
                    client.query(_KILL, parameters={"mark": query.mark})
        except (ClickHouseError, OSError, ValueError, TypeError) as error:
            if client is not None:
                self._discard(client)
            # It ends by its limit of time then.
            logger.warning("a query nobody waits for cannot be ended: %s", _first_line(error))

    def _write(self, work: Callable[[Client], None]) -> None:
        try:
            client = _writing_client(self._url)
        except (ClickHouseError, OSError, ValueError, TypeError) as error:
            raise self._unreachable(error) from error
        try:
            work(client)
        except ClickHouseError as error:
            raise self._mapped(error, Limits.of(self._settings, THE_SERVICE)) from error
        finally:
            client.close()

    def _handle(self, limits: Limits, *, remembers: bool) -> Client:
        """This thread's handle with these limits, for statements whose conditions are remembered, or are not."""
        clients = self._clients()
        key = (remembers, limits.values)
        client = clients.pop(key, None) or self._connect(limits, remembers=remembers)
        clients[key] = client  # the last one now: the first is the one that was not asked for the longest
        if len(clients) > _MOST_KEPT:
            self._discard(next(iter(clients.values())))
        return client

    def _clients(self) -> dict[tuple[bool, tuple[float, ...]], Client]:
        return self._own.__dict__.setdefault("clients", {})

    def _connect(self, limits: Limits, *, remembers: bool) -> Client:
        mark = f"rankscope {uuid4().hex}"
        settings: dict[str, str | int | float] = {
            "max_execution_time": limits.seconds.value,
            "max_rows_to_read": limits.rows_read.value,
            "max_memory_usage": limits.memory_bytes.value,
            "max_result_rows": limits.result_rows.value,
            "max_result_bytes": limits.result_bytes.value,
            "result_overflow_mode": "throw",
            "use_query_condition_cache": int(remembers),
            # A page in the order of the table is read until it is full; a buffer reads on in all parts (measured at
            # 10 million spans, a page of an attribute that one in a thousand has: 115 ms with it, 44 ms without).
            "read_in_order_use_buffering": 0,
            # An index that is used while the rows are read, and not before, took a trace's page 2 ms of 17 more.
            "use_skip_indexes_on_data_read": 0,
            # At its third evaluation a condition, constants and all, is compiled: a count of 4 ms took 18 once. Nothing
            # measured over millions of rows was faster for it.
            "compile_expressions": 0,
            "log_comment": mark,
        }
        embedded = urlsplit(self._url).scheme == "chdb"
        client = _embedded_client(self._url, settings) if embedded else _server_client(self._url, settings)
        with self._lock:
            self._open[client] = mark
        return client

    def _discard(self, client: Client) -> None:
        clients = self._clients()
        for key in [key for key, own in clients.items() if own is client]:
            del clients[key]
        with self._lock:
            self._open.pop(client, None)
        client.close()

    def _mapped(self, error: ClickHouseError, limits: Limits) -> QueryError:
        code: int | None = getattr(error, "code", None)
        return self._unreachable(error) if code is None else mapped(code, _first_line(error), limits=limits)

    def _unreachable(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"the store at {shown_store_url(self._url)} did not answer: {_first_line(error)}",
            hint="is it running, and is RANKSCOPE_CLICKHOUSE_URL right?",
        )


def _may_remember(statement: str) -> bool:
    """Whether the store may remember which rows lack a condition of the statement, and use it.

    Under a filter over a sub-select with PREWHERE and LIMIT, ClickHouse 26.9 remembers what the filter left out as left
    out by the PREWHERE: from then on whatever has that condition, of whichever handle, reads no row of those parts (240
    of 240 rows gone). A single SELECT is remembered rightly; without that a trace's id costs reading all ids of a run.
    """
    return "PREWHERE" not in statement or statement.upper().count("SELECT") == 1


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


def _first_line(error: Exception) -> str:
    """What happened, in one short line; of a failed connection only what the system said."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if of_the_system := _SYSTEM_ERROR.search(text):
        return of_the_system[1]
    return text.partition(" (for url ")[0][:300]
