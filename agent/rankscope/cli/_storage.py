"""What the store takes and when its disk will be full, as `rankscope doctor` tells it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.cli._table import table

UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
SOON_DAYS = 14
"""A disk that is full before this is worth a warning."""


def storage_lines(storage: Mapping[str, Any] | None) -> list[str]:
    """The store's size, growth and forecast in a line, and its tables, the largest first."""
    if storage is None:
        return []
    tables: Sequence[Mapping[str, Any]] = [one for one in storage["tables"] if one["rows"]]
    rows = [_row(one) for one in sorted(tables, key=lambda one: -int(one["bytes"]))]
    head = (
        f"store      {sized(storage['bytes'])}, grows by {sized(storage['bytes_per_day'])} a day; "
        f"{sized(storage['free_bytes'])} free, {_forecast(storage['full_in_days'])}"
    )
    return [head, *(f"           {line}" for line in (table(rows, tuple(rows[0])) if rows else ()))]


def sized(count: float) -> str:
    """Bytes in the unit that reads best."""
    for unit, size in UNITS:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _forecast(days: float | None) -> str:
    if days is None:
        return "which lasts"
    return f"full in {days:.0f} days" + (": a shorter retention or a larger disk is due" if days < SOON_DAYS else "")


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "table": one["table"],
        "rows": one["rows"],
        "size": sized(one["bytes"]),
        "a day": sized(one["bytes_per_day"]),
        "kept": "for good" if one["retention_days"] is None else f"{one['retention_days']} days",
    }
