"""Where processes stand, and what tells their groups apart, from `standings`, `batches` and `collectives`.

Rows carry the clock of the agent that wrote them, and agents' clocks differ. So times are told on the store's clock:
a row was true when its batch was received, and what it says of before is counted back from there.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rankscope_proto.names import EventKind, ProcessRole
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.standing import Entered, InGroup, LiveLaunch, ProcessGroup, Standing, State
from rankscope_query_api.values import Record, RunKey, Value

ONE_LOOK_NS = 12 * 10**9
"""Rows of a process this much older than its last one are of a look before: it is looked at every 5 s."""

STILL_NS = 3 * 10**9
"""Processes without progress for so long are looked at for their stacks."""

_GAPS = 1000
"""Collectives of one rank from which the times between two of them are taken, the last ones."""

_OUTLIERS = 2
"""Longest times that are passed over: the first step's, and one other."""

_MOST_GROUPS = 64
"""Groups that are looked up; what more of them wait is judged without the usual time."""

_OF_LAUNCH = "project = {project:String} AND run_id = {run:String} AND launch_id = unhex({launch:String})"

STANDINGS = f"""
SELECT
    of_hi,
    of_lo,
    node,
    lower(hex(incarnation)) AS agent,
    seq,
    time,
    state,
    group,
    enqueued,
    completed,
    op,
    shape,
    since,
    step,
    phase
FROM (
    SELECT *, max(time) OVER (PARTITION BY of_hi, of_lo) AS last
    FROM standings
    WHERE {_OF_LAUNCH}
        AND time >= (SELECT min(last) FROM (
            SELECT max(time) AS last FROM standings WHERE {_OF_LAUNCH} GROUP BY of_hi, of_lo
        )) - {ONE_LOOK_NS}
)
WHERE time >= last - {ONE_LOOK_NS}
ORDER BY of_hi, of_lo, time DESC, seq DESC, idx DESC
LIMIT 1 BY of_hi, of_lo, group"""

# `min` over the times of the rows that say so, for the last row does not tell when that began.
DEAD = f"""
SELECT of_hi, of_lo, min(time) AS died
FROM standings
WHERE {_OF_LAUNCH} AND state = 'dead'
GROUP BY of_hi, of_lo"""

# A stack is taken once in a while: the row after it has none.
STACKS = f"""
SELECT of_hi, of_lo, max(time) AS taken, argMax(stack, time) AS last_stack
FROM standings
WHERE {_OF_LAUNCH} AND of_hi IN {{his:Array(UInt64)}} AND of_lo IN {{los:Array(UInt64)}}
    AND time >= {{since:Int64}} AND stack != ''
GROUP BY of_hi, of_lo"""

PROCESSES = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    any(rank) AS rank_of,
    any(node) AS node_name,
    max(if(received > 0, received, sealed)) AS heard
FROM batches
WHERE {_OF_LAUNCH} AND process_role = {ProcessRole.TRAINER.code} AND rank >= 0
GROUP BY incarnation"""

ENDED = f"""
SELECT DISTINCT lower(hex(incarnation)) AS incarnation_hex
FROM events
WHERE {_OF_LAUNCH} AND kind = '{EventKind.END_OF_STREAM.value}'"""

RECEIVED = f"""
SELECT lower(hex(incarnation)) AS agent, seq, max(if(received > 0, received, sealed)) AS heard
FROM batches
WHERE {_OF_LAUNCH}
    AND incarnation IN (SELECT unhex(arrayJoin({{agents:Array(String)}}))) AND seq IN {{seqs:Array(UInt64)}}
GROUP BY incarnation, seq"""

NOW = "SELECT toUnixTimestamp64Nano(now64(9)) AS now"

GROUPS = f"""
SELECT group, any(last_ranks) AS ranks, any(usual) AS usual_gap, any(longest) AS longest_gap
FROM (
    SELECT group, group_ranks AS last_ranks
    FROM collectives
    WHERE {_OF_LAUNCH} AND group IN {{groups:Array(String)}} AND cseq > 0
    ORDER BY group, cseq DESC, rank
    LIMIT 1 BY group
) AS of_group
LEFT JOIN (
    SELECT
        group,
        toInt64(quantileExact(0.5)(entry - before)) AS usual,
        arrayElement(arrayReverseSort(groupArray(entry - before)), {_OUTLIERS + 1}) AS longest
    FROM (
        SELECT group, entry, lagInFrame(entry) OVER (
            PARTITION BY group ORDER BY cseq ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
        ) AS before
        FROM (
            SELECT group, cseq, min(collectives.entry) AS entry
            FROM collectives
            WHERE {_OF_LAUNCH} AND group IN {{groups:Array(String)}} AND cseq > 0
                AND (group, rank) IN (
                    SELECT group, min(rank) FROM collectives
                    WHERE {_OF_LAUNCH} AND group IN {{groups:Array(String)}} AND cseq > 0
                    GROUP BY group
                )
            GROUP BY group, cseq
            ORDER BY group, cseq DESC
            LIMIT {_GAPS} BY group
        )
    )
    WHERE before > 0
    GROUP BY group
) AS gaps USING (group)
GROUP BY group
ORDER BY group"""

ENTERED = f"""
SELECT rank, group, cseq, op, shape, module
FROM collectives
WHERE {_OF_LAUNCH} AND group IN {{groups:Array(String)}} AND cseq IN {{numbers:Array(UInt64)}}
ORDER BY group, cseq, rank, incarnation, seq, idx
LIMIT 1 BY group, cseq, rank"""

STATEMENTS = (STANDINGS, DEAD, STACKS, PROCESSES, ENDED, RECEIVED, GROUPS, ENTERED)
"""Every statement of this module that reads one run, for the test that reads them."""

LIVE = """
SELECT project, run_id, lower(hex(launch_id)) AS launch, max(time) AS told
FROM standings
WHERE time >= toUnixTimestamp64Nano(now64(9)) - 3600000000000
GROUP BY project, run_id, launch_id
ORDER BY told DESC, project, run_id, launch
LIMIT {limit:UInt32}"""
"""The one statement over all projects: whoever watches them asks which runs there are, and each by itself then."""


class ClickHouseStandings:
    """`StandingReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def standings(self, key: RunKey, launch: str) -> tuple[Sequence[Standing], int]:
        """See `StandingReader`."""
        where = _of(key, launch)
        rows = (await self._clickhouse.select(STANDINGS, where)).records()
        now_ns = int((await self._clickhouse.select(NOW, {})).columns[0][0])
        if not rows:
            return [], now_ns
        batches: dict[str, Value] = {
            "agents": sorted({row["agent"] for row in rows}),
            "seqs": sorted({row["seq"] for row in rows}),
        }
        received, processes, ended, dead, stacks = await asyncio.gather(
            self._clickhouse.select(RECEIVED, {**where, **batches}),
            self._clickhouse.select(PROCESSES, where),
            self._clickhouse.select(ENDED, where),
            self._clickhouse.select(DEAD, where),
            self._stacks(where, rows),
        )
        found = _Found(
            heard={(row["agent"], row["seq"]): int(row["heard"]) for row in received.records()},
            processes={row["incarnation_hex"]: row for row in processes.records()},
            ended=frozenset(row["incarnation_hex"] for row in ended.records()),
            died={_incarnation(row): int(row["died"]) for row in dead.records()},
            stacks=stacks,
        )
        return list(found.standings(rows)), now_ns

    async def _stacks(self, where: Mapping[str, Value], rows: Sequence[Record]) -> Mapping[str, tuple[int, str]]:
        """When a stack was taken last of each process that stands still, and the stack."""
        still = [row for row in rows if row["since"] is not None and int(row["time"]) - int(row["since"]) >= STILL_NS]
        if not still:
            return {}
        asked: dict[str, Value] = {
            "his": sorted({row["of_hi"] for row in still}),
            "los": sorted({row["of_lo"] for row in still}),
            "since": min(int(row["since"]) for row in still),
        }
        found = await self._clickhouse.select(STACKS, {**where, **asked})
        return {_incarnation(row): (int(row["taken"]), row["last_stack"]) for row in found.records()}

    async def groups(self, key: RunKey, launch: str, *, names: Sequence[str]) -> Mapping[str, ProcessGroup]:
        """See `StandingReader`."""
        if not names:
            return {}
        found = await self._clickhouse.select(GROUPS, {**_of(key, launch), "groups": list(names)[:_MOST_GROUPS]})
        return {
            row["group"]: ProcessGroup(
                row["group"],
                ranks_of(row["ranks"]),
                usual_gap_ns=max(0, int(row["usual_gap"])),
                longest_gap_ns=max(0, int(row["longest_gap"])),
            )
            for row in found.records()
        }

    async def entered(self, key: RunKey, launch: str, *, of: Sequence[tuple[str, int]]) -> Sequence[Entered]:
        """See `StandingReader`."""
        if not of:
            return []
        asked: dict[str, Value] = {
            "groups": sorted({group for group, _ in of}),
            "numbers": sorted({number for _, number in of}),
        }
        found = await self._clickhouse.select(ENTERED, {**_of(key, launch), **asked})
        wanted = set(of)
        return [
            Entered(row["rank"], row["group"], row["cseq"], row["op"], row["shape"], row["module"])
            for row in found.records()
            if (row["group"], row["cseq"]) in wanted
        ]

    async def live(self, *, limit: int) -> Sequence[LiveLaunch]:
        """See `StandingReader`."""
        found = await self._clickhouse.select(LIVE, {"limit": limit})
        return [
            LiveLaunch(RunKey(row["project"], row["run_id"]), row["launch"], int(row["told"]))
            for row in found.records()
        ]


def ranks_of(text: str) -> Sequence[int]:
    """Ranks written as 0-3,8; of a text that is none: no ranks."""
    ranks: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            ranks += range(int(first), int(last or first) + 1)
    except ValueError:
        return []
    return ranks


def _of(key: RunKey, launch: str) -> dict[str, Value]:
    return {"project": key.project, "run": key.run, "launch": launch}


def _incarnation(row: Record) -> str:
    return f"{row['of_hi']:016x}{row['of_lo']:016x}"


@dataclass(frozen=True, slots=True)
class _Found:
    """What the statements found, by (agent, batch) and by incarnation; times on the clocks of agents but `heard`."""

    heard: Mapping[tuple[str, int], int]
    processes: Mapping[str, Record]
    ended: frozenset[str]
    died: Mapping[str, int]
    stacks: Mapping[str, tuple[int, str]]

    def standings(self, rows: Sequence[Record]) -> Iterator[Standing]:
        """One of each rank, by rank: of several processes of a rank the one that was heard last."""
        by_process: dict[str, list[Record]] = {}
        for row in rows:
            by_process.setdefault(_incarnation(row), []).append(row)
        # One that has ended may have been there for too short a time to be looked at; of others nothing is known.
        told = (set(by_process) | self.ended) & set(self.processes)
        known = sorted(told, key=lambda one: int(self.processes[one]["heard"]))
        of_rank = {int(self.processes[incarnation]["rank_of"]): incarnation for incarnation in known}
        for rank, incarnation in sorted(of_rank.items()):
            own = sorted(by_process.get(incarnation, ()), key=lambda row: int(row["time"]))
            yield self._standing(rank, incarnation, own=own) if own else self._ended(rank, incarnation)

    def _ended(self, rank: int, incarnation: str) -> Standing:
        process = self.processes[incarnation]
        heard_ns = int(process["heard"])
        return Standing(rank, incarnation, process["node_name"], "ended", heard_ns, heard_ns, None, 0)

    def _standing(self, rank: int, incarnation: str, *, own: Sequence[Record]) -> Standing:
        last = own[-1]
        told = int(last["time"])
        heard_ns = self.heard.get((last["agent"], last["seq"]), told)
        since = None if last["since"] is None else int(last["since"])
        taken, stack = self.stacks.get(incarnation, (0, ""))
        died = self.died.get(incarnation)
        return Standing(
            rank=rank,
            incarnation=incarnation,
            node=last["node"],
            state="ended" if incarnation in self.ended else cast("State", last["state"]),
            heard_ns=heard_ns,
            since_ns=None if since is None else heard_ns - max(0, told - since),
            step=last["step"],
            phase=last["phase"],
            groups=tuple(
                InGroup(row["group"], row["enqueued"], row["completed"], row["op"], row["shape"])
                for row in own
                if row["group"]
            ),
            stack=stack if since is not None and taken >= since else "",
            died_ns=None if died is None else heard_ns - max(0, told - died),
        )
