"""The tree of a step: across its ranks, or one rank's own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import Phase, SpanKind, SpanStatus
from rankscope_query_api.answers import Json, Page, json_answer, moment
from rankscope_query_api.errors import InvalidRequestError, NotFoundError
from rankscope_query_api.ranks.clocks import Moment
from rankscope_query_api.ranks.lateness import late_spans
from rankscope_query_api.ranks.missing import Hearsay, MissingRank, absent_of, reasons
from rankscope_query_api.ranks.step_charges import step_charges
from rankscope_query_api.ranks.step_groups import Groups, grouped
from rankscope_query_api.ranks.step_order import RankClock
from rankscope_query_api.ranks.step_places import settled
from rankscope_query_api.ranks.step_tree import Given, MergedNode, MergedTree, charged_at, chosen, merge_step
from rankscope_query_api.routes.asking import PREFIX, Paged, Run, StepNumber, launch_named, launches_of, store_of
from rankscope_query_api.routes.clocks import correction_of
from rankscope_query_api.routes.paging import Listing, listing_of
from rankscope_query_api.routes.records import gap_json, span_hex, trace_hex
from rankscope_query_api.routes.step_tree_json import node_json, tree_json
from rankscope_query_api.routes.waits import Steps, waits_of
from rankscope_query_api.step_rows import ClockShift, PathTotals, StepCharges, StepProcess
from rankscope_query_api.store import TraceStore
from rankscope_query_api.trees import Forest, build_forest
from rankscope_query_api.values import Launch, Record, RunKey, Table

router = APIRouter(prefix=PREFIX, tags=["steps"])

Node = TypeVar("Node")
Names = Mapping[int, str | int | None]

_PLACE_KEY = (int,)
"""Shape of the key of a tree's nodes: how many came before."""

_MESH = "mesh."

_STEPS_MET = 10
"""Steps before one whose collectives tell of its clocks, too."""


class TreeQuery(Paged):
    """Which launch, and whether one rank's own tree is meant."""

    limit: int = Field(default=1000, ge=1, le=10_000, description="Most nodes in the answer, parents first.")
    launch: str | None = Field(
        default=None, max_length=64, description="Launch id or attempt; left out: the latest that has the step."
    )
    rank: int | None = Field(default=None, ge=0, le=2**31 - 1, description="This rank's own tree, span by span.")
    by: str | None = Field(
        default=None,
        pattern=r"^(rank|node|mesh\.\S{1,128})$",
        description="Shows each place by `rank`, `node` or an axis of the mesh, `mesh.dp`, too.",
    )


class _Asked(NamedTuple):
    """The step of a launch that a request is about."""

    key: RunKey
    step: int
    launch: Launch
    world_size: int
    attempts: Mapping[str, int]

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


@router.get("/runs/{run}/steps/{step}/tree")
async def show_tree(request: Request, run: Run, step: StepNumber, *, query: Annotated[TreeQuery, Query()]) -> Response:
    """Shows the tree of a step, merged over the ranks by path; with `rank`, that rank's spans.

    The nodes come as a flat list, a parent before its children, each with its depth. Starts are on the server's clock
    as far as `clock` says; a node that begins closer to its sibling than the clocks are known has `order_known` false.
    """
    store = store_of(request)
    asked = await _asked(store, RunKey(query.project, run), step=step, launch=query.launch)
    listing = listing_of(request, query, launch=asked.launch.launch_id)
    gaps = await store.runs.gaps(asked.key, sections=("spans",), step=step)
    if query.rank is not None:
        if query.by is not None:
            raise InvalidRequestError("by: one rank's tree has no groups", hint="leave `rank` or `by` out")
        return await _rank_tree(store, asked, query=query, listing=listing, gaps=gaps)
    return await _merged_answer(store, asked, query=query, listing=listing, gaps=gaps)


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
    attempts = {one.launch_id: one.attempt for one in launches}
    return _Asked(key, step, meant, sizes[meant.launch_id], attempts)


async def _merged_answer(
    store: TraceStore, asked: _Asked, *, query: TreeQuery, listing: Listing, gaps: Sequence[Record]
) -> Response:
    processes = await store.step_trees.processes(asked.key, asked.launch.launch_id, step=asked.step)
    names = await _names(store, asked, by=query.by, processes=processes)
    clock = await _clock(store, asked, processes=processes)
    given, totals = await _read(store, asked, clock=clock, has_gaps=bool(gaps))
    tree = await asyncio.to_thread(merge_step, totals, given)
    nodes, after = _cut(tree.nodes, listing, limit=query.limit)
    page = Page(
        items=await asyncio.to_thread(_items, nodes, tree, names=names),
        total=len(tree.nodes),
        next=after,
        warnings=tree.warnings,
        gaps=[gap_json(gap) for gap in gaps],
    )
    return json_answer({**page.as_json(), **asked.as_json(), **tree_json(tree), "clock": clock.as_json()})


async def _read(
    store: TraceStore, asked: _Asked, *, clock: "_Clock", has_gaps: bool
) -> tuple[Given, Sequence[PathTotals]]:
    """All that the tree of a step is made from; statements that do not need one another run side by side."""
    key, launch, step = asked.key, asked.launch.launch_id, asked.step
    found, edges, causes, charges = await asyncio.gather(
        store.step_trees.paths(key, launch, step=step, has_copies=any(one.rows > one.spans for one in clock.processes)),
        store.step_trees.edges(key, launch, step=step, shifts=clock.shifts),
        _causes(store, asked, has_gaps=has_gaps),
        _charges(store, asked),
    )
    totals = await asyncio.to_thread(_settled, found, clock)
    absent, absent_total = absent_of(asked.world_size, {rank for one in totals for rank in one.ranks})
    given = Given(
        processes=clock.processes,
        edges=edges,
        charges=charges,
        clocks=clock.of_ranks,
        absent=await _reasons(store, asked, absent=absent, causes=causes) if absent else (),
        absent_total=absent_total,
        gap_causes=causes,
    )
    return given, totals


def _settled(totals: Sequence[PathTotals], clock: "_Clock") -> list[PathTotals]:
    numbers = {one.incarnation: one.number for one in clock.processes}
    offsets = {numbers[shift.incarnation]: shift.offset_ns for shift in clock.shifts}
    left_out = frozenset(one.number for one in chosen(clock.processes)[1])
    found = [settled(one, offsets, left_out=left_out) for one in totals]
    return [one for one in found if one.ranks]


async def _causes(store: TraceStore, asked: _Asked, *, has_gaps: bool) -> Mapping[int, str]:
    return await store.step_trees.causes(asked.key, asked.launch.launch_id, step=asked.step) if has_gaps else {}


async def _charges(store: TraceStore, asked: _Asked) -> StepCharges | None:
    """What ranks are charged with at the step; None: no collective of it is known."""
    launch, step = asked.launch, asked.step
    if not launch.rows.get("collectives", 0):
        return None
    waits = await waits_of(store, asked.key, launch=launch.launch_id, steps=Steps(step, step))
    ranks = [key.ranks[0] for key in waits.keys]
    return await asyncio.to_thread(step_charges, waits.meetings, waits.account.charges, ranks=ranks, step=step)


async def _reasons(
    store: TraceStore, asked: _Asked, *, absent: Sequence[int], causes: Mapping[int, str]
) -> Sequence[MissingRank]:
    launch = asked.launch.launch_id
    heard, later = await asyncio.gather(
        store.step_trees.heard(asked.key),
        store.step_trees.with_later_steps(asked.key, launch, step=asked.step, ranks=absent),
    )
    return reasons(absent, Hearsay(launch, heard, asked.attempts, causes, later))


class _Clock(NamedTuple):
    """The clocks of the processes that have a step, when they had it.

    Attributes:
        processes: The processes.
        moments: When each began it, by incarnation.
        server: Whose clock the others are put on.
    """

    processes: Sequence[StepProcess]
    moments: Mapping[str, Moment]
    server: str

    @property
    def shifts(self) -> Sequence[ClockShift]:
        """What is added to the times of each process.

        Of one clock it is what was right when the first of its processes began: so that a drift, which would be
        another number a moment later, cannot turn round what that clock tells exactly.
        """
        first: dict[str, Moment] = {}
        for begun in sorted(self.moments.values(), key=_own_ns):
            first.setdefault(begun.clock, begun)
        return [
            ClockShift(one.incarnation, _shift(one, own, first_of_clock=first[own.clock]), own.error_ns, own.clock)
            for one in self.processes
            for own in (self.moments[one.incarnation],)
        ]

    @property
    def of_ranks(self) -> Mapping[int, RankClock]:
        """The clock of each rank's trainer."""
        moments = {one.rank: self.moments[one.incarnation] for one in chosen(self.processes)[0] if one.roots}
        return {rank: RankClock(begun.clock, begun.error_ns) for rank, begun in moments.items()}

    def as_json(self) -> dict[str, Json]:
        """What the answer says of it."""
        known = [one.error_ns for one in self.moments.values() if one.error_ns is not None]
        unknown = {one.rank for one in self.processes if one.roots and self.moments[one.incarnation].error_ns is None}
        return {
            "applied": bool(known),
            "server": self.server,
            "error_ns": max(known, default=None),
            "unmeasured_ranks": sorted(unknown),
        }


def _own_ns(moment: Moment) -> int:
    """A time on the clock that told it."""
    return moment.at_ns if moment.own_ns is None else moment.own_ns


def _shift(process: StepProcess, begun: Moment, *, first_of_clock: Moment) -> int:
    to_server = 0 if first_of_clock.error_ns is None else first_of_clock.at_ns - _own_ns(first_of_clock)
    return _own_ns(begun) - process.start_ns + to_server


async def _clock(store: TraceStore, asked: _Asked, *, processes: Sequence[StepProcess]) -> _Clock:
    starts = [one.start_ns for one in processes] or [0]
    window = (min(starts), max(starts))
    steps = (max(0, asked.step - _STEPS_MET), asked.step) if asked.launch.rows.get("collectives", 0) else None
    correction = await correction_of(store, asked.key, asked.launch.launch_id, between=window, steps=steps)
    moments = {one.incarnation: correction.moment(one.incarnation, one.start_ns) for one in processes}
    return _Clock(processes, moments, correction.server)


async def _names(store: TraceStore, asked: _Asked, *, by: str | None, processes: Sequence[StepProcess]) -> Names | None:
    """The group of each rank; None: no groups are asked for.

    Raises:
        InvalidRequestError: The mesh of the launch has no such axis.
    """
    if by is None or by == "rank":
        return None if by is None else {one.rank: one.rank for one in processes}
    if by == "node":
        return {one.rank: one.node for one in processes}
    axis, launch = by.removeprefix(_MESH), asked.launch.launch_id
    found = await store.step_trees.coordinates(asked.key, launch, axis=axis)
    if not found:
        axes = await store.step_trees.axes(asked.key, launch)
        raise InvalidRequestError(
            f"by: the mesh of this launch has no axis {axis!r}",
            hint="ranks name their places by `rankscope.init(mesh=...)` or RANKSCOPE_MESH",
            expected=["rank", "node", *(_MESH + known for known in axes)],
        )
    return found


def _items(nodes: Sequence[MergedNode], tree: MergedTree, *, names: Names | None) -> Sequence[dict[str, Json]]:
    return [node_json(node, _groups(node, tree, names=names)) for node in nodes]


def _groups(node: MergedNode, tree: MergedTree, *, names: Names | None) -> Groups | None:
    if names is None:
        return None
    return grouped(tree.places.get(node.path), names, charged=charged_at(node.path, tree.charges))


async def _rank_tree(
    store: TraceStore, asked: _Asked, *, query: TreeQuery, listing: Listing, gaps: Sequence[Record]
) -> Response:
    rank, launch = query.rank or 0, asked.launch.launch_id
    table = await store.spans.step_spans(asked.key, launch, step=asked.step, rank=rank)
    if not table.columns or not table.columns[0]:
        raise NotFoundError(
            f"rank {rank} has nothing of step {asked.step} in run {asked.key.run!r}",
            hint="leave `rank` out: `missing_ranks` says who has nothing of the step, and why",
            code="unknown_rank",
        )
    found = await store.step_trees.processes(asked.key, launch, step=asked.step)
    clock = await _clock(store, asked, processes=[one for one in found if one.rank == rank])
    grown = await asyncio.to_thread(_grown, table, clock)
    shown, after = _cut(grown.places, listing, limit=query.limit)
    page = Page(
        items=[_span_node_json(table, grown, row=row, depth=depth) for row, depth in shown],
        total=grown.forest.size,
        next=after,
        warnings=_rank_warnings(grown, clock),
        gaps=[gap_json(gap) for gap in gaps],
    )
    return json_answer(
        {
            **page.as_json(),
            **asked.as_json(),
            "rank": rank,
            "depth": max((depth for _, depth in grown.places), default=0),
            "orphans": len(grown.forest.orphans),
            "cycles_cut": len(grown.forest.cycles_cut),
            "copies": grown.forest.copies,
            "late": len(grown.late),
            "clock": clock.as_json(),
        }
    )


def _cut(nodes: Sequence[Node], listing: Listing, *, limit: int) -> tuple[Sequence[Node], str | None]:
    """The nodes of the page that is asked for, and the cursor of the next one."""
    begin = int((listing.begin(_PLACE_KEY) or (0,))[0])
    shown = nodes[begin : begin + limit]
    end = begin + len(shown)
    return shown, listing.cursor((end,) if end < len(nodes) else None)


class _Grown(NamedTuple):
    """One rank's spans as trees.

    Attributes:
        forest: The trees.
        places: Row and depth of each span, a parent before its children.
        begun: When each row's span began.
        late: Rows of spans that lie outside their parent.
    """

    forest: Forest
    places: Sequence[tuple[int, int]]
    begun: Sequence[Moment]
    late: frozenset[int]


def _grown(table: Table, clock: _Clock) -> _Grown:
    columns = dict(zip(table.names, table.columns, strict=True))
    forest = build_forest(columns["span_id"], columns["parent_span_id"])
    shifts = {shift.incarnation: shift for shift in clock.shifts}
    begun = [
        Moment(start + shift.offset_ns, shift.error_ns, shift.clock)
        for start, incarnation in zip(columns["start"], columns["incarnation_hex"], strict=True)
        for shift in (shifts[incarnation],)
    ]
    edges = [(parent, child) for parent, children in forest.children.items() for child in children]
    late = late_spans(edges, begun, durations_ns=columns["duration"])
    return _Grown(forest, list(forest.preorder()), begun, late)


def _rank_warnings(grown: _Grown, clock: _Clock) -> list[str]:
    found = grown.forest.warnings()
    if grown.late:
        found.append(f"{len(grown.late)} spans begin before their parent or end after it")
    trainers = [one for one in clock.processes if one.roots]
    if len(trainers) > 1:
        found.append(f"{len(trainers)} processes have this step as this rank; the spans of all are shown")
    return found


def _span_node_json(table: Table, grown: _Grown, *, row: int, depth: int) -> dict[str, Json]:
    span = {name: column[row] for name, column in zip(table.names, table.columns, strict=True)}
    return {
        "span_id": span_hex(span["span_id"]),
        "parent_span_id": span_hex(span["parent_span_id"]) if span["parent_span_id"] else None,
        "depth": depth,
        "name": span["name"],
        "kind": SpanKind.of(span["kind"]),
        "status": SpanStatus.of(span["status"]),
        "phase": Phase.of(span["phase"]),
        "microstep": span["microstep"],
        "microbatch": span["microbatch"],
        "incarnation": span["incarnation_hex"],
        **moment("start", grown.begun[row].at_ns),
        "duration_ns": span["duration"],
        "child_count": len(grown.forest.children.get(row, ())),
        "orphan": row in grown.forest.orphans,
        "cycle_cut": row in grown.forest.cycles_cut,
        "late": row in grown.late,
    }
