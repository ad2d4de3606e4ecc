"""What stands before the routes: who may ask, and how much a request may bring.

A browser lets any web page send a request to 127.0.0.1, and a page whose name was made to resolve to 127.0.0.1 may
even read the answer. So a service on loopback answers to loopback names and its own address only, and no request
that a page of another site sends is answered, whatever the address. A body is read here, whole and up to a limit:
the parsers behind hold a few copies of it, in a process that may also hold the writer and the store.

Who closes the connection before the answer waits for nothing any more: the request's task is cancelled, which ends its
queries in the store. A deletion that was asked for is done all the same. Who keeps the connection and takes nothing of
its answer loses it after a time: an answer is passed on in pieces, and counted until the last one is taken.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankscope.up import is_loopback_host
from rankscope_query_api.answers import json_answer
from rankscope_query_api.errors import ForeignRequestError, MisdirectedError, QueryError, TooLargeError
from rankscope_query_api.room import HELD, Holding, Room
from rankscope_query_api.settings import Settings

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 * 1024
"""Four times the longest query there is."""

PIECE_BYTES = 64 * 1024
"""Of an answer, passed on at a time: what the connection holds beside the answer itself."""

CLIENT_GONE = 499
"""Status that a request without anybody to answer to is counted under."""


class Guarded:
    """Answers what must not reach the routes itself.

    Args:
        app: The routes.
        settings: Where the service listens.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._own_host = settings.host.lower()
        self._room = Room(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._refuse_foreign(Headers(scope=scope))
            received = await _whole_body(Headers(scope=scope), receive)
        except QueryError as error:
            await json_answer(error.as_json(), status=error.status)(scope, receive, send)
            return
        attended = _Attended(receive, send, room=self._room)
        await attended.run(self._app, scope, received=received)

    def _refuse_foreign(self, headers: Headers) -> None:
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and is_loopback_host(self._own_host) and not self._is_own(_name_in(host)):
            raise MisdirectedError(
                f"this service is not {host[:200]!r}",
                hint="ask it at the address it listens on, or set RANKSCOPE_QUERY_LISTEN to one that others may use",
            )
        if origin is not None and origin.lower() not in _origins_of(host or ""):
            raise ForeignRequestError(
                f"a page of {origin[:200]!r} may not ask this service",
                hint="send the request from a program, or through a server of the page's own site",
            )

    def _is_own(self, name: str) -> bool:
        return is_loopback_host(name) or name.lower() == self._own_host


class _Attended:
    """One request, for as long as somebody waits for its answer.

    Args:
        receive: Where it is told that the client is gone; the body was taken out of it.
        send: Where the answer goes.
        room: Of which it takes while somebody waits for it.
    """

    def __init__(self, receive: Receive, send: Send, *, room: Room) -> None:
        self._receive = receive
        self._send = send
        self._patience_s = room.patience_s
        self._held = Holding(room)
        self._has_begun = self._is_answered = False

    async def run(self, app: ASGIApp, scope: Scope, *, received: Sequence[Message]) -> None:
        """Answers it, or cancels what is under way for it."""
        leaving = asyncio.create_task(self._left())
        HELD.set(self._held)
        working = asyncio.ensure_future(app(scope, _repeated(received, leaving), self._sending))
        self._held.begin(lambda: self._lose(working))
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not self._is_answered and scope["method"] != "DELETE":
                working.cancel()
                await asyncio.wait({working})
            if working.cancelled():
                await self._count_unheard()
            else:
                await working
        finally:
            self._held.end()
            leaving.cancel()
            working.cancel()

    def _lose(self, working: "asyncio.Future[None]") -> None:
        logger.warning("an answer was dropped: its reader took nothing of it for %.3g s", self._held.waited_s)
        working.cancel()

    async def _left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _sending(self, message: Message) -> None:
        self._has_begun = True
        if message["type"] != "http.response.body":
            await self._taken(message)  # a second answer on a connection waits here for the end of the first
            return
        self._held.written(len(message.get("body", b"")))
        for piece in _pieces(message):
            self._is_answered = not piece["more_body"]
            await self._taken(piece)
            await asyncio.sleep(0)  # others are answered between two pieces, and it is seen that the reader is gone

    async def _taken(self, piece: Message) -> None:
        """Passes a piece on, which waits until most of those before it are taken."""
        self._held.waits(for_reader=True)
        try:
            async with asyncio.timeout(self._patience_s):
                await self._send(piece)
        except TimeoutError:
            self._held.drop()
            await asyncio.get_running_loop().create_future()  # the cancellation ends it
        self._held.waits(for_reader=False)

    async def _count_unheard(self) -> None:
        """An answer that goes nowhere: the metrics look at its status."""
        if not self._has_begun:
            await self._send({"type": "http.response.start", "status": CLIENT_GONE, "headers": []})
            await self._send({"type": "http.response.body"})


def _pieces(message: Message) -> Iterator[Message]:
    """A part of an answer's body as the messages that it is passed on in."""
    body = memoryview(message.get("body", b""))
    for begin in range(0, max(1, len(body)), PIECE_BYTES):
        end = begin + PIECE_BYTES
        more = end < len(body) or bool(message.get("more_body"))
        yield {"type": message["type"], "body": bytes(body[begin:end]), "more_body": more}


def _origins_of(host: str) -> tuple[str, str]:
    """What a page that came from this service calls itself; a proxy in front may speak TLS."""
    return f"http://{host.lower()}", f"https://{host.lower()}"


def _name_in(host: str) -> str:
    """The name in a Host header, without port and brackets; "" where it cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _whole_body(headers: Headers, receive: Receive) -> Sequence[Message]:
    """The messages that make the body up.

    Raises:
        TooLargeError: It is longer than `MAX_BODY_BYTES`, or says so.
    """
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > MAX_BODY_BYTES:
        raise _too_large(f"{announced[:20]} bytes")
    messages: list[Message] = []
    size = 0
    while not messages or (messages[-1]["type"] == "http.request" and messages[-1].get("more_body")):
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
        if size > MAX_BODY_BYTES:
            raise _too_large("longer")
    return messages


def _too_large(found: str) -> TooLargeError:
    return TooLargeError(
        f"a body may have {MAX_BODY_BYTES} bytes, and this one is {found}",
        hint="send one query, without data around it",
    )


def _repeated(messages: Sequence[Message], leaving: "asyncio.Task[None]") -> Receive:
    waiting = list(reversed(messages))

    async def receiving() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.shield(leaving)
        return {"type": "http.disconnect"}

    return receiving
