"""Runs: the list, one run, its metrics."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.names import ProcessRole, RunStatus
from rankscope_query_api.answers import Json, Page, cursor, json_answer, key_of, moment
from rankscope_query_api.errors import unknown
from rankscope_query_api.routes.asking import PREFIX, InProject, Paged, Run, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.store import POINT_KEY, RUN_KEY, Launch, Process, RunKey, RunSummary, TraceStore

router = APIRouter(prefix=PREFIX, tags=["runs"])


class MetricQuery(Paged):
    """Which metric; without a name, the list of them."""

    name: str | None = Field(default=None, max_length=512, description="Name of a metric: its points are answered.")


@router.get("/runs")
async def list_runs(request: Request, query: Annotated[Paged, Query()]) -> Response:
    """Lists the runs of the project, the latest first."""
    store = store_of(request)
    found = await store.runs.runs(query.project, limit=query.limit, after=key_of(query.after, RUN_KEY))
    by_run: defaultdict[str, list[Process]] = defaultdict(list)
    for process in await store.runs.processes(query.project, [run.run_id for run in found.items], config=False):
        by_run[process.run_id].append(process)
    items = [_run_json(run, by_run[run.run_id]) for run in found.items]
    return json_answer(Page(items, found.total, cursor(found.next)).as_json())


@router.get("/runs/{run}")
async def show_run(request: Request, run: Run, *, query: Annotated[InProject, Query()]) -> Response:
    """Shows one run: launches, processes, configuration, stored rows and stated absences."""
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    processes = await store.runs.processes(query.project, [run], config=True)
    gaps = await store.runs.gaps(key, sections=())
    summary = RunSummary(
        run_id=run,
        started_ns=launches[0].started_ns,
        updated_ns=max(launch.updated_ns for launch in launches),
        world_size=max(launch.world_size for launch in launches),
        ranks=len({rank for launch in launches for rank in launch.ranks}),
        launches=len(launches),
    )
    first = next((process for process in processes if process.config), None)
    return json_answer(
        {
            **_run_json(summary, processes),
            "config": _parsed(first.config) if first else None,
            "command": first.command if first else "",
            "rows": {name: sum(launch.rows[name] for launch in launches) for name in launches[0].rows},
            "launch_list": [_launch_json(launch) for launch in launches],
            "processes": [_process_json(process) for process in processes],
            "gaps": [gap_json(gap) for gap in gaps],
        }
    )


@router.get("/runs/{run}/metrics")
async def list_metrics(request: Request, run: Run, *, query: Annotated[MetricQuery, Query()]) -> Response:
    """Lists the run's metrics; with `name`, the points of one, by rank and step."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("scalars",))]
    if query.name is not None:
        return await _points(store, key, query=query, gaps=gaps)
    items = await store.runs.metric_names(key)
    return json_answer(Page(items, len(items), gaps=gaps).as_json())


async def _points(store: TraceStore, key: RunKey, *, query: MetricQuery, gaps: Sequence[dict[str, Json]]) -> Response:
    name = query.name or ""
    found = await store.runs.metric_points(key, name, limit=query.limit, after=key_of(query.after, POINT_KEY))
    if not found.total:
        known = [record["name"] for record in await store.runs.metric_names(key)]
        raise unknown("metric", name, project=key.project, known=known, lister=f"GET /api/v1/runs/{key.run}/metrics")
    items = [
        {name: value for name, value in point.items() if name != "time_ns"} | moment("time", point["time_ns"])
        for point in found.items
    ]
    return json_answer(Page(items, found.total, cursor(found.next), gaps=gaps).as_json())


def _run_json(run: RunSummary, processes: Sequence[Process]) -> dict[str, Json]:
    ended = [process.ended_ns for process in processes if process.ended_ns is not None]
    return {
        "run_id": run.run_id,
        "name": next((process.name for process in processes if process.name), ""),
        "status": _status(processes),
        "tags": sorted({tag for process in processes for tag in process.tags}),
        "world_size": run.world_size,
        "ranks": run.ranks,
        "launches": run.launches,
        **moment("start", run.started_ns),
        **moment("updated", run.updated_ns),
        **moment("end", max(ended) if processes and len(ended) == len(processes) else None),
    }


def _status(processes: Sequence[Process]) -> str:
    """The status of the run: the worst of its latest launch's trainers; "" where no process said anything."""
    trainers = [process for process in processes if process.process_role == ProcessRole.TRAINER] or list(processes)
    if not trainers:
        return ""
    latest = max(trainers, key=lambda process: process.started_ns).launch_id
    said = {process.status for process in trainers if process.launch_id == latest}
    order = (RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.RUNNING, RunStatus.FINISHED)
    return next((status.value for status in order if status in said), min(said))


def _launch_json(launch: Launch) -> dict[str, Json]:
    heard = set(launch.ranks)
    return {
        "launch_id": launch.launch_id,
        "attempt": launch.attempt,
        "world_size": launch.world_size,
        "ranks": launch.ranks,
        "missing_ranks": [rank for rank in range(launch.world_size) if rank not in heard],
        "rows": launch.rows,
        **moment("start", launch.started_ns),
        **moment("updated", launch.updated_ns),
    }


def _process_json(process: Process) -> dict[str, Json]:
    return {
        "launch_id": process.launch_id,
        "incarnation": process.incarnation,
        "rank": process.rank,
        "process_role": process.process_role,
        "node": process.node,
        "status": process.status,
        "facts": process.facts,
        **moment("start", process.started_ns),
        **moment("end", process.ended_ns),
    }


def _parsed(config: str) -> Json:
    try:
        return orjson.loads(config)
    except orjson.JSONDecodeError:
        return config  # what a process sent is shown, even if it is no JSON
