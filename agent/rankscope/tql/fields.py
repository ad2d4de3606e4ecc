"""What a query can name: the closed table of fields, derived from `rankscope_proto.columns` when imported.

Whatever reaches SQL as an identifier is a column named here. A field belongs to an entity: the
kind of row a query returns. Fields without a scope (`rank`, `step`) exist for every entity that
has the column; attributes and metrics (`attr.x`, `metric.x`) are keys of the span's maps. What a
row does not hold itself (the name of its run, the duration of its trace) is looked up: `Origin`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rankscope.tql.flags import flag_fields
from rankscope_proto import columns, names
from rankscope_proto.declaration import Field as Declared
from rankscope_proto.declaration import Section, Wire


class Entity(StrEnum):
    """What one row of an answer is; the value is the scope of its fields."""

    TENSOR = "tensor"
    SPAN = "span"
    SCALAR = "scalar"
    GAP = "gap"
    EVENT = "event"
    HIT = "hit"
    COLLECTIVE = "collective"
    SYSTEM = "system"
    TRACE = "trace"
    RUN = "run"


class Origin(StrEnum):
    """Where a field's value comes from: the row itself, or what is looked up by keys that the row has."""

    ROW = "row"
    RUN = "run"
    LAUNCH = "launch"
    PLACE = "place"
    MODULE = "module"
    TRACE = "trace"
    TREE = "tree"
    MATCH = "match"


class Type(StrEnum):
    """What a value is; only values of one type, or two numbers, compare."""

    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    BOOL = "bool"
    WORD = "word"
    DURATION = "duration"
    SIZE = "size"
    TIME = "time"
    ID = "id"
    ATTRIBUTE = "attribute"
    LIST = "list"


NUMBERS = {Type.INTEGER, Type.FLOAT}
"""The types that compare with one another."""

ORDERED = {*NUMBERS, Type.STRING, Type.DURATION, Type.SIZE, Type.TIME}
"""The types that have less and more."""


Vocabulary = type[names.Code]
"""A closed set of words with codes."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of one entity.

    Attributes:
        name: As a query writes it: `rank`, `tensor.l2`, `attr` and `metric` without the key.
        entity: The rows that have it.
        column: Columns of the entity's table; two for a trace id and for a sum of columns. Of a field that is looked
            up: what the look-up calls it.
        type: Type of its values.
        table: ClickHouse type of the column.
        low: Least value (inclusive) of an integer, duration or time.
        high: Greatest value (inclusive).
        vocabulary: The words it may hold, for `Type.WORD`; none elsewhere.
        nullable: Whether the column itself can be NULL.
        absent: The value that stands for "missing" in a column that cannot be NULL; None: never missing.
        meaning: One sentence.
        origin: Where the value comes from. Looked up values are NULL where nothing is found.
        bit: The bit of the column that it is; 0: the whole column.
    """

    name: str
    entity: Entity
    column: tuple[str, ...]
    type: Type
    table: str
    low: int = 0
    high: int = 0
    vocabulary: Vocabulary = names.Code
    nullable: bool = False
    absent: str | int | None = None
    meaning: str = ""
    origin: Origin = Origin.ROW
    bit: int = 0

    @property
    def id_digits(self) -> int:
        """Hexadecimal digits of an id."""
        return 32 if len(self.column) == 2 or self.table.startswith("FixedString") else 16


SECTION: Mapping[Entity, Section] = {
    Entity.TENSOR: columns.TENSOR_STATS,
    Entity.SPAN: columns.SPANS,
    Entity.SCALAR: columns.SCALARS,
    Entity.GAP: columns.GAPS,
    Entity.EVENT: columns.EVENTS,
    Entity.HIT: columns.HITS,
    Entity.COLLECTIVE: columns.COLLECTIVES,
    Entity.SYSTEM: columns.SYSTEM_STATS,
}
"""The section, and so the table, of each entity that is stored as rows of its own."""

TIME_COLUMN: Mapping[Entity, str] = {
    Entity.TENSOR: "time",
    Entity.SPAN: "start",
    Entity.SCALAR: "time",
    Entity.GAP: "start",
    Entity.EVENT: "time",
    Entity.HIT: "time",
    Entity.COLLECTIVE: "entry",
    Entity.SYSTEM: "time",
}
"""The column that says when a row was."""

MAPS: Mapping[str, tuple[str, ...]] = {
    "attr": ("attributes", "numbers"),
    "metric": ("metrics",),
    "hit.seen": ("seen_texts", "seen"),
}
"""Map columns of a row behind each scope whose keys are free: texts first, then numbers."""

KEYED: Mapping[str, tuple[Type, Origin]] = {
    "attr": (Type.ATTRIBUTE, Origin.ROW),
    "metric": (Type.FLOAT, Origin.ROW),
    "run.config": (Type.ATTRIBUTE, Origin.RUN),
    "mesh": (Type.INTEGER, Origin.PLACE),
    "hit.seen": (Type.ATTRIBUTE, Origin.ROW),
}
"""Every scope whose keys are free, with what is under them and where that comes from."""

_UNSCOPED_HEADER = {
    "rank": "rank",
    "local_rank": "local_rank",
    "world_size": "world_size",
    "node": "node",
    "launch_id": "launch",
    "process_role": "process_role",
    "project": "project",
    "run_id": "run.id",
}
_UNSCOPED = ("step", "microstep", "phase")
_RENAMED = {
    (Entity.SPAN, "parent_span_id"): "span.parent_id",
    (Entity.GAP, "data_kind"): "gap.kind",
    (Entity.COLLECTIVE, "cseq"): "collective.seq",
    (Entity.TENSOR, "module"): "module.path",
    (Entity.TENSOR, "layer_index"): "layer.index",
    (Entity.TENSOR, "layer_type"): "layer.type",
}
_NONE_IS_0 = {(Entity.SPAN, "parent_span_id"), (Entity.EVENT, "span_id"), (Entity.COLLECTIVE, "cseq")}
"""Ids and numbers that a row may lack."""

_NOT_NAMED = {"flags", "trace_hi", "trace_lo", "capture", "redaction_state", "step", "microstep"}
_RANGE = {
    "UInt8": (0, 2**8 - 1),
    "UInt16": (0, 2**16 - 1),
    "UInt32": (0, 2**32 - 1),
    "UInt64": (0, 2**64 - 1),
    "Int32": (-(2**31), 2**31 - 1),
    "Int64": (-(2**63), 2**63 - 1),
}


def _type_of(declared: Declared) -> Type:
    table = declared.table
    if declared.vocabulary is not None:
        return Type.WORD
    if declared.wire is Wire.FIXED64 or table.startswith("FixedString"):
        return Type.ID
    if declared.unit:
        return {"ns": Type.DURATION, "bytes": Type.SIZE}.get(declared.unit, Type.TIME)
    if "String" in table:
        return Type.STRING
    return Type.FLOAT if table.startswith("Float") else Type.INTEGER


def _absent(entity: Entity, declared: Declared) -> str | int | None:
    """What the wire sends where there is nothing: "" for words, 0 for "not stated" codes, -1 for "has none"."""
    if declared.optional is not None:
        return None
    if declared.vocabulary is not None or (entity, declared.name) in _NONE_IS_0:
        return 0
    if declared.wire in {Wire.DICT, Wire.STRING}:
        return ""
    return -1 if declared.low == -1 else None


def _field(entity: Entity, name: str, *, declared: Declared) -> Field:
    low, high = _RANGE.get(declared.table, (0, 0))
    absent = _absent(entity, declared)
    declared_low = 0 if absent == -1 else declared.low
    return Field(
        name,
        entity,
        (declared.name,),
        _type_of(declared),
        declared.table,
        low=declared_low if declared_low is not None else low,
        high=declared.high if declared.high is not None else high,
        vocabulary=declared.vocabulary or names.Code,
        nullable=declared.optional is not None,
        absent=absent,
        meaning=declared.meaning,
    )


def _is_plain(declared: Declared) -> bool:
    """Whether it is one column holding one value a row."""
    return bool(declared.table) and declared.count is None and declared.name not in _NOT_NAMED


def _scoped(entity: Entity) -> Iterator[Field]:
    for declared in SECTION[entity].fields:
        if _is_plain(declared):
            name = _RENAMED.get((entity, declared.name), f"{entity}.{declared.name}")
            yield _field(entity, name, declared=declared)


def _unscoped(entity: Entity) -> Iterator[Field]:
    for declared in columns.HEADER:
        if declared.name in _UNSCOPED_HEADER:
            yield _field(entity, _UNSCOPED_HEADER[declared.name], declared=declared)
    for declared in SECTION[entity].fields:
        if declared.name in _UNSCOPED:
            yield _field(entity, declared.name, declared=declared)
        if declared.name == TIME_COLUMN[entity]:
            yield _field(entity, "time", declared=declared)


def _composed() -> Iterator[Field]:
    """Fields that are no single value of a column: a trace id is two halves, an end is start and duration."""
    trace = "Id of the trace: 32 hexadecimal digits."
    halves = ("trace_hi", "trace_lo")
    yield Field("span.trace_id", Entity.SPAN, halves, Type.ID, "UInt64", meaning=trace)
    yield Field("trace.id", Entity.SPAN, halves, Type.ID, "UInt64", meaning=trace)
    yield Field("trace.id", Entity.TRACE, halves, Type.ID, "UInt64", meaning=trace)
    end = "Wall clock at the start plus the duration."
    low, high = _RANGE["Int64"]
    yield Field("span.end", Entity.SPAN, ("start", "duration"), Type.TIME, "Int64", low=low, high=high, meaning=end)
    yield _field(Entity.TENSOR, "tensor.numel", declared=columns.TENSOR_STATS.field("numel_local"))
    shape = "Local shape, written as [2, 3]; of a single number, []."
    yield Field("tensor.shape", Entity.TENSOR, ("shape",), Type.STRING, "Array(UInt64)", meaning=shape)
    hist = columns.TENSOR_STATS.field("log2_hist").meaning
    for name, bit, meaning in flag_fields():
        entity = Entity(name.partition(".")[0])
        yield Field(name, entity, ("flags",), Type.BOOL, "UInt8", meaning=meaning, bit=bit)
    yield Field("tensor.log2_hist", Entity.TENSOR, ("log2_hist",), Type.LIST, "Array(UInt64)", meaning=hist)


_EVERY_ROW = tuple(SECTION)
_EVERY_ROW_AND_TRACE = (*_EVERY_ROW, Entity.TRACE)
_ANY = (*_EVERY_ROW_AND_TRACE, Entity.RUN)
_SPANS = (Entity.SPAN, Entity.TRACE)
_COLLECTIVES = (Entity.COLLECTIVE,)


def _looked_up(
    origin: Origin, name: str, *, kind: Type, table: str, of: tuple[Entity, ...], meaning: str
) -> list[Field]:
    """A field of several entities that their rows do not hold themselves; its column is its name with "_" for "."."""
    low, high = _RANGE.get(table, (0, 0))
    found = name if "." in name else f"{origin}_{name}"
    column = (found.replace(".", "_"),)
    return [
        Field(
            name, entity, column, kind, table, low=low, high=high, nullable=True, meaning=meaning, origin=origin,
            vocabulary=_VOCABULARIES.get(name, names.Code),
        )
        for entity in of
    ]  # fmt: skip


_VOCABULARIES: Mapping[str, Vocabulary] = {"run.status": names.RunStatus, "trace.status": names.SpanStatus}

_LOOKED_UP: tuple[tuple[Origin, str, Type, str, tuple[Entity, ...], str], ...] = (
    (Origin.RUN, "run.name", Type.STRING, "String", _ANY, "Name of the run, for people."),
    (Origin.RUN, "run.status", Type.WORD, "UInt8", _ANY, "Where the run stands."),
    (Origin.RUN, "run.tag", Type.LIST, "Array(String)", _ANY, "Tags of the run."),
    (Origin.LAUNCH, "attempt", Type.INTEGER, "UInt32", _EVERY_ROW, "Ordinal of the launch in its run, from 0."),
    (Origin.MODULE, "module.class", Type.STRING, "String", (Entity.TENSOR,), "Class of the module."),
    (Origin.MODULE, "module.type", Type.STRING, "String", (Entity.TENSOR,), "Semantic type of the module."),
    (Origin.MODULE, "layer.path", Type.STRING, "String", (Entity.TENSOR,), "Path of the nearest enclosing layer."),
    (Origin.TRACE, "trace.root_name", Type.STRING, "String", _SPANS, "Name of the root span; missing without one."),
    (Origin.TRACE, "trace.duration", Type.DURATION, "Int64", _SPANS, "From the first start to the last end."),
    (Origin.TRACE, "trace.span_count", Type.INTEGER, "UInt64", _SPANS, "Spans of the trace."),
    (Origin.TRACE, "trace.error_count", Type.INTEGER, "UInt64", _SPANS, "Spans of the trace that are in error."),
    (Origin.TRACE, "trace.rank_count", Type.INTEGER, "UInt64", _SPANS, "Ranks that have a span of the trace."),
    (
        Origin.TRACE,
        "trace.status",
        Type.WORD,
        "UInt8",
        _SPANS,
        "Error where a span is, else cancelled where one is, interrupted where every span is, else ok.",
    ),
    (Origin.TREE, "span.child_count", Type.INTEGER, "UInt64", (Entity.SPAN,), "Spans whose parent it is."),
    (
        Origin.TREE,
        "span.self_duration",
        Type.DURATION,
        "Int64",
        (Entity.SPAN,),
        "Its duration less the sum of its children's, each from 0; at least 0.",
    ),
    (
        Origin.MATCH,
        "collective.wait",
        Type.DURATION,
        "Int64",
        _COLLECTIVES,
        "From its arrival to that of the last rank; missing until all ranks of the group are there.",
    ),
    (
        Origin.MATCH,
        "collective.wait_charged",
        Type.DURATION,
        "Int64",
        _COLLECTIVES,
        "Sum of all ranks' waits, at the rank that came last for certain; missing at all others.",
    ),
    (Origin.MATCH, "collective.skew", Type.DURATION, "Int64", _COLLECTIVES, "From the first arrival to the last."),
    (Origin.MATCH, "collective.arrived", Type.INTEGER, "UInt64", _COLLECTIVES, "Ranks whose arrival is stored."),
    (Origin.TRACE, "step", Type.INTEGER, "Int64", (Entity.TRACE,), "Step of the trace's first span that has one."),
    (Origin.TRACE, "time", Type.TIME, "Int64", (Entity.TRACE,), "Start of the trace's first span."),
    (Origin.RUN, "time", Type.TIME, "Int64", (Entity.RUN,), "When the first process joined the run."),
)
"""Origin, name, type, ClickHouse type, entities and meaning of each field that is looked up."""


def _identity(entity: Entity) -> Iterator[Field]:
    """What tells one trace or run from another."""
    for declared in columns.HEADER:
        if declared.name in {"project", "run_id"}:
            yield _field(entity, _UNSCOPED_HEADER[declared.name], declared=declared)


def _all_fields() -> Iterator[Field]:
    for entity in SECTION:
        yield from _unscoped(entity)
        yield from _scoped(entity)
    yield from _composed()
    for entity in (Entity.TRACE, Entity.RUN):
        yield from _identity(entity)
    for origin, name, kind, table, of, meaning in _LOOKED_UP:
        yield from _looked_up(origin, name, kind=kind, table=table, of=of, meaning=meaning)


def _table() -> dict[str, dict[Entity, Field]]:
    found: dict[str, dict[Entity, Field]] = {}
    for field in _all_fields():
        found.setdefault(field.name, {})[field.entity] = field
    return found


FIELDS: Mapping[str, Mapping[Entity, Field]] = _table()
"""Every field by name, for each entity that has it."""

SCOPES = {*map(str, Entity), "module", "layer", "mesh", "attr", "metric"}
"""What may stand before the dot."""

_OWNERS = {"attr": Entity.SPAN, "metric": Entity.SPAN, "module": Entity.TENSOR, "layer": Entity.TENSOR}


def scope_entity(scope: str) -> Entity | None:
    """The entity whose rows a scope says that a query is about, None where it says nothing of that.

    `trace.` and `run.` say nothing by themselves: spans and other rows have such fields, too.
    """
    if scope in {Entity.TRACE, Entity.RUN}:
        return None
    return _OWNERS.get(scope) or (Entity(scope) if scope in set(Entity) else None)
