"""A hang is found while it lasts, kept once, and told once to the operator's address and to no other."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import pytest_asyncio

from rankscope_proto.names import ProcessRole
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import SettingsError, StoreUnavailableError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.standing import Standing
from rankscope_query_api.values import RunKey
from rankscope_query_api.vigil import Vigil
from rankscope_query_api.webhook import Webhook
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import Row, S, Writer

KEY = RunKey("default", "stopped")


class _Taker(BaseHTTPRequestHandler):
    """Takes what is posted, and answers as its server says."""

    def do_POST(self) -> None:
        """One finding."""
        taking = self.server
        assert isinstance(taking, _Taking)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        taking.taken.append((self.path, json.loads(body), dict(self.headers)))
        self.send_response(taking.status)
        self.send_header("Location", f"http://127.0.0.1:{taking.server_port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """Says nothing."""


class _Taking(ThreadingHTTPServer):
    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.taken: list[tuple[str, dict[str, Any], dict[str, str]]] = []


@contextmanager
def taking() -> Generator[_Taking]:
    """A web service on this machine."""
    server = _Taking()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def stopped(front_process: FrontProcess) -> Iterator[Store]:
    """A run whose rank 0 is stopped by a signal, as its agent says."""
    store = Store(front_process.url)
    migrate(store.client)
    yield store
    store.drop()


def _tell(store: Store, *, key: RunKey = KEY, still_s: int = 9) -> None:
    """What an agent says now."""
    now = time.time_ns()
    trainer = Writer(key.run, 0, project=key.project, world_size=1).seal(sealed_ns=now)
    of = trainer.header.incarnation
    row: Row = {
        "time": now,
        "of_hi": int.from_bytes(of[:8], "big"),
        "of_lo": int.from_bytes(of[8:], "big"),
        "state": "stopped",
        "since": now - still_s * S,
        "stack": '[{"thread": "MainThread", "frames": ["hold (train.py:7)"]}]',
    }
    agent = Writer(key.run, -1, project=key.project, role=ProcessRole.AGENT).seal(sealed_ns=now, standings=[row])
    for made in (trainer, agent):
        made.received = now
    insert(store.client, trainer, agent, token=str(now))


@asynccontextmanager
async def _opened(over: Store) -> AsyncGenerator[ClickHouseStore]:
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": over.url})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    yield store
    await store.close()


@pytest_asyncio.fixture
async def opened(stopped: Store) -> AsyncIterator[ClickHouseStore]:
    """The service's store over it."""
    async with _opened(stopped) as store:
        yield store


@pytest_asyncio.fixture
async def opened_own(own: Store) -> AsyncIterator[ClickHouseStore]:
    """The service's store over one that a test has alone."""
    async with _opened(own) as store:
        yield store


async def test_a_hang_is_kept_and_told_once_by_whichever_service_found_it_first(
    stopped: Store, opened: ClickHouseStore
) -> None:
    with taking() as server:
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/hook?channel=ops")
        first, second = (Vigil(opened, every_s=0.01, webhook=hook) for _ in range(2))
        before = await first.round()
        _tell(stopped)
        found = [await first.round(), await first.round(), await second.round()]
        _tell(stopped)
        found.append(await first.round())

    assert (before, found) == (0, [1, 0, 0, 0])
    [(path, told, headers)] = server.taken
    assert (path, told["run_id"], told["project"]) == ("/hook?channel=ops", KEY.run, "default")
    assert (told["finding"]["rule"], told["finding"]["rank"]) == ("hang", 0)
    assert "stack" not in told["finding"]["evidence"]
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers
    kept = await opened.findings.kept(KEY, launch=None, limit=10)
    assert [row["name"] for row in kept.items] == ["hang"]


Standings = tuple[Sequence[Standing], int]


def _asked_first(
    opened: ClickHouseStore, monkeypatch: pytest.MonkeyPatch, answer: Callable[[RunKey, str], Awaitable[Standings]]
) -> list[RunKey]:
    """Where standings are looked up by something else first; in the order of the runs that were asked for."""
    asked: list[RunKey] = []

    async def standings(key: RunKey, launch: str) -> Standings:
        asked.append(key)
        return await answer(key, launch)

    monkeypatch.setattr(opened.standing, "standings", standings)
    return asked


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), ValueError("no state")])
async def test_a_run_that_cannot_be_looked_at_keeps_no_other_projects_from_its_turn(
    error: Exception, own: Store, opened_own: ClickHouseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ill, others = RunKey("ill", "run"), RunKey("other", "run")
    plain = opened_own.standing.standings

    async def refused(key: RunKey, launch: str) -> Standings:
        if key == ill:
            raise error
        return await plain(key, launch)

    _tell(own, key=others)
    _tell(own, key=ill)
    asked = _asked_first(opened_own, monkeypatch, refused)
    found = await Vigil(opened_own, every_s=0.01).round()

    assert (asked, found) == ([ill, others], 1)


async def test_a_run_that_takes_all_the_time_of_a_round_has_the_last_turn_in_the_next(
    own: Store, opened_own: ClickHouseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, others = RunKey("slow", "run"), RunKey("other", "run")
    reached = asyncio.Event()

    async def waiting(key: RunKey, _: str) -> Standings:
        if key == slow:
            reached.set()
            await asyncio.Event().wait()
        return [], 0

    asked = _asked_first(opened_own, monkeypatch, waiting)
    vigil = Vigil(opened_own, every_s=0.01)
    for _ in range(2):
        for key in (others, slow):
            _tell(own, key=key)
        reached.clear()
        turn = asyncio.create_task(vigil.round())
        await reached.wait()
        turn.cancel()
        await asyncio.wait([turn])

    assert asked == [slow, others, slow]


async def test_what_cannot_be_told_is_not_told_again_and_no_redirect_is_followed() -> None:
    with taking() as server:
        server.status = 307
        taken = await Webhook(f"http://127.0.0.1:{server.server_port}/").post({"rank": 0})
    gone = await Webhook(f"http://127.0.0.1:{server.server_port}/").post({"rank": 0})

    assert (taken, gone) == (False, False)
    assert [path for path, _, _ in server.taken] == ["/"]


async def test_a_store_that_is_away_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": "http://127.0.0.1:1/"})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    with pytest.raises(StoreUnavailableError):
        await Vigil(store, every_s=0.01).round()
    said = asyncio.Event()

    def told(*_: object) -> None:
        said.set()

    monkeypatch.setattr(logging.getLogger("rankscope_query_api.vigil"), "warning", told)
    watching = asyncio.create_task(Vigil(store, every_s=0.001).watch())
    await said.wait()
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching])
    await store.close()


@pytest.mark.parametrize(
    "url",
    ["http://example.com/hook", "ftp://127.0.0.1/", "https://", "https://me:hush@host/", "http://127.0.0.1:0/", "x"],
)
def test_findings_are_told_over_https_or_on_this_machine_alone(url: str) -> None:
    with pytest.raises(SettingsError, match="RANKSCOPE_WEBHOOK_URL is not usable") as refused:
        Settings.from_environment({"RANKSCOPE_WEBHOOK_URL": url})

    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://host/a?b=c", "http://localhost:1/", "http://[::1]:8/", "http://127.1.2.3/"])
def test_an_address_that_may_be_told_is_a_secret(url: str) -> None:
    settings = Settings.from_environment({"RANKSCOPE_WEBHOOK_URL": url})

    assert settings.webhook_url.get_secret_value() == url
    assert url not in repr(settings)
