"""The application: routes, one shape for every error, metrics around every request, HEAD wherever there is GET."""

import logging
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankscope.up import is_loopback_host
from rankscope_proto.keys import KeyRing
from rankscope_query_api.access import Authenticated
from rankscope_query_api.answers import json_answer
from rankscope_query_api.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    Position,
    QueryError,
    StoreUnavailableError,
    nearest_hint,
)
from rankscope_query_api.guarding import Guarded
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.reference import described
from rankscope_query_api.routes import (
    captures,
    check,
    clocks,
    collectives,
    complete,
    completeness,
    deletion,
    explain,
    export,
    findings,
    hang,
    health,
    hits,
    layer_profile,
    model,
    provenance,
    rules,
    runs,
    span_window,
    sql,
    step_tree,
    steps,
    storage,
    stragglers,
    system,
    tensors,
    tql,
    trace,
    trace_steps,
    traces,
)
from rankscope_query_api.routes.asking import HEAD_ONLY, PREFIX
from rankscope_query_api.settings import Settings
from rankscope_query_api.store import TraceStore
from rankscope_query_api.writing import Writing

logger = logging.getLogger(__name__)

OPENAPI = f"{PREFIX}/openapi.json"

_ROUTES = (
    runs,
    deletion,
    completeness,
    clocks,
    storage,
    traces,
    trace_steps,
    export,
    trace,
    span_window,
    steps,
    step_tree,
    tensors,
    captures,
    hits,
    model,
    layer_profile,
    findings,
    stragglers,
    collectives,
    system,
    hang,
    provenance,
    check,
    rules,
    tql,
    complete,
    explain,
    sql,
)


def create_app(
    store: TraceStore, settings: Settings, *, metrics: Metrics | None = None, ring: KeyRing | None = None
) -> FastAPI:
    """The application over a store, which stays the caller's to close.

    Args:
        store: What it reads.
        settings: Its settings.
        metrics: Where requests are counted; None: metrics of its own.
        ring: The keys that requests must bring; None: they need none.
    """
    app = FastAPI(
        title="rankscope query service",
        version=version("rankscope"),
        openapi_url=OPENAPI,
        docs_url=None,  # the page would load scripts from another host
        redoc_url=None,
    )
    app.state.store = store
    app.state.settings = settings
    app.state.metrics = metrics or Metrics()
    app.state.writing = Writing()
    app.include_router(health.router)
    for module in _ROUTES:
        app.include_router(module.router)
    _guard(app, settings, ring=ring)
    for kind, tell in _TOLD.items():
        app.add_exception_handler(kind, tell)
    plain = app.openapi
    app.openapi = lambda: described(plain())
    return app


def _guard(app: FastAPI, settings: Settings, *, ring: KeyRing | None) -> None:
    """What a request passes before it reaches a route, the last one first."""
    app.add_middleware(Guarded, settings=settings)
    app.add_middleware(Authenticated, ring=ring, metrics_are_open=is_loopback_host(settings.host))
    app.add_middleware(_Metered, metrics=app.state.metrics)
    app.add_middleware(_Headed)


def _answer(error: QueryError, status: HTTPStatus | None = None) -> Response:
    answer = json_answer(error.as_json(), status=status or error.status)
    if isinstance(error, BusyError):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer


async def _tell_query_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, QueryError):
        raise error
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not _is_probe(request, error):
        logger.error("a request failed: %s", error, extra={"path": request.url.path, "code": error.code})
    return _answer(error)


def _is_probe(request: Request, error: QueryError) -> bool:
    """Whether a probe heard that the store is not there yet: that is an answer and no failure."""
    return request.url.path == health.READY and isinstance(error, StoreUnavailableError)


async def _tell_invalid(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first: Mapping[str, Any] = error.errors()[0]
    where, *names = (str(part) for part in first["loc"])
    name = ".".join(names) or where
    if first["type"] == "json_invalid":
        return _answer(_no_json(str(error.body), int(first["loc"][1]), what=first["ctx"]["error"]))
    if first["type"] == "extra_forbidden":
        return _answer(_unknown_parameter(name, _known(request, where)))
    given = first.get("input")
    shown = f", not {given!r}"[:120] if isinstance(given, str | int | float) else ""
    text = first["msg"].removeprefix("Value error, ")
    return _answer(InvalidRequestError(f"{name}: {text}{shown}", hint=f"{OPENAPI} describes every parameter"))


def _no_json(body: str, offset: int, *, what: str) -> InvalidRequestError:
    before = body[:offset].split("\n")
    position = Position(line=len(before), column=len(before[-1]) + 1, length=1)
    return InvalidRequestError(
        f"the body is no JSON: {what[:1].lower()}{what[1:]} (line {position.line}, column {position.column})",
        hint='send an object, as in {"query": "rank == 0"}',
        position=position,
        code="invalid_json",
    )


def _unknown_parameter(name: str, known: Sequence[str]) -> InvalidRequestError:
    hint = nearest_hint(name, known, otherwise=f"{OPENAPI} describes every parameter")
    return InvalidRequestError(f"no parameter {name!r} here", hint=hint, expected=known)


def _known(request: Request, where: str) -> list[str]:
    """Names of the parameters, or of the body's fields, of the route of a request."""
    described_app: dict[str, Any] = request.app.openapi()
    operation = described_app["paths"][request.scope["route"].path][request.method.lower()]
    if where == "body":
        schema: dict[str, str] = operation["requestBody"]["content"]["application/json"]["schema"]
        return sorted(described_app["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"])
    return sorted(one["name"] for one in operation["parameters"] if one["in"] == where)


async def _tell_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _answer(
            NotFoundError(
                f"no route {request.method} {request.url.path}",
                hint=f"GET {OPENAPI} lists the routes",
                code="unknown_route",
            )
        )
    status = HTTPStatus(error.status_code)
    hint = f"GET {OPENAPI} lists the routes"
    return _answer(
        QueryError(
            f"{request.method} {request.url.path}: {error.detail}",
            hint=hint,
            code=status.phrase.lower().replace(" ", "_"),
        ),
        status,
    )


async def _tell_unexpected(request: Request, error: Exception) -> Response:
    logger.error("a request failed unexpectedly", exc_info=error, extra={"path": request.url.path})
    return _answer(QueryError("this request failed inside the service", hint="its log holds the details"))


_TOLD = {
    QueryError: _tell_query_error,
    RequestValidationError: _tell_invalid,
    HTTPException: _tell_http,
    Exception: _tell_unexpected,
}
"""Who answers where a route raises."""


class _Metered:
    """Counts requests and their time by route template."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            route = scope["route"].path if "route" in scope else "unknown"
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - started)


class _Headed:
    """Answers HEAD as GET, without the body: FastAPI's routes know only the methods they name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET", HEAD_ONLY: True}, receive, sending)
