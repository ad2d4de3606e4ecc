"""The front over HTTP: what is looked at before a body is read, the one route, and every answer in one JSON shape.

A browser lets any page send a request to 127.0.0.1. So a front on loopback answers to loopback names and its own
address only, and no request of another site's page is answered. A body is read whole, up to a limit, and only so many
at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

import orjson
from starlette.datastructures import Headers, QueryParams
from starlette.types import Receive, Scope, Send

from rankscope._plaintext import is_loopback_host
from rankscope.front.access import Access, run_of
from rankscope.front.book import RunName
from rankscope.front.desk import Desk, checked_key
from rankscope.front.errors import (
    BusyError,
    ForbiddenError,
    FrontError,
    InvalidRequestError,
    MisdirectedError,
    TooLargeError,
    UnknownRouteError,
    WrongMethodError,
)

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024
BODY_S = 30
MOST_AT_ONCE = 32
"""Requests whose bodies are read or waiting at a time: what they hold is bounded by it."""

PREFIX, SUFFIX = "/api/runs/", "/traces/events"
HEALTH = frozenset({"/healthz", "/readyz"})


@dataclass(slots=True)
class App:
    """The ASGI application.

    Attributes:
        desk: Takes requests.
        worker: The one thread in which it does.
        access: Who may send.
        host: The address listened on.
        on_accept: Called after each request that was taken.
    """

    desk: Desk
    worker: Executor
    access: Access
    host: str
    on_accept: Callable[[], object]
    _under_way: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        try:
            self._refuse_foreign(headers)
            status, body = HTTPStatus.OK, await self._answered(scope, headers, receive)
            more: Mapping[str, str] = {}
        except FrontError as error:
            status, body, more = error.status, orjson.dumps(error.as_json()), _headers_of(error, headers)
        except Exception:
            logger.exception("a request failed", extra={"path": scope["path"]})
            error = FrontError("the request failed here; what came of it is not known", hint="send it again")
            status, body, more = error.status, orjson.dumps(error.as_json()), {}
        await _send(send, status, body, more)

    async def _answered(self, scope: Scope, headers: Headers, receive: Receive, /) -> bytes:
        if scope["path"] in HEALTH:
            return b'{"status":"ok"}'
        run = _run_in(scope)
        if scope["method"] != "POST":
            raise WrongMethodError(f"{scope['method']} is not answered here", hint="events are sent by POST")
        name = RunName(self.access.project_of(headers, QueryParams(scope["query_string"])), run_of(run))
        key = checked_key(headers.getlist("idempotency-key"))
        _refuse_encoded(headers)
        if self._under_way >= MOST_AT_ONCE:
            raise BusyError(f"{MOST_AT_ONCE} requests are under way", hint="send it again after Retry-After")
        self._under_way += 1
        try:
            body = await _in_time(headers, receive)
            answer = await asyncio.get_running_loop().run_in_executor(self.worker, self.desk.accept, name, key, body)
        finally:
            self._under_way -= 1
        self.on_accept()
        return answer

    def _refuse_foreign(self, headers: Headers) -> None:
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and is_loopback_host(self.host) and not self._is_own(_name_in(host)):
            raise MisdirectedError(
                f"this service is not {host[:200]!r}",
                hint="ask it at the address it listens on, or have it listen on one that others may use: --http",
            )
        own = {f"{scheme}://{(host or '').lower()}" for scheme in ("http", "https")}
        if origin is not None and origin.lower() not in own:
            raise ForbiddenError(
                f"a page of {origin[:200]!r} may not send here", hint="send the request from a program"
            )

    def _is_own(self, name: str) -> bool:
        return is_loopback_host(name) or name.lower() == self.host.lower()


def _run_in(scope: Scope) -> str:
    """The run in a path, of which it is one part: a slash in its name is written %2F.

    Raises:
        UnknownRouteError: it is no path of ours.
    """
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
    run = path.removeprefix(PREFIX).removesuffix(SUFFIX)
    if path != f"{PREFIX}{run}{SUFFIX}" or "/" in run:
        raise UnknownRouteError(
            f"there is nothing at {scope['path'][:200]}", hint=f"events go to POST {PREFIX}RUN{SUFFIX}"
        )
    try:
        return unquote(run, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequestError("the run's name in the path is no UTF-8", hint="escape its UTF-8 bytes") from None


def _refuse_encoded(headers: Headers) -> None:
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise InvalidRequestError(f"Content-Encoding {encoding[:40]!r} is not read here", hint="send plain JSON")


async def _in_time(headers: Headers, receive: Receive) -> bytes:
    """The body, unless it takes longer than `BODY_S`: who sends nothing must not keep others out."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _whole(headers, receive)
    except TimeoutError:
        raise InvalidRequestError(f"the body did not come within {BODY_S} s", hint="send it again") from None


async def _whole(headers: Headers, receive: Receive) -> bytes:
    """The body.

    Raises:
        TooLargeError: it is longer than `MAX_BODY_BYTES`, or says so.
        InvalidRequestError: the client went away before its end.
    """
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > MAX_BODY_BYTES:
        raise _too_large()
    parts: list[bytes] = []
    size, is_over = 0, False
    while not is_over:
        message = await receive()
        if message["type"] != "http.request":
            raise InvalidRequestError("the body ended before its end", hint="send it again")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise _too_large()
        is_over = not message.get("more_body", False)
    return b"".join(parts)


def _too_large() -> TooLargeError:
    return TooLargeError(f"a body has at most {MAX_BODY_BYTES} bytes", hint="send fewer events in one request")


def _headers_of(error: FrontError, headers: Headers) -> dict[str, str]:
    # Where its body was not read the connection cannot be used again.
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return dict(error.headers) | ({"Connection": "close"} if has_body and error.status in _UNREAD else {})


_UNREAD = frozenset({400, 401, 403, 404, 405, 413, 421, 429})
"""Statuses that are decided, or may be, before a body is read."""


def _name_in(host: str) -> str:
    """The name in a Host header, without port and brackets; "" where it cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _send(send: Send, status: HTTPStatus, body: bytes, more: Mapping[str, str], /) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(body)), **more}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status.value, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
