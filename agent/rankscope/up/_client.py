"""Speaks HTTP to a query service with the standard library alone: the base install brings no HTTP client."""

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, BinaryIO, TypeVar, cast

from rankscope._plaintext import is_loopback_host
from rankscope.up._access import Access
from rankscope.up._errors import UpError

Json = dict[str, Any]
"""A decoded JSON object as the service sent it."""

Parameter = str | int | float | Sequence[str] | None

API = "/api/v1"
DEFAULT_TIMEOUT_S = 30.0
INTERVAL_S = 0.2
PIECE_BYTES = 2**20
SAID = "x-rankscope-"
"""What the names of headers begin with that say what JSON says beside the rows."""


class UnreachableError(UpError):
    """Nothing answered at the address, or not in time, or not with JSON."""

    code = "unreachable"


class BadUrlError(UpError):
    """What was given as the URL of a query service is none, or holds what must not be in one."""

    code = "usage"


class RefusedError(UpError):
    """The service answered with an error.

    Attributes:
        status: the HTTP status.
        error: the answer: code, message, hint, position, expected.
    """

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(str(error.get("message") or f"HTTP {status}"), hint=str(error.get("hint") or ""))
        self.status = status
        self.error = error
        self.code = str(error.get("code") or "refused")

    @property
    def may_come(self) -> bool:
        """Whether what was asked for is only not there, and may be on its way into the store."""
        return self.code in {"unknown_run", "unknown_step", "unknown_trace"}


@dataclass(frozen=True, slots=True)
class Body:
    """An answer that is no JSON.

    Attributes:
        content: The bytes.
        said: What the service says beside the rows, by name: `total`, `returned`, `truncated`, `next`, `gaps`, …
    """

    content: bytes
    said: Mapping[str, str]


Taken = TypeVar("Taken")


def _body(answer: HTTPResponse) -> Body:
    return Body(answer.read(), _said(dict(answer.headers)))


def _copied(answer: HTTPResponse, into: BinaryIO) -> int:
    size = 0
    while piece := answer.read(PIECE_BYTES):
        try:
            size += into.write(piece)
        except OSError as error:
            raise UpError(f"the answer cannot be written: {error.strerror or error}") from error
    # Reading piece by piece does not say that a length was announced and not kept.
    announced = answer.headers.get("content-length")
    if announced is not None and size != int(announced):
        raise IncompleteRead(b"", int(announced) - size)
    return size


@dataclass(frozen=True, slots=True)
class Client:
    """One query service.

    Attributes:
        url: `http://host:port`, without a path.
        timeout_s: how long one answer may take.
        patience_s: how long to ask again for a run, a step or a trace that is not there yet.
        access: the key and the certificates it asks with.

    Raises:
        BadUrlError: the URL cannot be one of a query service; no secret of it is in the message.
    """

    url: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    patience_s: float = 0.0
    access: Access = field(default_factory=Access)

    def __post_init__(self) -> None:
        """Refuse a URL before anything shows it."""
        check_url(self.url)

    def get(self, path: str, **parameters: Parameter) -> Json:
        """`GET /api/v1<path>`; parameters that are None are left out.

        Raises:
            RefusedError: the service answered with an error.
            UnreachableError: it did not answer.
        """
        asked = urllib.request.Request(self._address(path, parameters))  # noqa: S310 - the user names the server
        return _decoded(self._ask(asked).content, self.url)

    def post(self, path: str, body: Mapping[str, object], **parameters: Parameter) -> Json:
        """`POST /api/v1<path>` with a JSON body.

        Raises:
            RefusedError: the service answered with an error.
            UnreachableError: it did not answer.
        """
        return _decoded(self._ask(self._posting(path, body, parameters=parameters)).content, self.url)

    def fetch(self, path: str, body: Mapping[str, object], **parameters: Parameter) -> Body:
        """`POST /api/v1<path>` with a JSON body that asks for another format than JSON.

        Raises:
            RefusedError: the service answered with an error.
            UnreachableError: it did not answer.
        """
        return self._ask(self._posting(path, body, parameters=parameters))

    def save(self, path: str, into: BinaryIO, **parameters: Parameter) -> int:
        """`GET /api/v1<path>` into a file, piece by piece; how many bytes came.

        Raises:
            RefusedError: the service answered with an error.
            UnreachableError: it did not answer, or the answer broke off.
        """
        asked = urllib.request.Request(self._address(path, parameters))  # noqa: S310 - as above
        return self._ask(asked, lambda answer: _copied(answer, into))

    def delete(self, path: str, **parameters: Parameter) -> Json:
        """`DELETE /api/v1<path>`; parameters that are None are left out.

        Raises:
            RefusedError: the service answered with an error.
            UnreachableError: it did not answer.
        """
        asked = urllib.request.Request(self._address(path, parameters), method="DELETE")  # noqa: S310 - as above
        return _decoded(self._ask(asked).content, self.url)

    def _posting(
        self, path: str, body: Mapping[str, object], *, parameters: Mapping[str, Parameter]
    ) -> urllib.request.Request:
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return urllib.request.Request(self._address(path, parameters), data=data, headers=headers)  # noqa: S310 - as above

    def _address(self, path: str, parameters: Mapping[str, Parameter]) -> str:
        given = {name: value for name, value in parameters.items() if value is not None}
        query = f"?{urllib.parse.urlencode(given, doseq=True)}" if given else ""
        return f"{self.url.rstrip('/')}{API}{path}{query}"

    def _ask(self, request: urllib.request.Request, take: Callable[[HTTPResponse], Taken] = _body) -> Taken:
        for name, value in self.access.headers(self.url).items():
            request.add_unredirected_header(name, value)
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                return self._ask_once(request, take)
            except RefusedError as refused:
                if not refused.may_come or time.monotonic() >= deadline:
                    raise
            time.sleep(INTERVAL_S)

    def _ask_once(self, request: urllib.request.Request, take: Callable[[HTTPResponse], Taken]) -> Taken:
        try:
            with _opener(self.url, self.access).open(request, timeout=self.timeout_s) as answer:
                return take(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(error.code, _error_in(error.read(), error.code)) from None
        except (OSError, HTTPException, ValueError) as error:
            raise _unreachable(self.url, error, timeout_s=self.timeout_s) from error


def check_url(url: str) -> None:
    """Refuse what cannot be a query service's URL. The one place where a URL as given is put into a message.

    Raises:
        BadUrlError: no http, no host, no such port, or a user, a password, a query or a fragment in it.
    """
    reason = _url_fault(url)
    if reason:
        raise BadUrlError(
            f"{_without_secrets(url)!r} is no URL of a query service: {reason}",
            hint="write http://host:port, for example http://127.0.0.1:8470",
        )


def _url_fault(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return "its port is no number up to 65535, or its brackets do not match"
    if "@" in parts.netloc:
        return "a user and a password are not taken; a key goes into RANKSCOPE_KEY"
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        return "it names no host and port after http:// or https://"
    return "it has a query or a fragment" if parts.query or parts.fragment else ""


def _without_secrets(url: str) -> str:
    """The URL with what may be secret replaced: all before the last @, all after ? or #."""
    before, at, after = url.rpartition("@")
    scheme, named, _ = before.partition("://")
    shown = re.sub(r"([?#]).*", r"\1***", after)
    return (f"{scheme}://" if named else "") + ("***@" if at else "") + shown


def is_loopback(url: str) -> bool:
    """Whether the host of a URL that `check_url` passed is this machine."""
    return is_loopback_host(urllib.parse.urlsplit(url).hostname or "")


def quoted(part: str) -> str:
    """One path segment, whatever characters a run's id has."""
    return urllib.parse.quote(part, safe="")


def _opener(url: str, access: Access) -> urllib.request.OpenerDirector:
    # A cluster's http_proxy must not see, or swallow, what stays on this machine.
    proxies = urllib.request.ProxyHandler({}) if is_loopback(url) else urllib.request.ProxyHandler()
    # No redirection is followed: whatever it led to would be asked in the service's place, and shown the key.
    opener = urllib.request.OpenerDirector()
    handlers = (
        proxies,
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=access.context() if url.startswith("https:") else None),
    )
    for handler in (*handlers, urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor()):
        opener.add_handler(handler)
    return opener


def _said(headers: Mapping[str, str]) -> dict[str, str]:
    named = ((name.lower(), value) for name, value in headers.items())
    return {name.removeprefix(SAID): value for name, value in named if name.startswith(SAID)}


def _decoded(body: bytes, url: str) -> Json:
    try:
        answer: object = json.loads(body)
    except ValueError as error:
        raise UnreachableError(f"{url} did not answer with JSON: is it a rankscope query service?") from error
    if not isinstance(answer, dict):
        raise UnreachableError(f"{url} did not answer with a JSON object: is it a rankscope query service?")
    return cast("Json", answer)


def _error_in(body: bytes, status: int) -> Json:
    try:
        answer: object = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return cast("Json", answer)
    return {"code": "not_found" if status == 404 else "refused", "message": f"the server answered HTTP {status}"}


def _unreachable(url: str, error: Exception, *, timeout_s: float) -> UnreachableError:
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    slow = isinstance(error, TimeoutError)
    what = f"did not answer within {timeout_s:g} s" if slow else f"is not reachable ({error})"
    return UnreachableError(
        f"the query service at {url} {what}",
        hint="is `rankscope up` running, and is --url or RANKSCOPE_URL right?",
    )
