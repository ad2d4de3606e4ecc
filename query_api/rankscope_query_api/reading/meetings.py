"""Collectives matched over ranks by process group and number in it, and each summed up.

Nothing but numbers is compared: what is matched needs no clock. Offsets of clocks come from the caller, bound as
arrays by process, so that raw times stay as they are stored; 410,000 arrivals of 1,024 ranks are summed up in 0.3 s.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Mapping, Sequence

from rankscope_proto.names import COLLECTIVE_FLAGS, SPAN_FLAGS, Phase, ProcessRole, SpanKind
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.meetings import OF_ONE_SIZE, Meeting, Member, OwnSpan, Placed, Stay, StepReach, Window
from rankscope_query_api.values import Record, RunKey, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_OF_LAUNCH = f"{_OF_RUN} AND launch_id = unhex({{launch:String}})"
_STEP = "toInt64(ifNull(step, -1))"
_IN_WINDOW = f"({_STEP} BETWEEN {{first:Int64}} AND {{last:Int64}} OR {_STEP} = {{outside:Int64}})"
_P2P, _ENQUEUED = COLLECTIVE_FLAGS["p2p"], COLLECTIVE_FLAGS["enqueued"]
_GOES_ON = COLLECTIVE_FLAGS["async"] | _ENQUEUED
_IS_MATCHED = f"cseq > 0 AND bitAnd(flags, {_P2P}) = 0 AND rank >= 0"

MEMBERS = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    any(rank) AS rank_of,
    any(node) AS node_of,
    argMax(mesh, seq) AS mesh_of,
    max(if(received > 0, received, sealed)) AS heard_ns
FROM batches
WHERE {_OF_LAUNCH} AND process_role = {ProcessRole.TRAINER.code} AND rank >= 0
GROUP BY incarnation
ORDER BY rank_of, incarnation_hex"""

# Calls between two ranks are rows that are read, too, and a pipeline has more of them than of anything else.
REACH = f"""
SELECT
    {_STEP} AS step_of,
    count() AS arrivals,
    uniqExactIf(group, group_ranks, cseq, {_IS_MATCHED}) AS matches,
    countIf({_IS_MATCHED} AND bitAnd(flags, {_ENQUEUED}) != 0) AS enqueued
FROM collectives
WHERE {_OF_LAUNCH} AND rank >= 0 AND ({_STEP} BETWEEN {{first:Int64}} AND {{last:Int64}} OR {_STEP} = -1)
GROUP BY step_of
HAVING matches > 0
ORDER BY step_of DESC
LIMIT {{steps:UInt32}}"""

# A process that the caller does not know has come meanwhile: its rows are left for the next time.
_PLACE = """transform(
                                incarnation,
                                arrayMap(text -> toFixedString(unhex(text), 16), {ids:Array(String)}),
                                range(1, toUInt32(length({ids:Array(String)}) + 1)),
                                toUInt32(0)
                            )"""

_NO_STEP = 2**62

_GROUP = "cityHash64(group, group_ranks)"

# Texts stay out of the windows: sorted with them, 410,000 arrivals took 1 s, and as numbers 0.3 s.
_ROWS = f"""
                            SELECT
                                {_GROUP} AS group_id,
                                cityHash64(op) AS op_id,
                                entry_source = 'call' AS is_call,
                                if(op IN ({", ".join(f"'{op}'" for op in OF_ONE_SIZE)}), toInt64(bytes), -1) AS size,
                                isNull(exit) OR bitAnd(flags, {_GOES_ON}) != 0 AS goes_on,
                                isNull(exit) AS is_open,
                                ifNull(exit, 0) AS left,
                                entry,
                                if(bitAnd(flags, {_P2P}) != 0, 0, cseq) AS number,
                                ifNull(step, {_NO_STEP}) AS step_of,
                                {_PLACE} AS place
                            FROM collectives
                            WHERE {_OF_LAUNCH} AND rank >= 0 AND (
                                {_STEP} BETWEEN {{first:Int64}} - 1 AND {{last:Int64}} OR {_STEP} = {{outside:Int64}}
                            )"""


def _meetings(rows: str) -> str:
    # What a rank waits for in the background frees it at once within the step, and at its end in the next: an
    # optimizer needs what was reduced. Where no end was told, a collective is over when the last one has come.
    # Arrays of numbers, not of tuples: those took 0.4 s more to put together.
    return f"""
SELECT
    group_id,
    number,
    if(least_step = {_NO_STEP}, NULL, least_step) AS step_least,
    one_op,
    arrivals,
    ranks,
    processes,
    ops,
    sizes,
    if(clocks = 1, 0, unmeasured) AS unmeasured_of,
    at_ns,
    key_of,
    {{ids:Array(String)}}[last_place] AS last_incarnation,
    {{ranks:Array(Int32)}}[last_place] AS last_rank,
    if(freed[last_at] = 0, 0, entries[last_at] - (at_ns - freed[last_at])) AS last_freed_ns,
    entries[last_at] AS last_entry_ns,
    {{ids:Array(String)}}[places[peer_at]] AS peer_incarnation,
    {{ranks:Array(Int32)}}[places[peer_at]] AS peer_rank,
    if(freed[peer_at] = 0, 0, entries[peer_at] - (middle - freed[peer_at])) AS peer_freed_ns,
    entries[peer_at] AS peer_entry_ns,
    others,
    arraySum(arrayMap((at, key) -> if(key = key_of, 0, at_ns - at), times, keys)) AS wait_ns,
    arraySum(arrayMap(
        (at, free, key) -> if(key = key_of OR free = 0 OR freed[last_at] = 0, 0,
            least(at_ns - at, greatest(0, freed[last_at] - free))),
        times, freed, keys
    )) AS received_ns,
    if(others = 0, 0, at_ns - arrayMax(arrayMap(
        (at, place, key) -> multiIf(
            key = key_of, 0,
            {{clocks:Array(UInt32)}}[place] = {{clocks:Array(UInt32)}}[last_place], at,
            at + {{errors:Array(Int64)}}[place] + {{errors:Array(Int64)}}[last_place]
        ), times, places, keys
    ))) AS margin_ns,
    if(others = 0, 0, rest[-1] - middle) AS spread_ns,
    if(does_go_on, -1, greatest(0, ended_ns - at_ns)) AS transfer_ns,
    stay_ns
FROM (
    SELECT
        *,
        arrayMax(arrayMap((place, at) -> if(at = at_ns, place, 0), places, times)) AS last_place,
        indexOf(places, last_place) AS last_at,
        arrayMap(place -> {{keys:Array(Int64)}}[place], places) AS keys,
        {{keys:Array(Int64)}}[last_place] AS key_of,
        arraySort(arrayFilter((at, key) -> key != key_of, times, keys)) AS rest,
        length(rest) AS others,
        rest[intDiv(others + 1, 2)] AS middle,
        indexOf(arrayMap((at, key) -> if(key = key_of, 0, at), times, keys), middle) AS peer_at
    FROM ({_grouped(rows)})
)
ORDER BY at_ns, group_id, number
LIMIT {{limit:UInt32}}"""


def _grouped(rows: str) -> str:
    return f"""
        SELECT
            group_id,
            number,
            min(step_of) AS least_step,
            any(op_id) AS one_op,
            count() AS arrivals,
            uniqExact({{ranks:Array(Int32)}}[place]) AS ranks,
            uniqExact(place) AS processes,
            uniqExactIf(op_id, is_call) AS ops,
            greatest(
                uniqExactIf(size, is_call AND size >= 0), uniqExactIf(size, NOT is_call AND size >= 0)
            ) AS sizes,
            countIf({{errors:Array(Int64)}}[place] < 0) AS unmeasured,
            uniqExact({{clocks:Array(UInt32)}}[place]) AS clocks,
            max(goes_on) AS does_go_on,
            max(in_the_end) AS ended_ns,
            if(does_go_on, -1, sum(left - entry) - toInt64(count()) * min(left - entry)) AS stay_ns,
            max(arrived) AS at_ns,
            groupArray(arrived) AS times,
            groupArray(free) AS freed,
            groupArray(place) AS places,
            groupArray(entry) AS entries
        FROM ({_freed(rows)})
        WHERE number > 0
        GROUP BY group_id, number
        HAVING least_step >= {{first:Int64}}"""


def _freed(rows: str) -> str:
    # No PARTITION BY: where two threads share the partitions out between them, it all takes twice the time.
    return f"""
            SELECT
                *,
                multiIf(step_before = -2, 0, step_before = step_of, freed_at_once, freed_in_the_end) AS freed_before,
                if(freed_before = 0, 0, least(freed_before, arrived)) AS free
            FROM (
                SELECT
                    *,
                    if(lagInFrame(place) OVER before = place, lagInFrame(step_of) OVER before, -2) AS step_before,
                    lagInFrame(at_once) OVER before AS freed_at_once,
                    lagInFrame(in_the_end) OVER before AS freed_in_the_end
                FROM (
                    SELECT
                        *,
                        max(arrived) OVER (
                            ORDER BY group_id, number RANGE BETWEEN CURRENT ROW AND CURRENT ROW
                        ) AS last_arrived,
                        if(is_open, if(number = 0, arrived, last_arrived), left + moved) AS in_the_end,
                        if(goes_on, arrived, in_the_end) AS at_once
                    FROM (
                        SELECT
                            *,
                            entry - {{begins:Array(Int64)}}[place] AS since,
                            {{offsets:Array(Int64)}}[place]
                                + toInt64({{slopes:Array(Float64)}}[place] * since) AS moved,
                            entry + moved AS arrived
                        FROM ({rows})
                        WHERE place > 0
                    )
                )
                WINDOW before AS (
                    ORDER BY place, arrived, number ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
                )
            )"""


MEETINGS = _meetings(_ROWS)

EXTENTS = f"""
SELECT lower(hex(incarnation)) AS incarnation_hex, min(entry) AS first_ns, max(entry) AS last_ns
FROM collectives
WHERE {_OF_LAUNCH} AND rank >= 0 AND {_IN_WINDOW}
GROUP BY incarnation
ORDER BY incarnation_hex"""

NAMES = f"""
SELECT DISTINCT {_GROUP} AS group_id, group, group_ranks, cityHash64(op) AS op_id, op
FROM collectives
WHERE {_OF_LAUNCH} AND {_IS_MATCHED} AND {_IN_WINDOW}"""

# A batch that is stored twice has its rows twice: looked for only where a process seems to arrive twice, as it takes
# as long as all the rest.
MEETINGS_OF_COPIES = _meetings(f"""{_ROWS}
                            ORDER BY incarnation, seq, idx
                            LIMIT 1 BY incarnation, seq, idx""")

_CAUSE_OF_PHASE = {
    f"step/{phase.value}": phase.value for phase in (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
}
_CAUSE = f"""multiIf(kind = {SpanKind.CHECKPOINT.code}, 'checkpoint', name = 'gc', 'gc',
    startsWith(path, 'step/'), substring(path, 6), '')"""

OWN_SPANS = f"""
SELECT lower(hex(incarnation)) AS incarnation_hex, {_CAUSE} AS cause, start AS start_ns, start + duration AS end_ns
FROM spans
WHERE {_OF_LAUNCH} AND duration >= 0
    AND ({_STEP}, rank) IN (
        SELECT one.1, one.2
        FROM (SELECT arrayJoin(arrayZip({{steps:Array(Int64)}}, {{ranks:Array(Int32)}})) AS one)
    )
    AND (path IN ({", ".join(f"'{path}'" for path in _CAUSE_OF_PHASE)})
        OR kind = {SpanKind.CHECKPOINT.code} OR (name = 'gc' AND bitAnd(flags, {SPAN_FLAGS["in_step_trace"]}) != 0))
ORDER BY incarnation_hex, start_ns"""

STATEMENTS = (MEMBERS, REACH, EXTENTS, NAMES, MEETINGS, MEETINGS_OF_COPIES, OWN_SPANS)
"""Every statement of this module, for the test that reads them."""


class ClickHouseMeetings:
    """`MeetingReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def members(self, key: RunKey, launch: str) -> Sequence[Member]:
        """See `MeetingReader`."""
        table = await self._clickhouse.select(MEMBERS, _launch(key, launch))
        return [Member(*row) for row in zip(*table.columns, strict=True)]

    async def reach(self, key: RunKey, launch: str, *, first: int, last: int, steps: int) -> Sequence[StepReach]:
        """See `MeetingReader`."""
        where = {**_launch(key, launch), "first": first, "last": last, "steps": steps}
        table = await self._clickhouse.select(REACH, where)
        return [StepReach(*row) for row in zip(*table.columns, strict=True)]

    async def extents(self, key: RunKey, window: Window) -> Mapping[str, tuple[int, int]]:
        """See `MeetingReader`."""
        table = await self._clickhouse.select(EXTENTS, _window(key, window))
        return {incarnation: (first, last) for incarnation, first, last in zip(*table.columns, strict=True)}

    async def meetings(self, key: RunKey, window: Window, *, placed: Sequence[Placed], limit: int) -> Sequence[Meeting]:
        """See `MeetingReader`."""
        where: dict[str, Value] = {
            **_window(key, window),
            "ids": [one.incarnation for one in placed],
            "ranks": [one.rank for one in placed],
            "keys": [one.key for one in placed],
            "begins": [one.begin_ns for one in placed],
            "offsets": [one.offset_ns for one in placed],
            "slopes": [one.slope for one in placed],
            "errors": [one.error_ns for one in placed],
            "clocks": [one.clock for one in placed],
            "limit": limit,
        }
        names = (await self._clickhouse.select(NAMES, _window(key, window))).records()
        found = (await self._clickhouse.select(MEETINGS, where)).records()
        if any(row["arrivals"] > row["processes"] for row in found):
            found = (await self._clickhouse.select(MEETINGS_OF_COPIES, where)).records()
        groups = {row["group_id"]: (row["group"], row["group_ranks"]) for row in names}
        ops = {row["op_id"]: row["op"] for row in names}
        # What came between the two statements is left for the next time.
        return [
            _meeting(row, groups[row["group_id"]], op=ops.get(row["one_op"], ""))
            for row in found
            if row["group_id"] in groups
        ]

    async def own_spans(self, key: RunKey, launch: str, *, stays: Sequence[tuple[int, Stay]]) -> Sequence[OwnSpan]:
        """See `MeetingReader`."""
        # What a rank did before its first collective of a step began behind the last one of the step before.
        wanted = sorted({(at, stay.rank) for step, stay in stays for at in (step - 1, step)})
        if not wanted:
            return []
        steps, ranks = map(list, zip(*wanted, strict=True))
        table = await self._clickhouse.select(
            OWN_SPANS, {**_launch(key, launch), "steps": list(steps), "ranks": list(ranks)}
        )
        return [OwnSpan(*row) for row in zip(*table.columns, strict=True)]


def _meeting(row: Record, group: tuple[str, str], *, op: str) -> Meeting:
    last = Stay(row["last_incarnation"], row["last_rank"], row["last_freed_ns"], row["last_entry_ns"])
    peer = Stay(row["peer_incarnation"], row["peer_rank"], row["peer_freed_ns"], row["peer_entry_ns"])
    return Meeting(
        group=group[0],
        group_ranks=group[1],
        cseq=row["number"],
        step=row["step_least"],
        op=op,
        key=row["key_of"],
        last=last,
        unmeasured=row["unmeasured_of"],
        peer=peer if row["others"] else None,
        **{name: row[name] for name in _AS_THEY_ARE},
    )


_AS_THEY_ARE = (
    *("arrivals", "ranks", "processes", "ops", "sizes", "at_ns", "others", "wait_ns", "received_ns"),
    *("margin_ns", "spread_ns", "stay_ns", "transfer_ns"),
)


def _launch(key: RunKey, launch: str) -> dict[str, Value]:
    return {"project": key.project, "run": key.run, "launch": launch}


def _window(key: RunKey, window: Window) -> dict[str, Value]:
    outside = -1 if window.with_outside else window.last
    return {**_launch(key, window.launch), "first": window.first, "last": window.last, "outside": outside}
