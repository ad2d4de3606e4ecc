"""Who asks, by the key a request brings, before anything of its body is read.

Where keys are on, every route asks for one but those a load balancer probes. A key of one project need not name it. A
project that is not the key's is answered exactly as one that does not exist: the routes then read the same store as
nobody's project, so that neither the words nor the time of an answer tell the two apart.
"""

from http import HTTPStatus
from urllib.parse import quote

from fastapi import Request
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from rankscope_proto import keys
from rankscope_proto.keys import KeyRing, Principal, bearer, masked
from rankscope_query_api.answers import json_answer
from rankscope_query_api.errors import ForbiddenError, QueryError, UnauthenticatedError
from rankscope_query_api.limits import THE_SERVICE, Asker

OPEN = frozenset({"/healthz", "/readyz"})
"""What needs no key: it says nothing of anybody's data."""

METRICS = "/metrics"

OF_ALL_PROJECTS = frozenset({"/api/v1/storage"})
"""Routes that tell of every project at once."""

CHALLENGE = 'Bearer realm="rankscope"'

_FOREIGN, _ASKER, _MAY_KEEP = "is_foreign_project", "asker", "may_keep"


class Authenticated:
    """Answers a request without a sufficient key itself.

    Args:
        app: What stands behind.
        ring: The keys; None: none is asked for.
        metrics_are_open: Whether `/metrics` needs none.
    """

    def __init__(self, app: ASGIApp, ring: KeyRing | None, *, metrics_are_open: bool) -> None:
        self._app = app
        self._ring = ring
        self._open = OPEN | {METRICS} if metrics_are_open else OPEN

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or self._ring is None or scope["path"] in self._open:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            principal = _principal(self._ring, headers)
            _refuse_beyond(principal, scope)
        except QueryError as error:
            answer = json_answer(error.as_json(), status=error.status)
            answer.headers.update(_refusal_headers(error, headers))
            await answer(scope, receive, send)
            return
        _narrow(scope, principal)
        scope.setdefault("state", {})[_ASKER] = Asker(principal.key_id, principal.limits)
        scope["state"][_MAY_KEEP] = principal.may(keys.Scope.INGEST) or principal.may(keys.Scope.ADMIN)
        await self._app(scope, receive, send)


def is_foreign(request: Request) -> bool:
    """Whether the project that a request names is not one of its key's."""
    return bool(request.scope.get("state", {}).get(_FOREIGN))


def asker_of(request: Request) -> Asker:
    """Whose key a request brought; the service itself where no key is asked for."""
    asker: Asker = request.scope.get("state", {}).get(_ASKER, THE_SERVICE)
    return asker


def may_keep(request: Request) -> bool:
    """Whether what rules find may be kept in the store: by whoever may write to it."""
    return bool(request.scope.get("state", {}).get(_MAY_KEEP, True))


def _principal(ring: KeyRing, headers: Headers) -> Principal:
    given = headers.getlist("authorization")
    if len(given) > 1:  # a proxy before us may have looked at another one than we would
        raise UnauthenticatedError(
            f"{len(given)} Authorization headers came with this request",
            hint="send one, as `Authorization: Bearer KEY`",
        )
    key = bearer(given[0] if given else None)
    principal = ring.principal(key)
    if principal is not None:
        return principal
    found = f"the key {masked(key)} is not valid: it is unknown, expired or revoked" if key else "no key was sent"
    raise UnauthenticatedError(
        f"this service asks for a key, and {found}",
        hint="send it as `Authorization: Bearer KEY`, as the command line does with RANKSCOPE_KEY; "
        "`rankscope keys create` makes one",
    )


def _refuse_beyond(principal: Principal, scope: Scope) -> None:
    """Refuses a route that the key's scopes do not cover.

    Raises:
        ForbiddenError: Names the scope.
    """
    is_admins = scope["method"] == "DELETE" or scope["path"] in OF_ALL_PROJECTS
    needed = keys.Scope.ADMIN if is_admins else keys.Scope.READ
    if not principal.may(needed):
        raise ForbiddenError(
            f"the key {principal.key_id} has not the scope {needed.value!r}, which {scope['method']} here asks for",
            hint=f"`rankscope keys create --scope {needed.value}` makes one that has",
        )
    if scope["path"] in OF_ALL_PROJECTS and not principal.sees(keys.EVERY_PROJECT):
        raise ForbiddenError(
            f"the key {principal.key_id} is bound to projects, and this tells of all",
            hint="`rankscope keys create --project '*' --scope admin` makes one for all",
        )


def _refusal_headers(error: QueryError, headers: Headers) -> dict[str, str]:
    challenge = {"WWW-Authenticate": CHALLENGE} if error.status is HTTPStatus.UNAUTHORIZED else {}
    # Its body is not read, so the connection cannot be used again; without this the server would take it all in.
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return challenge | ({"Connection": "close"} if has_body else {})


def _narrow(scope: Scope, principal: Principal) -> None:
    """Names the key's only project where the request names none, and marks one that is not the key's.

    The scope is changed in place: what counts requests looks at it afterwards.
    """
    named = QueryParams(scope["query_string"]).getlist("project")
    only = principal.only_project
    if not named and only is not None:
        added = f"project={quote(only, safe='')}".encode()
        scope["query_string"] = b"&".join(part for part in (scope["query_string"], added) if part)
        return
    # One parameter given twice is one of the two to the route, whichever: both must be the key's.
    is_seen = all(principal.sees(project) for project in named or ["default"])
    scope.setdefault("state", {})[_FOREIGN] = not is_seen
