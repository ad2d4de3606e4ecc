"""Kept tensor values: what there is, and the chunks of one content.

A list reads no data. Content is found by its digest, which is what the rows are sorted by; of the copies that ranks
with the same values have sent, one is read.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import base64
from collections.abc import Sequence

from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.values import CaptureFilter, ChunkPlace, Digest, Record, RunKey, Slice, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_OF_CONTENT = f"{_OF_RUN} AND digest_hi = {{hi:UInt64}} AND digest_lo = {{lo:UInt64}}"

_CONDITIONS = {
    "name": "name LIKE {name:String}",
    "step": "toInt64(ifNull(step, -1)) = {step:Int64}",
    "rank": "rank = {rank:Int32}",
    "role": "role = {role:UInt8}",
}

_ROW = """name, module, role, step, microstep, phase, time, dtype, shape, full_shape, part, part_of, digest_hi,
    digest_lo, bytes, cause, rank, seq, idx, lower(hex(launch_id)) AS launch,
    lower(hex(incarnation)) AS incarnation_hex"""

_ORDER = "ifNull(step, -1), time, rank, seq, idx, incarnation_hex"

CAPTURES = f"""
SELECT {_ROW}
FROM captures
WHERE {_OF_RUN} AND chunk = 0 /*where*/
    AND ({_ORDER}) > (
        {{a_step:Int64}}, {{a_time:Int64}}, {{a_rank:Int64}}, {{a_seq:UInt64}}, {{a_idx:UInt64}},
        {{a_incarnation:String}})
ORDER BY {_ORDER}
LIMIT {{limit:UInt32}}"""

CAPTURE_COUNT = f"SELECT count() AS total FROM captures WHERE {_OF_RUN} AND chunk = 0 /*where*/"

WHOLE = f"""
SELECT digest_hi, digest_lo
FROM captures
WHERE {_OF_RUN} AND chunks > 0 AND (digest_hi, digest_lo) IN (
    SELECT one.1, one.2 FROM (SELECT arrayJoin(arrayZip({{his:Array(UInt64)}}, {{los:Array(UInt64)}})) AS one)
)
GROUP BY digest_hi, digest_lo
HAVING uniqExact(chunk) = max(chunks)"""

NAMED = f"""
SELECT *
FROM (
    SELECT {_ROW}
    FROM captures
    WHERE {_OF_CONTENT} AND chunk = 0 /*where*/
    ORDER BY {_ORDER}
    LIMIT 1 BY dtype, shape
)
ORDER BY dtype, shape
LIMIT 2"""

PLACES = f"""
SELECT chunk, max(chunks) AS amount, min(lower(hex(incarnation))) AS incarnation_hex
FROM captures
WHERE {_OF_CONTENT} AND chunks > 0
GROUP BY chunk
ORDER BY chunk"""

CHUNKS = f"""
SELECT chunk, base64Encode(data) AS text
FROM captures
WHERE {_OF_CONTENT} AND chunks > 0 AND (chunk, lower(hex(incarnation))) IN (
    SELECT one.1, one.2 FROM (SELECT arrayJoin(arrayZip({{numbers:Array(UInt32)}}, {{owners:Array(String)}})) AS one)
)
ORDER BY chunk
LIMIT 1 BY chunk"""


def _filtered(statement: str, where: CaptureFilter) -> tuple[str, dict[str, Value]]:
    pattern = None if where.name is None else _like(where.name)
    given = (("name", pattern), ("step", where.step), ("rank", where.rank), ("role", where.role))
    values: dict[str, Value] = {name: value for name, value in given if value is not None}
    return statement.replace("/*where*/", "".join(f" AND {_CONDITIONS[name]}" for name in values)), values


def _like(glob: str) -> str:
    """A glob as the pattern of LIKE: `*` any text, `?` one character, all else itself."""
    return glob.translate({ord("\\"): r"\\", ord("%"): r"\%", ord("_"): r"\_", ord("*"): "%", ord("?"): "_"})


_EVERY = CaptureFilter("a", 1, 1, 1)

STATEMENTS = (
    *(_filtered(statement, where)[0] for statement in (CAPTURES, CAPTURE_COUNT) for where in (_EVERY, CaptureFilter())),
    *(_filtered(NAMED, _EVERY)[0], WHOLE, PLACES, CHUNKS),
)
"""Every statement of this module, for the test that reads them."""


class ClickHouseCaptures:
    """`CaptureReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def captures(self, key: RunKey, where: CaptureFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """See `CaptureReader`."""
        statement, values = _filtered(CAPTURE_COUNT, where)
        total = (await self._clickhouse.select(statement, {**_run(key), **values})).columns[0][0]
        names = ("step", "time", "rank", "seq", "idx", "incarnation")
        start = dict(zip((f"a_{name}" for name in names), after or (-2, 0, -2, 0, 0, ""), strict=True))
        statement, values = _filtered(CAPTURES, where)
        table = await self._clickhouse.select(statement, {**_run(key), **values, **start, "limit": limit + 1})
        found = table.records()
        return Slice(found[:limit], total, _key(found[limit - 1]) if len(found) > limit else None)

    async def whole(self, key: RunKey, digests: Sequence[Digest]) -> frozenset[Digest]:
        """See `CaptureReader`."""
        if not digests:
            return frozenset()
        values: dict[str, Value] = {"his": [hi for hi, _ in digests], "los": [lo for _, lo in digests]}
        table = await self._clickhouse.select(WHOLE, {**_run(key), **values})
        return frozenset((row["digest_hi"], row["digest_lo"]) for row in table.records())

    async def named(self, key: RunKey, digest: Digest, *, where: CaptureFilter) -> Sequence[Record]:
        """See `CaptureReader`."""
        statement, values = _filtered(NAMED, where)
        return (await self._clickhouse.select(statement, {**_content(key, digest), **values})).records()

    async def places(self, key: RunKey, digest: Digest) -> Sequence[ChunkPlace]:
        """See `CaptureReader`."""
        rows = (await self._clickhouse.select(PLACES, _content(key, digest))).records()
        return [ChunkPlace(row["chunk"], row["amount"], row["incarnation_hex"]) for row in rows]

    async def chunks(self, key: RunKey, digest: Digest, *, places: Sequence[ChunkPlace]) -> Sequence[bytes]:
        """See `CaptureReader`."""
        values: dict[str, Value] = {
            "numbers": [place.chunk for place in places],
            "owners": [place.incarnation for place in places],
        }
        table = await self._clickhouse.select(CHUNKS, {**_content(key, digest), **values})
        return [base64.b64decode(row["text"]) for row in table.records()]


def _run(key: RunKey) -> dict[str, Value]:
    return {"project": key.project, "run": key.run}


def _content(key: RunKey, digest: Digest) -> dict[str, Value]:
    return {**_run(key), "hi": digest[0], "lo": digest[1]}


def _key(record: Record) -> Key:
    step = -1 if record["step"] is None else record["step"]
    return step, record["time"], record["rank"], record["seq"], record["idx"], record["incarnation_hex"]
