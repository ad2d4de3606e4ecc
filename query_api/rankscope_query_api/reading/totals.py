"""How long a list of traces is, counted again only when the tables changed.

To count a million traces takes half the time that a page of them may. Parts of a table never change: which parts
there are, and how many rows of a project or run each has, tells whether a count still stands.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections import OrderedDict
from collections.abc import Mapping

import orjson

from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.reading.open_now import scope_values, scoped
from rankscope_query_api.values import Scope, Value

KEPT = 256
"""Counts that are kept, the latest used."""


def parts(table: str, run: str | None) -> str:
    """The parts that have rows of a scope, and how many."""
    return f"SELECT _part AS part, count() AS rows FROM {table} WHERE {scoped(run)} GROUP BY part ORDER BY part"


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
        self._kept: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    async def of(self, scope: Scope, statement: str, *, values: Mapping[str, Value], is_filtered: bool) -> int:
        """The one number that a statement answers.

        Args:
            scope: What it reads: the traces of a project or a run.
            statement: It reads the index of traces, and `spans` where it is filtered.
            values: What it is bound to.
            is_filtered: Whether it reads `spans`.
        """
        asked = orjson.dumps([statement, values], option=orjson.OPT_SORT_KEYS)
        # Looked at first: what comes between the two statements makes the next look differ.
        seen = orjson.dumps([await self._parts(table, scope) for table in _tables(is_filtered=is_filtered)])
        known = self._kept.get(asked)
        if known is None or known[0] != seen:
            known = seen, int((await self._clickhouse.select(statement, values)).columns[0][0])
        self._kept[asked] = known
        self._kept.move_to_end(asked)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return known[1]

    async def _parts(self, table: str, scope: Scope) -> list[list[object]]:
        found = await self._clickhouse.select(parts(table, scope.run), scope_values(scope))
        return [list(column) for column in found.columns]


def _tables(*, is_filtered: bool) -> tuple[str, ...]:
    return ("trace_index", "spans") if is_filtered else ("trace_index",)
