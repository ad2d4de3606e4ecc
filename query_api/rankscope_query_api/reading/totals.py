"""How long a list of traces is, counted again only when the tables changed.

To count a million traces takes half the time that a page of them may. Parts of a table never change: which there are,
and how many rows of a project or run each has, tells whether a count still stands. So a part is looked into once.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Mapping, Sequence

import orjson

from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.reading.latest import Latest
from rankscope_query_api.reading.open_now import scope_values, scoped
from rankscope_query_api.values import TraceScope, Value

KEPT = 256
"""Counts that are kept, those used last, and as many scopes whose parts were looked into."""

MOST_LOOKS = 4
"""Looks at which parts there are: where each finds new ones, the count is taken anew and not kept."""


PARTS = """
SELECT table, groupArray(name) AS parts
FROM system.parts
WHERE active AND database = currentDatabase() AND table IN ('trace_index', 'spans')
GROUP BY table"""
"""The parts of the tables, whoever's rows they have: it takes a fifth of the time that looking into them does."""


def parts(table: str, run: str | None) -> str:
    """How many rows of a scope some parts have, those without any left out."""
    where = f"{scoped(run)} AND _part IN {{parts:Array(String)}}"
    return f"SELECT _part AS part, count() AS rows FROM {table} WHERE {where} GROUP BY part"


OF_PROJECT = (parts("trace_index", None), parts("spans", None))
"""Statements that read all runs of a project."""

STATEMENTS = (parts("trace_index", "run"), parts("spans", "run"), *OF_PROJECT)
"""Every statement of this module, for the test that reads them."""


class Totals:
    """Counts, and the parts each was true of.

    Args:
        clickhouse: The door.
    """

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse
        self._kept = Latest[bytes, tuple[list[dict[str, int]], int]](KEPT)
        self._looked_into = Latest[tuple[str, TraceScope], dict[str, int]](KEPT)

    async def of(self, scope: TraceScope, statement: str, *, values: Mapping[str, Value], is_filtered: bool) -> int:
        """The one number that a statement answers.

        Args:
            scope: What it reads: the traces of a project or a run.
            statement: It reads the index of traces, and `spans` where it is filtered.
            values: What it is bound to.
            is_filtered: Whether it reads `spans`.
        """
        asked = orjson.dumps([statement, values], option=orjson.OPT_SORT_KEYS)
        # Looked at first: what comes between the two statements makes the next look differ.
        seen = await self._seen(scope, ("trace_index", "spans") if is_filtered else ("trace_index",))
        known = self._kept.get(asked)
        if seen is not None and known is not None and known[0] == seen:
            return known[1]
        total = int((await self._clickhouse.select(statement, values)).columns[0][0])
        if seen is not None:
            self._kept.put(asked, (seen, total))
        return total

    async def _seen(self, scope: TraceScope, tables: Sequence[str]) -> list[dict[str, int]] | None:
        """Rows of a scope by part, of each table; None: parts came and went all the while."""
        for _ in range(MOST_LOOKS):
            present = dict(zip(*(await self._clickhouse.select(PARTS, {})).columns, strict=True))
            known = [await self._known(table, scope, present=present.get(table, ())) for table in tables]
            # A part that was merged away before it was looked into has no rows: only the next list tells.
            if not any(new for _, new in known):
                return [{part: rows for part, rows in parts.items() if rows} for parts, _ in known]
        return None

    async def _known(self, table: str, scope: TraceScope, *, present: Sequence[str]) -> tuple[dict[str, int], bool]:
        """Rows of a scope by part, and whether parts were new."""
        known = self._looked_into.get((table, scope)) or {}
        new = [part for part in present if part not in known]
        if new:
            found = await self._clickhouse.select(parts(table, scope.run), {**scope_values(scope), "parts": new})
            known = {**known, **dict.fromkeys(new, 0), **dict(zip(*found.columns, strict=True))}
        known = {part: known[part] for part in present}
        self._looked_into.put((table, scope), known)
        return known, bool(new)
