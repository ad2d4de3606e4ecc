"""Completes batches of which a half-failed insert left rows in some tables only.

The same insert again is not enough: a table whose store was killed may know the insert's token and
not have its rows, and the manifest may be lost with the broker's memory. So the payloads go into a
twin of `landing` that keeps them for a moment, and each table gets what its own view makes of them,
less the rows that it has.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from rankscope_ingest.entries import Group
from rankscope_ingest.errors import StoreUncertain
from rankscope_proto.columns import SECTIONS

logger = logging.getLogger(__name__)

_LANDING = re.compile(r"\bFROM\s+(?:`?\w+`?\.)?`?landing`?(?!\w)")
_ONE_BLOCK = (
    "async_insert = 0, max_threads = 1, max_insert_threads = 1, "
    "min_insert_block_size_rows = 1048576, min_insert_block_size_bytes = 0"
)
"""A second try selects what is left: cut into several blocks, it would meet the tokens of other rows."""
_KEYS = {
    **{section.table: ("incarnation", "seq", "idx") for section in SECTIONS},
    "batches": ("incarnation", "seq"),
    "trace_index": (),
}
"""What tells a table's rows apart; `trace_index` keeps sets, least and greatest: a row twice leaves no trace."""


class Workshop(Protocol):
    """The store as this module needs it."""

    async def rows(self, query: str, **parameters: object) -> Sequence[Sequence[object]]:
        """Runs a query."""
        ...

    async def command(self, statement: str, **parameters: object) -> None:
        """Runs a statement."""
        ...

    async def write(
        self, body: bytes, *, token: str, settings: Mapping[str, str | int] | None = None, table: str = "landing"
    ) -> None:
        """Inserts payloads into a table shaped like `landing`."""
        ...


async def complete(store: Workshop, group: Group, *, turn: int = 1) -> None:
    """Adds what is missing of a group in every table; safe to repeat.

    Args:
        store: The store.
        group: Batches that are in some tables.
        turn: Which time it is done; one whose tokens are known and whose rows are not there does nothing again.

    Raises:
        StoreUncertain: It failed; what was added stays, and is not added again.
    """
    twin = f"landing_repair_{group.token}"
    await store.command(f"DROP TABLE IF EXISTS {twin}")
    await store.command(f"CREATE TABLE {twin} AS landing ENGINE = Memory")
    try:
        await store.write(group.body(), token=group.token, table=twin)
        for target in _KEYS:
            await _complete_table(store, target, twin=twin, token=f"{group.token} {turn}")
    finally:
        await store.command(f"DROP TABLE IF EXISTS {twin}")
    facts = {"batches": len(group.entries), "rows": group.rows}
    logger.warning("completed an insert that had reached some tables only", extra=facts)


async def _complete_table(store: Workshop, target: str, *, twin: str, token: str) -> None:
    query = await _view(store, target, twin=twin)
    columns = ", ".join(f"`{row[0]}`" for row in await store.rows(f"DESCRIBE ({query})"))
    own = hashlib.blake2b(f"{token} {target}".encode(), digest_size=16).hexdigest()
    key = ", ".join(_KEYS[target])
    known = f"SELECT {key} FROM {target} WHERE {_scope(twin)}"  # noqa: S608 # names of the declaration
    absent = f"WHERE ({key}) NOT IN ({known})" if key else ""
    await store.command(
        f"INSERT INTO {target} ({columns}) SELECT {columns} FROM ({query}) {absent} "  # noqa: S608 # as above
        f"SETTINGS insert_deduplication_token = '{own}', {_ONE_BLOCK}"
    )


async def _view(store: Workshop, target: str, *, twin: str) -> str:
    """The query of a table's view, over the twin."""
    view = f"{target}_from_landing"
    found = await store.rows(
        "SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = {view:String}", view=view
    )
    if not found:
        raise StoreUncertain(f"the view {view} is missing: the batches of a broken insert cannot be completed")
    query, places = _LANDING.subn(f"FROM {twin}", str(found[0][0]))
    if not places:
        raise StoreUncertain(f"the view {view} does not read `landing`: run `rankscope migrate` over an empty database")
    return query


def _scope(twin: str) -> str:
    """What the twin's batches have in common, so that a table is not read whole."""
    return (
        f"project IN (SELECT header_project FROM {twin}) AND run_id IN (SELECT header_run_id FROM {twin}) "  # noqa: S608
        f"AND week IN (SELECT toDate(header_week) FROM {twin}) "
        f"AND incarnation IN (SELECT header_incarnation FROM {twin})"
    )
