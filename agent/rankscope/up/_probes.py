"""Does a part answer yet? Asked with nothing but sockets, so that asking imports no client library."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
    return await _replies(path, ["PING"]) == [b"+PONG"]


async def writer_writes(path: Path) -> bool:
    """Whether writers hold every shard of the broker at this unix socket: they take them when the tables stand."""
    leases = await _replies(path, [f"EXISTS rankscope:{{s{shard:02}}}:lease" for shard in range(SHARDS)])
    return all(held == b":1" for held in leases)


async def broker_is_drained(path: Path) -> bool:
    """Whether no accepted batch waits in the broker at this unix socket: the writer deletes what it committed."""
    lengths = await _replies(path, [f"XLEN rankscope:{{s{shard:02}}}:in" for shard in range(SHARDS)])
    return all(length == b":0" for length in lengths)


async def _replies(path: Path, commands: Sequence[str]) -> list[bytes]:
    """What the broker says to each command, one line each; inline commands need no client library."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.writelines(f"{command}\r\n".encode() for command in commands)
        return [(await reader.readline()).rstrip(b"\r\n") for _ in commands]
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
