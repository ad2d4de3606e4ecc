"""Keys and values that stored rows have, for completion: of a bounded number of rows, so that asking costs little.

A key that only rows beyond the bound have is not found; that is no fault of a query that names it.
"""

from collections.abc import Mapping

from rankscope.tql.fields import SECTION, Field, Origin, Type
from rankscope_query_api.tql_sql.guard import check_statement
from rankscope_query_api.tql_sql.parameters import Statement, Value

ROWS = 100_000
"""Rows that are looked at. Their maps of nine attributes are read in some 20 ms."""

_MAPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "attr": ("spans", ("attributes", "numbers")),
    "metric": ("spans", ("metrics",)),
    "mesh": ("batches", ("mesh",)),
    "hit.seen": ("hits", ("seen_texts", "seen")),
}
"""The table and the maps behind each scope whose keys are columns' keys; a run's settings are JSON and are not."""


def keys_statement(scope: str, *, project: str, run: str | None) -> Statement | None:
    """One row: the keys of each map of a scope, as lists; None where no column holds them."""
    if scope not in _MAPS:
        return None
    table, maps = _MAPS[scope]
    keys = ", ".join(f"groupUniqArrayArray(mapKeys({one})) AS {one}_keys" for one in maps)
    return _checked(f"SELECT {keys} FROM ({_sample(', '.join(maps), table, run=run)})", project, run=run)  # noqa: S608 - names are ours


def values_statement(
    of: Field | tuple[str, str], *, project: str, run: str | None, prefix: str, limit: int
) -> Statement | None:
    """The most frequent texts of a field or attribute that begin with a prefix; None where it is no stored text."""
    more: dict[str, Value] = {"prefix": prefix, "limit": limit}
    if isinstance(of, tuple):
        table, maps = _MAPS[of[0]]
        value = f"arrayElement({maps[0]}, {{key:String}})"
        more["key"] = of[1]
    elif of.type is Type.STRING and of.origin is Origin.ROW and of.entity in SECTION and "String" in of.table:
        table, value = SECTION[of.entity].table, of.column[0]
    else:
        return None
    sample = _sample(f"{value} AS found", table, run=run)
    text = (
        f"SELECT found, count() AS times FROM ({sample}) "  # noqa: S608 - names are of the field table
        "WHERE found <> '' AND startsWith(found, {prefix:String}) "
        "GROUP BY found ORDER BY times DESC, found ASC LIMIT {limit:UInt64}"
    )
    return _checked(text, project, run=run, **more)


def _sample(columns: str, table: str, *, run: str | None) -> str:
    restricted = "project = {project:String}" + (" AND run_id = {run:String}" if run is not None else "")
    return f"SELECT {columns} FROM {table} PREWHERE {restricted} LIMIT {{rows:UInt64}}"  # noqa: S608 - as above


def _checked(sql: str, project: str, *, run: str | None, **more: Value) -> Statement:
    check_statement(sql, with_run=run is not None)
    bound: dict[str, Value] = {"project": project, "rows": ROWS, **more}
    return Statement(sql, bound if run is None else {**bound, "run": run})
