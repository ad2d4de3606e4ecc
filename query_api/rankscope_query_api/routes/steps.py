"""Steps, and the tree of a step: across its ranks, or one rank's own."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import Phase, SpanKind, SpanStatus
from rankscope_query_api.answers import Json, Page, json_answer, moment
from rankscope_query_api.errors import NotFoundError
from rankscope_query_api.routes.asking import (
    PREFIX,
    Paged,
    Run,
    StepNumber,
    launch_named,
    launches_of,
    store_of,
)
from rankscope_query_api.routes.paging import Listing, listing_of
from rankscope_query_api.routes.records import gap_json, span_hex, trace_hex
from rankscope_query_api.store import STEP_KEY, TraceStore
from rankscope_query_api.trees import Forest, MergedNode, RankStep, build_forest, merge_step
from rankscope_query_api.values import Launch, Record, RunKey, Table

router = APIRouter(prefix=PREFIX, tags=["steps"])

Node = TypeVar("Node")

_PLACE_KEY = (int,)
"""Shape of the key of a tree's nodes: how many came before."""


class StepsQuery(Paged):
    """Of which launch."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: of all.")


class TreeQuery(Paged):
    """Which launch, and whether one rank's own tree is meant."""

    limit: int = Field(default=1000, ge=1, le=10_000, description="Most nodes in the answer, parents first.")
    launch: str | None = Field(
        default=None, max_length=64, description="Launch id or attempt; left out: the latest that has the step."
    )
    rank: int | None = Field(default=None, ge=0, le=2**31 - 1, description="This rank's own tree, span by span.")


class _Asked(NamedTuple):
    """The step of a launch that a request is about."""

    key: RunKey
    step: int
    launch: Launch
    world_size: int

    def as_json(self) -> dict[str, Json]:
        hi, lo = step_trace_id(self.key.run, bytes.fromhex(self.launch.launch_id), self.step)
        return {
            "run_id": self.key.run,
            "step": self.step,
            "launch_id": self.launch.launch_id,
            "attempt": self.launch.attempt,
            "trace_id": trace_hex(hi, lo),
            "world_size": self.world_size,
        }


@router.get("/runs/{run}/steps")
async def list_steps(request: Request, run: Run, *, query: Annotated[StepsQuery, Query()]) -> Response:
    """Lists the steps with the least, median and greatest duration over the ranks."""
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=()) if query.launch else None
    listing = listing_of(request, query)
    found = await store.spans.steps(
        key, launch=launch and launch.launch_id, limit=query.limit, after=listing.begin(STEP_KEY)
    )
    attempts = {one.launch_id: one.attempt for one in launches}
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("spans",))]
    items = [_step_json(run, record, attempts=attempts) for record in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


@router.get("/runs/{run}/steps/{step}/tree")
async def show_tree(request: Request, run: Run, step: StepNumber, *, query: Annotated[TreeQuery, Query()]) -> Response:
    """Shows the tree of a step, merged over the ranks by path; with `rank`, that rank's spans.

    The nodes come as a flat list, a parent before its children, each with its depth.
    """
    store = store_of(request)
    asked = await _asked(store, RunKey(query.project, run), step=step, launch=query.launch)
    listing = listing_of(request, query, launch=asked.launch.launch_id)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(asked.key, sections=("spans",), step=step)]
    if query.rank is not None:
        return await _rank_tree(store, asked, rank=query.rank, listing=listing, limit=query.limit, gaps=gaps)
    totals = await store.spans.step_paths(asked.key, asked.launch.launch_id, step=step)
    tree = await asyncio.to_thread(merge_step, totals, asked.world_size)
    nodes, after = _cut(tree.nodes, listing, limit=query.limit)
    page = Page(
        items=[_node_json(node) for node in nodes],
        total=len(tree.nodes),
        next=after,
        warnings=tree.warnings,
        gaps=gaps,
    )
    ranks: Sequence[Json] = [_rank_json(rank) for rank in tree.ranks]
    return json_answer({**page.as_json(), **asked.as_json(), "missing_ranks": tree.missing_ranks, "ranks": ranks})


async def _asked(store: TraceStore, key: RunKey, *, step: int, launch: str | None) -> _Asked:
    launches = await launches_of(store, key)
    sizes = await store.spans.launches_of_step(key, step)
    meant = launch_named(launches, launch, among=sizes)
    if meant is None or meant.launch_id not in sizes:
        where = f"launch {meant.launch_id} of " if meant else ""
        raise NotFoundError(
            f"no step {step} in {where}run {key.run!r}",
            hint=f"GET /api/v1/runs/{key.run}/steps lists the steps that were traced",
            code="unknown_step",
        )
    return _Asked(key, step, meant, sizes[meant.launch_id])


async def _rank_tree(
    store: TraceStore, asked: _Asked, *, rank: int, listing: Listing, limit: int, gaps: Sequence[dict[str, Json]]
) -> Response:
    table = await store.spans.step_spans(asked.key, asked.launch.launch_id, step=asked.step, rank=rank)
    if not table.columns or not table.columns[0]:
        raise NotFoundError(
            f"rank {rank} has nothing of step {asked.step} in run {asked.key.run!r}",
            hint="leave `rank` out: `missing_ranks` says who has nothing of the step",
            code="unknown_rank",
        )
    forest, places = await asyncio.to_thread(_grown, table)
    shown, after = _cut(places, listing, limit=limit)
    page = Page(
        items=[_span_node_json(table, forest, row=row, depth=depth) for row, depth in shown],
        total=forest.size,
        next=after,
        warnings=forest.warnings(),
        gaps=gaps,
    )
    return json_answer({**page.as_json(), **asked.as_json(), "rank": rank})


def _cut(nodes: Sequence[Node], listing: Listing, *, limit: int) -> tuple[Sequence[Node], str | None]:
    """The nodes of the page that is asked for, and the cursor of the next one."""
    begin = int((listing.begin(_PLACE_KEY) or (0,))[0])
    shown = nodes[begin : begin + limit]
    end = begin + len(shown)
    return shown, listing.cursor((end,) if end < len(nodes) else None)


def _grown(table: Table) -> tuple[Forest, list[tuple[int, int]]]:
    forest = build_forest(table.columns[0], table.columns[1])
    return forest, list(forest.preorder())


def _span_node_json(table: Table, forest: Forest, *, row: int, depth: int) -> dict[str, Json]:
    span_id, parent, start, duration, name, kind, status, phase, microstep = (column[row] for column in table.columns)
    return {
        "span_id": span_hex(span_id),
        "parent_span_id": span_hex(parent) if parent else None,
        "depth": depth,
        "name": name,
        "kind": SpanKind.of(kind),
        "status": SpanStatus.of(status),
        "phase": Phase.of(phase),
        "microstep": microstep,
        **moment("start", start),
        "duration_ns": duration,
        "child_count": len(forest.children.get(row, ())),
        "orphan": row in forest.orphans,
        "cycle_cut": row in forest.cycles_cut,
    }


def _node_json(node: MergedNode) -> dict[str, Json]:
    return {
        "path": node.path,
        "name": node.name,
        "depth": node.depth,
        "kind": SpanKind.of(node.kind),
        "phase": Phase.of(node.phase),
        "count": node.count,
        "errors": node.errors,
        "ranks": node.ranks,
        "missing_ranks": node.missing_ranks,
        "min_ns": node.min_ns,
        "median_ns": node.median_ns,
        "max_ns": node.max_ns,
        "slowest_rank": node.slowest_rank,
        **moment("first_start", node.first_start_ns),
        **moment("last_start", node.last_start_ns),
    }


def _rank_json(rank: RankStep) -> dict[str, Json]:
    return {
        "rank": rank.rank,
        "node": rank.node,
        **moment("start", rank.start_ns),
        "duration_ns": rank.duration_ns,
        "input_ns": rank.input_ns,
        "forward_ns": rank.forward_ns,
        "backward_ns": rank.backward_ns,
        "optimizer_ns": rank.optimizer_ns,
        "wait_ns": rank.wait_ns,
    }


def _step_json(run: str, record: Record, *, attempts: dict[str, int]) -> dict[str, Json]:
    hi, lo = step_trace_id(run, bytes.fromhex(record["launch"]), record["step_of"])
    return {
        "step": record["step_of"],
        "launch_id": record["launch"],
        "attempt": attempts.get(record["launch"], 0),
        "trace_id": trace_hex(hi, lo),
        "ranks": record["ranks"],
        **moment("start", record["started_ns"]),
        "min_ns": record["min_ns"],
        "median_ns": record["median_ns"],
        "max_ns": record["max_ns"],
        "slowest_rank": record["slowest_rank"],
    }
