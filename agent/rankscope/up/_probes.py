"""Does a part answer yet? Asked with nothing but sockets, so that asking imports no client library."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from rankscope_proto.identity import SHARDS

INTERVAL_S = 0.03
PATIENCE_S = 2.0


async def until(answers: Callable[[], Awaitable[bool]]) -> None:
    """Return when `answers` says yes; a refused connection or a slow answer is a no."""
    while not await _bounded(answers):  # noqa: ASYNC110 - another process sets no event of ours
        await asyncio.sleep(INTERVAL_S)


async def _bounded(answers: Callable[[], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await answers()
    except OSError:  # TimeoutError is one
        return False


async def broker_answers(path: Path) -> bool:
    """Whether a broker at this unix socket answers PING: not while it still loads its file."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(b"PING\r\n")
        return (await reader.readline()).startswith(b"+PONG")
    finally:
        writer.close()


async def broker_is_drained(path: Path) -> bool:
    """Whether no accepted batch waits in the broker at this unix socket: the writer deletes what it committed."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.writelines(f"XLEN rankscope:{{s{shard:02}}}:in\r\n".encode() for shard in range(SHARDS))
        lengths = [await reader.readline() for _ in range(SHARDS)]
        return all(length == b":0\r\n" for length in lengths)
    finally:
        writer.close()


async def listens(port: int) -> bool:
    """Whether something accepts connections on this loopback port."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True


async def http_ready(port: int) -> bool:
    """Whether `GET /readyz` on this loopback port answers 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
