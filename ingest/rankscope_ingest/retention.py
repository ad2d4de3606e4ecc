"""How long rows are kept: a TTL on every table, by the week in which their batch was sealed.

A week is a partition, so what expires is dropped as whole parts. Rows stay at least the days asked
for: a batch may have been sealed on the last day of its week. Applying again changes nothing, and
without a number the limit that was set from here is taken off.
"""

import logging
import re
from collections.abc import Sequence
from typing import Protocol

from rankscope_ingest.clickhouse import TARGETS
from rankscope_proto.columns import SECTIONS

logger = logging.getLogger(__name__)

_WEEK_DAYS = 7
_OURS = re.compile(r"\bTTL .*\bweek \+ toIntervalDay\((\d+)\)")
_EXPIRES = {section.table: section.expires for section in SECTIONS if section.expires}


class Tables(Protocol):
    """The store as this module needs it."""

    async def rows(self, query: str, **parameters: object) -> Sequence[Sequence[object]]:
        """Runs a query."""
        ...

    async def command(self, statement: str, **parameters: object) -> None:
        """Runs a statement."""
        ...


async def keep_for(tables: Tables, days: int | None) -> list[str]:
    """Lets every table keep its rows for so many days; None: for ever.

    Args:
        tables: The store, migrated.
        days: From 1.

    Returns:
        The tables that were changed.

    Raises:
        StoreUncertain: It failed; applying it again completes it.
    """
    found = await tables.rows("SELECT name, engine_full FROM system.tables WHERE database = currentDatabase()")
    engines = {str(name): str(engine) for name, engine in found}
    wanted = None if days is None else days + _WEEK_DAYS
    changed = [table for table in TARGETS if _days_of(engines[table]) != wanted]
    for table in changed:
        await tables.command(f"ALTER TABLE {table} {_limit(table, wanted)}")
    if changed:
        logger.info("rows are kept for %s", "ever" if days is None else f"{days} days")
    return changed


def _days_of(engine: str) -> int | None:
    ours = _OURS.search(engine)
    return int(ours[1]) if ours else None


def _limit(table: str, days: int | None) -> str:
    """The clause that sets or takes off a table's limit; a table whose rows expire anyway keeps that."""
    own = _EXPIRES.get(table)
    if days is None:
        return f"MODIFY TTL {own}" if own else "REMOVE TTL"
    week = f"week + toIntervalDay({days})"
    return f"MODIFY TTL least({own}, toDateTime({week}, 'UTC'))" if own else f"MODIFY TTL {week}"
