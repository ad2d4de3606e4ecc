"""What deletes a run: a statement for each table, the ledger last.

A run is there while the ledger has a batch of it, so a deletion that was cut short can be asked for again. Parts are
rewritten without the run's rows (`mutations_sync = 2`: on every replica, before the answer), which gives the room back
at once; a lightweight delete would only hide them until the next merge.
"""

# ruff: noqa: S608 - only names of the declaration are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from rankscope_proto.columns import SECTIONS

_TABLES = (*(section.table for section in SECTIONS), "trace_index", "batches")

COUNTED = " UNION ALL ".join(
    f"""
SELECT '{table}' AS table, count() AS rows
FROM {table}
WHERE project = {{project:String}} AND run_id = {{run:String}}"""
    for table in _TABLES
)

DELETED = tuple(
    f"""
ALTER TABLE {table}
DELETE WHERE project = {{project:String}} AND run_id = {{run:String}}
SETTINGS mutations_sync = 2"""
    for table in _TABLES
)

STATEMENTS = (COUNTED,)
"""What of this module reads, for the test that parses it; `DELETED` has a test of its own."""
