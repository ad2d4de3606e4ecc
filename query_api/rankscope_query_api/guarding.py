"""What stands before the routes: who may ask, and how much a request may bring.

A browser lets any web page send a request to 127.0.0.1, and a page whose name was made to resolve to 127.0.0.1 may
even read the answer. So a service on loopback answers to loopback names and its own address only, and no request
that a page of another site sends is answered, whatever the address. A body is read here, whole and up to a limit:
the parsers behind hold a few copies of it, in a process that may also hold the writer and the store.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankscope.up import is_loopback_host
from rankscope_query_api.answers import json_answer
from rankscope_query_api.errors import ForeignRequestError, MisdirectedError, QueryError, TooLargeError
from rankscope_query_api.settings import Settings

MAX_BODY_BYTES = 256 * 1024
"""Four times the longest query there is."""


class Guarded:
    """Answers what must not reach the routes itself.

    Args:
        app: The routes.
        settings: Where the service listens.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._own_host = settings.host.lower()

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
        await self._app(scope, _repeated(received, receive), send)

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


def _repeated(messages: Sequence[Message], receive: Receive) -> Receive:
    waiting = list(reversed(messages))

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving
