"""Which columns of an answer a table shows: what the query names first, then where a row belongs, then the rest.

A row has more fields than a terminal has room for, so some are left out of tables; one that the query names is
always there. `--json` has all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope import tql
from rankscope.cli._output import duration
from rankscope.tql.mentions import fields_in
from rankscope.tql.nodes import FieldRef

LEADING = ("run_id", "step", "rank", "phase", "role", "name", "kind", "status", "path", "duration", "layer_type")
"""Columns that come next where rows have them."""

HIDDEN = frozenset(
    {"time_ns", "start_ns", "trace_id", "span_id", "parent_span_id", "module", "layer_index", "flags", "microstep"}
    | {"attributes", "metrics", "launch_id", "incarnation", "seq", "idx", "shape", "dtype"}
    | {"placement", "numel_global", "depth", "thread_id"}
)
"""Columns that make a table too wide to read; shown where the query names them."""

WIDTH = 12

MAPS = {"attr": "attributes", "metric": "metrics"}
"""Scope of a query -> the field of a row that holds the scope's keys."""

RENAMED = {"span.parent_id": "parent_span_id"}

Row = Mapping[str, Any]


def laid_out(rows: Sequence[Row], query: str = "") -> tuple[list[dict[str, Any]], list[str]]:
    """The rows with their values as a table shows them, and the columns of that table.

    Args:
        rows: items of an answer.
        query: the TQL text that was answered, if any.
    """
    named = _fields_named_in(query)
    readable = [_readable(row, named) for row in rows]
    present = list(dict.fromkeys(name for row in readable for name in row))
    first = list(dict.fromkeys(name for field in named for name in _names_of(field) if name in present))
    usual = [name for name in LEADING if name in present and name not in first and _tells(name, rows)]
    rest = [name for name in present if name not in {*first, *usual, *LEADING, *HIDDEN}]
    return readable, (first + usual + rest)[: max(WIDTH, len(first))]


def _fields_named_in(query: str) -> list[FieldRef]:
    try:
        return list(fields_in(tql.parse(query)))
    except tql.TqlError:
        return []  # the service that answered may know more of the language than we do


def _names_of(field: FieldRef) -> tuple[str, ...]:
    """What a row may call a field: `tensor.l2` is l2, `run.id` run_id, `module.path` module, `launch` launch_id."""
    if field.scope in MAPS:
        return (field.name,)
    joined = f"{field.scope}_{field.key}" if field.scope else f"{field.key}_id"
    candidates = (RENAMED.get(field.name), field.key, joined, field.scope)
    return tuple(name for name in candidates if name)


def _readable(row: Row, named: Sequence[FieldRef]) -> dict[str, Any]:
    """Durations in the unit that reads best, under their name without `_ns`; a key of a map under its field's name."""
    readable: dict[str, Any] = {}
    for name, value in row.items():
        if name.endswith("duration_ns"):
            readable[name.removesuffix("_ns")] = duration(value)
        elif value is not None:
            readable[name] = value
    for field in named:
        inside: Mapping[str, Any] = row.get(MAPS.get(field.scope, "")) or {}
        if field.key in inside:
            readable[field.name] = inside[field.key]
    return readable


def _tells(name: str, rows: Sequence[Row]) -> bool:
    """Whether a column says anything: the run is the same on most pages."""
    return name != "run_id" or len({row.get(name) for row in rows}) > 1
