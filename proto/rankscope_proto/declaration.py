"""What a field, a section and a map column are: the words `columns.py` declares the contract in."""

from dataclasses import dataclass
from enum import StrEnum

from rankscope_proto import names


class Wire(StrEnum):
    """How one field travels (the protobuf scalar), or what it stands for."""

    FIXED64 = "fixed64"
    SFIXED64 = "sfixed64"
    INT64 = "int64"
    SINT32 = "sint32"
    UINT64 = "uint64"
    UINT32 = "uint32"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    DICT = "dict"
    COUNT = "count"
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section or of the header.

    Attributes:
        name: Name on the wire and, unless part of a map, in the table.
        number: Protobuf field number; never reused.
        wire: How it travels.
        table: ClickHouse type of the table's column; "" where the table has none.
        meaning: One sentence; with `unit` and the range it is the reference.
        unit: Unit of the value, "" where it has none.
        low: Least value accepted (inclusive), None where the type is the bound.
        high: Greatest value accepted (inclusive).
        vocabulary: The closed set whose codes the field holds.
        count: Name of the `COUNT` field that slices this one into rows.
        optional: Bit in `present` that says whether a row has it; None: always there.
        length: Exact length in bytes of a `BYTES` field; None: any.
        since: Schema version that brought it.
        replaces: Name of the header column that takes this value in rows that have it; such a field is
            optional and has no column of its own.
    """

    name: str
    number: int
    wire: Wire
    table: str
    meaning: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    vocabulary: type[names.Code] | None = None
    count: str | None = None
    optional: int | None = None
    length: int | None = None
    since: int = 1
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A table column made of two flat fields that share a count."""

    name: str
    keys: str
    values: str
    table: str
    meaning: str
    since: int = 1


@dataclass(frozen=True, slots=True)
class Index:
    """An index beside a table, which answers a condition without reading the columns that it is made of.

    Attributes:
        name: Its name in the table.
        expression: What it is made of. A condition is looked up in it only where it has this very text.
        kind: Its kind, with its parameters.
        why: What it is for.
    """

    name: str
    expression: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a batch and the table it becomes.

    Attributes:
        name: Name of the section on the wire.
        number: Its field number in `Batch`.
        table: The table its view fills.
        meaning: What one row is.
        key: The field that every row has: its length is the section's.
        fields: The fields, the key first.
        order_by: Sorting key of the table after project and run.
        order_why: Why that order.
        maps: Columns built from two fields.
        codecs: Column and codec, where another than the store's own pays.
        indexes: What is kept beside the columns.
        expires: SQL expression of the moment a row may vanish; "": never. A table that expires
            proves nothing about what was stored, so completeness is not asked of it.
    """

    name: str
    number: int
    table: str
    meaning: str
    key: str
    fields: tuple[Field, ...]
    order_by: tuple[str, ...]
    order_why: str
    maps: tuple[MapColumn, ...] = ()
    codecs: tuple[tuple[str, str], ...] = ()
    indexes: tuple[Index, ...] = ()
    expires: str = ""

    def field(self, name: str) -> Field:
        """The field of that name (KeyError if there is none)."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"section {self.name} has no field {name}")
