"""The documented requests: `python -m tests.query_api.examples` asks them of the story and records the answers.

What it writes is part of the OpenAPI document; `test_reference.py` asks again and compares.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import httpx
import orjson

from rankscope_proto.identity import step_trace_id
from rankscope_query_api import reference
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api import story

_RUN = {"run": story.RUN}
_TRACE = "{:016x}{:016x}".format(*step_trace_id(story.RUN, story.LAUNCH, 14))
_ROLLOUT = f"{story.ROLLOUT[0]:016x}{story.ROLLOUT[1]:016x}"
_FORWARD = f"{story.span_id(1, 14, 2):016x}"
_ROOT = f"{story.span_id(1, 14, 0):016x}"

REQUESTS: dict[str, dict[str, Any]] = {
    "show_health": {},
    "show_readiness": {},
    "list_runs": {"query": {"limit": 1}},
    "show_run": {"path": {"run": story.OTHER_RUN}},
    "list_metrics": {"path": _RUN, "query": {"name": "loss", "limit": 2}},
    "show_completeness": {"path": {"run": story.OTHER_RUN}},
    "list_collectives": {"path": {"run": story.OTHER_RUN}, "query": {"limit": 1}},
    "list_stragglers": {"path": _RUN},
    "list_clocks": {"path": {"run": story.OTHER_RUN}},
    "list_traces": {"path": _RUN, "query": {"status": "error", "q": "harbour"}},
    "list_project_traces": {"query": {"from": "2026-11-29T00:00:00Z", "kind": "tool", "attribute": "Engine=Harbour"}},
    "list_trace_steps": {"path": _RUN, "query": {"metric": "loss", "min_step": 14, "limit": 1}},
    "show_trace": {"path": {**_RUN, "trace": _ROLLOUT}, "query": {"limit": 1}},
    "list_children": {"path": {**_RUN, "trace": _TRACE}, "query": {"parent": _ROOT, "limit": 1}},
    "show_window": {"path": {**_RUN, "trace": _TRACE}, "query": {"span": _FORWARD, "around": 1}},
    "list_steps": {"path": _RUN, "query": {"launch": "1", "limit": 1}},
    "show_tree": {"path": {**_RUN, "step": 14}, "query": {"limit": 2}},
    "list_tensors": {
        "path": _RUN,
        "query": {"path": "layers.2.mlp", "step": 14, "rank": 1, "role": "grad"},
    },
    "list_captures": {"path": {"run": story.OTHER_RUN}, "query": {"name": "head.*", "step": 0}},
    "list_system": {"path": {"run": story.OTHER_RUN}, "query": {"name": "gpu.temperature", "limit": 1}},
    "list_hits": {"path": {"run": story.OTHER_RUN}, "query": {"limit": 1}},
    "show_model": {"path": {"run": story.OTHER_RUN}},
    "show_layer_profile": {"path": _RUN, "query": {"statistic": "l2", "role": "grad", "step": 14}},
    "show_findings": {"path": _RUN},
    "show_hang": {"path": {"run": story.OTHER_RUN}},
    "show_provenance": {"path": _RUN},
    "check_run": {"path": _RUN, "body": {"rules": ["loss_spike"], "thresholds": ["loss_spike.z=30"]}},
    "list_rules": {"path": _RUN, "query": {"rule": "loss_spike", "threshold": "loss_spike.z=8"}},
    "run_sql": {
        "body": {
            "query": "SELECT rank, count() AS spans FROM spans WHERE name = {name:String} GROUP BY rank ORDER BY rank",
            "parameters": {"name": "step"},
            "run": story.RUN,
            "limit": 2,
        }
    },
    "run_tql": {"body": {"query": "tensor.nonfinite_count > 0 | first", "run": story.RUN}},
    "complete_tql": {"body": {"query": 'span.kind == "r', "run": story.RUN}},
    "explain_tql": {"body": {"query": 'gap.cause == "ring_full" | sum(gap.count) by rank', "run": story.RUN}},
}
"""What is asked, by operation; left out: nothing of the kind."""


async def asked(api: httpx.AsyncClient, document: dict[str, Any], operation: str) -> httpx.Response:
    """The answer to a documented request."""
    request = REQUESTS[operation]
    path, method = next(
        (path, method)
        for path, methods in document["paths"].items()
        for method, found in methods.items()
        if reference.operation_name(found) == operation
    )
    url = path.format(**request.get("path", {}))
    return await api.request(method, url, params=request.get("query"), json=request.get("body"))


async def record(server: str) -> dict[str, Any]:
    """Every request with its answer, of a store that holds the story."""
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": server})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    app = create_app(store, settings)
    recorded: dict[str, Any] = {}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        for operation, request in REQUESTS.items():
            answer = await asked(api, app.openapi(), operation)
            answer.raise_for_status()
            shown = {"path": request.get("path", {}), "query": request.get("query", {}), "body": request.get("body")}
            recorded[operation] = {**shown, "answer": answer.json()}
    await store.close()
    return recorded


def main() -> None:
    """Writes the examples."""
    with tempfile.TemporaryDirectory() as folder:
        front = FrontProcess(Path(folder))
        store = Store(front.url)
        migrate(store.client)
        insert(store.client, *story.batches())
        recorded = asyncio.run(record(store.url))
        store.drop()
        front.stop()
    text = orjson.dumps(recorded, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    Path(reference.__file__).with_name("examples.json").write_bytes(text)


if __name__ == "__main__":
    main()
