"""Runs: the list, one run, its metrics."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.names import ProcessRole, RunStatus
from rankscope_query_api.answers import Json, Page, json_answer, moment
from rankscope_query_api.errors import unknown
from rankscope_query_api.living import STACK_AGE_NS
from rankscope_query_api.routes.asking import PREFIX, InProject, Paged, Run, launches_of, store_of
from rankscope_query_api.routes.paging import Listing, listing_of
from rankscope_query_api.routes.records import event_json, gap_json, open_spans_json, trace_json
from rankscope_query_api.store import POINT_KEY, RUN_KEY, TraceStore
from rankscope_query_api.values import SILENT_NS, Launch, Process, Record, RunKey, RunSummary, TraceScope

router = APIRouter(prefix=PREFIX, tags=["runs"])

TRACES_SHOWN = 20
"""Traces in a run's detail, the latest; the list of its traces has all of them."""

EVENTS_SHOWN = 100
"""Most events in a run's detail; TQL reads all of them."""


class MetricQuery(Paged):
    """Which metric; without a name, the list of them."""

    name: str | None = Field(default=None, max_length=512, description="Name of a metric: its points are answered.")


@router.get("/runs")
async def list_runs(request: Request, query: Annotated[Paged, Query()]) -> Response:
    """Lists the runs of the project, the latest first."""
    store = store_of(request)
    listing = listing_of(request, query)
    found = await store.runs.runs(query.project, limit=query.limit, after=listing.begin(RUN_KEY))
    by_run: defaultdict[str, list[Process]] = defaultdict(list)
    for process in await store.runs.processes(query.project, [run.run_id for run in found.items], config=False):
        by_run[process.run_id].append(process)
    items = [_run_json(run, by_run[run.run_id]) for run in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next)).as_json())


@router.get("/runs/{run}")
async def show_run(request: Request, run: Run, *, query: Annotated[InProject, Query()]) -> Response:
    """Shows one run: launches, processes, configuration, rows, gaps, warnings, open spans and latest traces."""
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    processes = await store.runs.processes(query.project, [run], config=True)
    gaps, events, open_spans, last_step, traces = await asyncio.gather(
        store.runs.gaps(key, sections=()),
        store.runs.events(key, limit=EVENTS_SHOWN),
        store.runs.open_spans(key),
        store.runs.last_step(key),
        store.traces.latest(TraceScope(query.project, run), limit=TRACES_SHOWN),
    )
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
            "last_step": last_step,
            "config": _parsed(first.config) if first else None,
            "command": first.command if first else "",
            "rows": {name: sum(launch.rows[name] for launch in launches) for name in launches[0].rows},
            "launch_list": [_launch_json(launch, processes) for launch in launches],
            "processes": [_process_json(process) for process in processes],
            "gaps": [gap_json(gap) for gap in gaps],
            "events": [event_json(event) for event in events],
            "open_spans": [open_spans_json(row) for row in _still_open(open_spans, processes)],
            "traces": [trace_json(trace) for trace in traces],
        }
    )


@router.get("/runs/{run}/metrics")
async def list_metrics(request: Request, run: Run, *, query: Annotated[MetricQuery, Query()]) -> Response:
    """Lists the run's metrics; with `name`, the points of one, by rank and step."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("scalars",))]
    listing = listing_of(request, query)
    if query.name is not None:
        return await _points(store, key, query=query, listing=listing, gaps=gaps)
    listing.begin(())  # this list is answered whole: no cursor is one of it
    items = await store.runs.metric_names(key)
    return json_answer(Page(items, len(items), gaps=gaps).as_json())


async def _points(
    store: TraceStore, key: RunKey, *, query: MetricQuery, listing: Listing, gaps: Sequence[dict[str, Json]]
) -> Response:
    name = query.name or ""
    found = await store.runs.metric_points(key, name, limit=query.limit, after=listing.begin(POINT_KEY))
    if not found.total:
        known = [record["name"] for record in await store.runs.metric_names(key)]
        raise unknown("metric", name, project=key.project, known=known, lister=f"GET /api/v1/runs/{key.run}/metrics")
    items = [
        {name: value for name, value in point.items() if name != "time_ns"} | moment("time", point["time_ns"])
        for point in found.items
    ]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


def _run_json(run: RunSummary, processes: Sequence[Process]) -> dict[str, Json]:
    trainers = _latest_trainers(processes)
    ended = [process.ended_ns for process in trainers if process.ended_ns is not None]
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
        **moment("end", max(ended) if trainers and len(ended) == len(trainers) else None),
        **moment("silent_since", _silent_since(processes)),
    }


def _latest_trainers(processes: Sequence[Process]) -> Sequence[Process]:
    """The trainers of the latest launch, or all its processes where none calls itself a trainer."""
    trainers = [process for process in processes if process.process_role == ProcessRole.TRAINER] or list(processes)
    latest = max(trainers, key=lambda process: process.started_ns).launch_id if trainers else ""
    return [process for process in trainers if process.launch_id == latest]


def _status(processes: Sequence[Process]) -> str:
    """The worst status of the latest launch's trainers; "" where no process said anything."""
    said = {_status_of(process) for process in _latest_trainers(processes)}
    order = (RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.RUNNING, RunStatus.FINISHED)
    return next((status.value for status in order if status in said), min(said, default=""))


def _is_silent(process: Process) -> bool:
    """Whether a process that never said its end has not been heard of for so long that it is likely gone."""
    return process.status == RunStatus.RUNNING and process.ended_ns is None and process.silent_ns > SILENT_NS


def _status_of(process: Process) -> str:
    """What it said last; a killed process says nothing, so silence is read as an interruption until it speaks."""
    return RunStatus.INTERRUPTED.value if _is_silent(process) else process.status


def _silent_since(processes: Sequence[Process]) -> int | None:
    """When the first of the trainers that are silent fell silent."""
    return min((process.heard_ns for process in _latest_trainers(processes) if _is_silent(process)), default=None)


def _still_open(rows: Sequence[Record], processes: Sequence[Process]) -> list[Record]:
    """The stacks of processes that have not ended and whose later batches do not show that the stack is gone."""
    known = {process.incarnation: process for process in processes}
    return [row for row in rows if _stands(row, known.get(row["incarnation_hex"]))]


def _stands(row: Record, process: Process | None) -> bool:
    if process is None:
        return True
    return process.ended_ns is None and process.sealed_ns - row["heartbeat"] <= STACK_AGE_NS


def _launch_json(launch: Launch, processes: Sequence[Process]) -> dict[str, Json]:
    heard = set(launch.ranks)
    roles = {process.process_role for process in processes if process.launch_id == launch.launch_id}
    # What comes over HTTP has no ranks: none of them is missing.
    expected = 0 if roles == {ProcessRole.CLIENT.value} else launch.world_size
    return {
        "launch_id": launch.launch_id,
        "attempt": launch.attempt,
        "world_size": launch.world_size,
        "ranks": launch.ranks,
        "missing_ranks": [rank for rank in range(expected) if rank not in heard],
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
        "status": _status_of(process),
        "facts": process.facts,
        **moment("start", process.started_ns),
        **moment("end", process.ended_ns),
        **moment("silent_since", process.heard_ns if _is_silent(process) else None),
    }


def _parsed(config: str) -> Json:
    try:
        return orjson.loads(config)
    except orjson.JSONDecodeError:
        return config  # what a process sent is shown, even if it is no JSON
