"""The front in its process: a thread that listens, and one that keeps and writes.

Promises: `start` settles what a process before this one left, and returns once it listens; `close` takes no request
any more, writes what is whole, and leaves nothing running. Touches no signal.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import uvicorn

from rankscope._clock import Clock, SystemClock
from rankscope._settings import Settings
from rankscope.errors import ConfigError
from rankscope.front.access import Access
from rankscope.front.app import App
from rankscope.front.book import Book
from rankscope.front.desk import S_NS, Desk
from rankscope.front.options import FrontOptions
from rankscope.front.outbox import Outbox
from rankscope.privacy import Redactor

FILE = "front.db"
"""In the folder of the spools."""

GRACE_S = 2
LATEST_S = 5.0
"""How long the writing thread sleeps at most: a clock that is set must not hold it up."""

GATHER_S = 0.2
"""What comes within it is written together: a span is mostly two requests, a trace many spans."""


logger = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Signals belong to the process, and it says when it listens."""

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Front:
    """HTTP ingest in the process of an agent.

    Args:
        options: Where it listens, and whom it asks for a key.
        settings: The agent's; its folder of spools was found.
        redactor: Takes secrets out of everything before it is kept; None: the usual one.
        clock: Time; None: the machine's.

    Raises:
        ConfigError: it must not listen so, or cannot: names the setting.
    """

    def __init__(
        self,
        options: FrontOptions,
        settings: Settings,
        *,
        redactor: Redactor | None = None,
        clock: Clock | None = None,
    ) -> None:
        options.check()
        ring, self._tls = options.ring(), options.tls()
        self._access = Access(ring, options.project)
        self._settings = settings
        self._redactor = redactor or Redactor()
        self._clock = clock or SystemClock()
        self._host = options.host
        self._scheme = "https" if self._tls else "http"
        self._socket = _listening(options)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="rankscope-front-write")
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._book: Book | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    def start(self) -> None:
        """Settle what was left, before anybody sends from the spools; then listen.

        Raises:
            BookError: what an earlier process kept cannot be opened.
            OSError, SpoolError, UnavailableError: what was left cannot be settled now.
        """
        self._book = book = Book(self._settings.spool_root / FILE)
        outbox = Outbox(book, self._settings, clock=self._clock)
        outbox.recover()
        desk = Desk(book, outbox, redactor=self._redactor, clock=self._clock)
        self._thread = threading.Thread(target=self._run, args=(desk,), name="rankscope-front", daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Take no request any more, write what is whole, and let go; the second time does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._wake.set)
            self._thread.join()
        self._worker.shutdown()
        self._socket.close()
        self._loop.close()
        if self._book is not None:
            self._book.close()

    def _run(self, desk: Desk) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(desk))
        except Exception:
            logger.exception("HTTP ingest ended; what it took is kept for the next start of the agent")
        finally:
            self._ready.set()

    async def _serve(self, desk: Desk) -> None:
        app = App(desk, self._worker, self._access, self._host, self._wake.set)
        server = _Server(_config(app, self._tls), on_started=self._ready.set)
        serving = asyncio.create_task(server.serve(sockets=[self._socket]), name="front")
        try:
            await self._tend(desk)
        finally:
            server.should_exit = True
            await serving
            await self._loop.run_in_executor(self._worker, desk.close)

    async def _tend(self, desk: Desk) -> None:
        """Write what becomes due until it is time to stop."""
        while not self._stopping.is_set():
            due_ns = await self._loop.run_in_executor(self._worker, self._tended, desk)
            pause_s = min(LATEST_S, max(0.0, (due_ns - self._clock.wall_ns()) / S_NS))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            if self._wake.is_set() and not self._stopping.is_set():
                await asyncio.sleep(GATHER_S)
            self._wake.clear()

    def _tended(self, desk: Desk) -> int:
        try:
            return desk.tend()
        except Exception:  # what one span does must not end the taking of others
            logger.exception("spans that were taken cannot be written now")
            return self._clock.wall_ns() + S_NS


def _config(app: App, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ws="none",
    )
    config.load()
    config.ssl = tls  # a context of ours, not uvicorn's file options: a file that cannot be used was told before
    return config


def _listening(options: FrontOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family, backlog=512)
    except OSError as error:
        raise ConfigError(
            f"HTTP ingest cannot listen on {options.host}:{options.port}: {error.strerror}; "
            "name a free address of this machine with --http"
        ) from error
    # asyncio sets it only where a socket names its protocol, which those that this one accepts do not. Without it the
    # second packet of an answer waits for the first one's delayed acknowledgement: 44 ms of each answer.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


if TYPE_CHECKING:
    from rankscope.agent import serve

    _conforms: type[serve.Front] = Front
