"""Reads a data folder when no server runs: the query service over it, in this process, for as long as needed."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Self

from rankscope.up._errors import PartFailedError, UpError
from rankscope.up._folder import DataFolder
from rankscope.up._ports import any_free_port
from rankscope.up._probes import http_ready, until
from rankscope.up._server import working_in
from rankscope.up._services import Serve, load_service, require

START_ALLOWANCE_S = 180.0


class NothingKeptError(UpError):
    """The data folder holds no data yet."""

    code = "nothing_kept"


@contextmanager
def reading(folder: DataFolder) -> Generator[str]:
    """The URL of a query service over `folder` that ends with the block.

    Raises:
        FolderHeldError: another process holds the folder.
        MissingExtraError: the embedded store is not installed.
        NothingKeptError: the folder holds no data.
        PartFailedError: the query service did not start.
    """
    if not folder.store.is_dir() or not any(folder.store.iterdir()):
        raise NothingKeptError(
            f"no server runs and there is no data in {folder.path}",
            hint="start with `rankscope demo`, or name the folder with --home or RANKSCOPE_HOME",
        )
    require("reading a data folder", "chdb", extra="embedded,server")
    serve = load_service("query-service")
    with folder.held(reads=True), working_in(folder.store):
        port = any_free_port()
        settings = {
            "RANKSCOPE_HOME": str(folder.path),
            "RANKSCOPE_CLICKHOUSE_URL": f"chdb://{folder.store}",
            "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}",
            "RANKSCOPE_VIGIL_EVERY_S": "0",  # nothing goes on in a folder without a server
        }
        with _ServiceThread(serve, settings) as service:
            service.wait_ready(port)
            yield f"http://127.0.0.1:{port}"


class _ServiceThread:
    """A service on an event loop of its own thread, between `__enter__` and `__exit__`."""

    def __init__(self, serve: Serve, settings: Mapping[str, str]) -> None:
        self._serve = serve
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rankscope query-service")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def wait_ready(self, port: int) -> None:
        """Return when the service answers on `port`.

        Raises:
            PartFailedError: it ended, or did not answer in time.
        """

        async def ready_or_over() -> None:
            async with asyncio.timeout(START_ALLOWANCE_S):
                await until(lambda: self._is_over_or_ready(port))

        try:
            asyncio.run(ready_or_over())
        except TimeoutError as error:
            raise PartFailedError("query-service", f"it did not answer within {START_ALLOWANCE_S:g} s") from error
        if not self._thread.is_alive():
            raise PartFailedError("query-service", str(self._failure or "it ended by itself")) from self._failure

    async def _is_over_or_ready(self, port: int) -> bool:
        return not self._thread.is_alive() or await http_ready(port)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve(self._settings, self._stop))
        except Exception as error:  # noqa: BLE001 - a thread's boundary: it travels to wait_ready
            self._failure = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
