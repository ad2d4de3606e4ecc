"""A network that misbehaves on demand: a proxy between two real processes that delays, throttles, cuts and spoils.

The kernel of a small machine cannot be relied on for that (netem is often missing), and a cut at a chosen byte needs
to see the bytes. A fault is a state that lasts until the next one is set; a cut happens once, at the next request.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

CHUNK = 64 * 1024
REPLY_HOLD_S = 0.3
"""How long replies are swallowed before a cut after a request: the receiver has done its work by then."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes closing send RST instead of FIN."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to every byte until another fault is set; the default lets all pass.

    Attributes:
        delay_s: Each chunk waits that long.
        bytes_per_s: Most bytes a second and direction; 0: no bound.
        is_refusing: New connections are reset.
        is_half_open: Connections stand and nothing passes either way.
        xor_every: Every so-many-th byte towards the upstream is inverted; 0: none.
    """

    delay_s: float = 0.0
    bytes_per_s: int = 0
    is_refusing: bool = False
    is_half_open: bool = False
    xor_every: int = 0


class Cut(StrEnum):
    """Where a connection is reset."""

    BEFORE_REQUEST = "before_request"
    """The next bytes of the client never reach the upstream."""
    MID_REQUEST = "mid_request"
    """Half of the next bytes of the client reach the upstream."""
    AFTER_REQUEST = "after_request"
    """All of them reach it, and its replies do not come back."""
    MID_REPLY = "mid_reply"
    """Half of the next bytes of the upstream reach the client."""


@dataclass(slots=True)
class _Armed:
    cut: Cut
    times: int
    at_least: int


class Proxy:
    """Listens on a loopback port and passes bytes on to an upstream.

    Args:
        upstream: `host:port`, or a path beginning with "/": a Unix socket.
        port: Where to listen; 0: any free port.

    Attributes:
        port: Where it listens.
        cuts: Connections reset so far by `cut`.
        connections: Connections accepted so far.
    """

    def __init__(self, upstream: str, *, port: int = 0) -> None:
        self.upstream = upstream
        self.cuts = self.connections = 0
        self._fault = Fault()
        self._healed = asyncio.Event()
        self._armed: _Armed | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", port, limit=CHUNK))
        self.port = int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        """host:port where it listens."""
        return f"127.0.0.1:{self.port}"

    def set(self, fault: Fault) -> None:
        """Lets a fault begin; bytes already on their way keep the old one."""
        self._do(self._set(fault))

    def heal(self) -> None:
        """Lets everything pass again."""
        self.set(Fault())

    def cut(self, cut: Cut, *, times: int = 1, at_least: int = 1) -> None:
        """Resets the next `times` connections that carry a chunk of `at_least` bytes."""
        self._armed = _Armed(cut, times, at_least)

    def cut_all(self) -> None:
        """Resets every connection that stands now."""
        self._do(self._reset_all())

    def stop(self) -> None:
        """Closes everything; the port is free when this returns."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _set(self, fault: Fault) -> None:
        self._fault = fault
        if not fault.is_half_open:
            self._healed.set()
        else:
            self._healed.clear()

    async def _close(self) -> None:
        self._server.close()
        await self._reset_all()
        await self._server.wait_closed()

    async def _reset_all(self) -> None:
        open_now = list(self._open)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        with suppress(asyncio.CancelledError):
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            if self._fault.is_refusing:
                return
            back, there = await self._connect()
            link = _Link(self, writer, there)
            ways = {asyncio.create_task(link.requests(reader)), asyncio.create_task(link.replies(back))}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            return
        finally:
            for end in (writer, there):
                if end is not None:
                    _reset(end)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.upstream.startswith("/"):
            return await asyncio.open_unix_connection(self.upstream, limit=CHUNK)
        host, _, port = self.upstream.rpartition(":")
        return await asyncio.open_connection(host, int(port), limit=CHUNK)

    def take_cut(self, size: int, *cuts: Cut) -> Cut | None:
        """The cut that is due for a chunk of that size, if it is one of these."""
        armed = self._armed
        if armed is None or armed.cut not in cuts or size < armed.at_least:
            return None
        armed.times -= 1
        self.cuts += 1
        if not armed.times:
            self._armed = None
        return armed.cut

    async def hold_up(self, size: int) -> None:
        """Waits as the fault says; half open: until it is healed."""
        if self._fault.is_half_open:
            await self._healed.wait()
        fault = self._fault
        pause = fault.delay_s + (size / fault.bytes_per_s if fault.bytes_per_s else 0.0)
        if pause:
            await asyncio.sleep(pause)

    def spoilt(self, chunk: bytes) -> bytes:
        """The chunk as it arrives."""
        if not (every := self._fault.xor_every):
            return chunk
        bytes_ = bytearray(chunk)
        bytes_[every - 1 :: every] = bytes(byte ^ 0xFF for byte in bytes_[every - 1 :: every])
        return bytes(bytes_)


class _Link:
    """One connection through the proxy; each way ends when the connection does."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, upstream: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._is_mute = False

    async def requests(self, reader: asyncio.StreamReader) -> None:
        while chunk := await _next(reader):
            await self._proxy.hold_up(len(chunk))
            cut = self._proxy.take_cut(len(chunk), Cut.BEFORE_REQUEST, Cut.MID_REQUEST, Cut.AFTER_REQUEST)
            if cut is None:
                await _send(self._upstream, self._proxy.spoilt(chunk))
                continue
            if cut is not Cut.BEFORE_REQUEST:
                self._is_mute = True
                await _send(self._upstream, chunk if cut is Cut.AFTER_REQUEST else chunk[: len(chunk) // 2])
                await asyncio.sleep(REPLY_HOLD_S)
            return

    async def replies(self, reader: asyncio.StreamReader) -> None:
        while chunk := await _next(reader):
            await self._proxy.hold_up(len(chunk))
            if self._is_mute:
                continue
            if self._proxy.take_cut(len(chunk), Cut.MID_REPLY) is not None:
                await _send(self._client, chunk[: len(chunk) // 2])
                return
            await _send(self._client, chunk)


async def _next(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):
        return await reader.read(CHUNK)
    return b""


async def _send(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    writer.write(chunk)
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw: socket.socket | None = writer.get_extra_info("socket")
    if raw is not None and raw.family != socket.AF_UNIX:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
