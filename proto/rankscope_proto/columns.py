"""The one declaration of what crosses a process boundary and what a table holds.

The sections are declared in `sections_*.py`, the header in `header.py`; this module is where they
become one. Rendered from here, committed, and compared in the test command: `v1/batch.proto`,
`storage/*.sql` (tables, `landing`, views), `storage/landing.txt` and `../reference.md`.

A `Batch` is a header and sections; a section is a message of repeated fields, each as long
as the section or absent. How a field travels is its `wire`; what becomes of it in the table
is its `table`. Three things need a word:

* **Dictionary**: `DICT` fields are indexes into `Batch.strings`, whose entry 0 is always "".
* **List within a row**: the row's element count travels in a `COUNT` field, the elements of
  all rows flat in the fields that name it (`count=`). A map is two such fields.
* **Absence in a row**: a field with an `optional` bit is NULL where that bit of the row's
  `present` mask is 0. A section without `present` has every field it carries, in every row.
"""

from rankscope_proto.declaration import Field, Section, Wire
from rankscope_proto.header import HEADER, ROW_HEADER
from rankscope_proto.sections_probe import CAPTURES, HITS
from rankscope_proto.sections_ranks import CLOCKS, COLLECTIVES, STANDINGS, SYSTEM_STATS
from rankscope_proto.sections_run import EVENTS, GAPS, RUN_INFO, SCALARS
from rankscope_proto.sections_spans import OPEN_SPANS, SPANS
from rankscope_proto.sections_tensors import MODULES, TENSOR_STATS

__all__ = [
    "CAPTURES",
    "CLOCKS",
    "COLLECTIVES",
    "EVENTS",
    "GAPS",
    "HEADER",
    "HITS",
    "MODULES",
    "OPEN_SPANS",
    "ROW_HEADER",
    "RUN_INFO",
    "SCALARS",
    "SCHEMA_VERSION",
    "SECTIONS",
    "SECTION_BY_NAME",
    "SPANS",
    "STANDINGS",
    "SYSTEM_STATS",
    "TENSOR_STATS",
    "emitted_field",
    "header_fields",
]

SCHEMA_VERSION = 5
"""Version of this declaration; grows by one with every column added."""

SECTIONS: tuple[Section, ...] = (
    SPANS,
    TENSOR_STATS,
    SCALARS,
    MODULES,
    EVENTS,
    GAPS,
    RUN_INFO,
    OPEN_SPANS,
    HITS,
    CAPTURES,
    COLLECTIVES,
    CLOCKS,
    SYSTEM_STATS,
    STANDINGS,
)
"""Every section, in wire order."""

SECTION_BY_NAME = {section.name: section for section in SECTIONS}
"""Section of each name."""


def emitted_field(section: Section) -> Field:
    """The header field that carries a section's cumulative emitted rows."""
    return Field(
        f"emitted_{section.name}",
        100 + section.number,
        Wire.UINT64,
        "UInt64",
        f"Rows of {section.name} emitted by the incarnation up to and including this batch.",
    )


def header_fields() -> tuple[Field, ...]:
    """All fields of the header, emitted sums included."""
    return HEADER + tuple(emitted_field(section) for section in SECTIONS)
