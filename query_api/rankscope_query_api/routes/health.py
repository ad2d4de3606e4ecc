"""Whether the service lives, whether it can answer, and what it counts about itself."""

from importlib.metadata import version

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rankscope_query_api.answers import json_answer
from rankscope_query_api.routes.asking import store_of

router = APIRouter(tags=["health"])

READY = "/readyz"
"""What a load balancer asks, all the time."""


@router.get("/healthz")
async def show_health() -> Response:
    """Answers while the process serves, whatever the store does."""
    return json_answer({"status": "ok", "version": version("rankscope")})


@router.get(READY)
async def show_readiness(request: Request) -> Response:
    """Answers 200 when the store does and has the tables, 503 otherwise."""
    await store_of(request).ping()
    return json_answer({"status": "ready", "version": version("rankscope")})


@router.get("/metrics")
async def show_metrics(request: Request) -> Response:
    """Shows the service's own metrics in Prometheus' text format."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
