"""What a query can name: the closed table of fields, derived from `rankscope_proto.columns` when imported.

Whatever reaches SQL as an identifier is a column named here. A field belongs to an entity: the
kind of row a query returns. Fields without a scope (`rank`, `step`) exist for every entity that
has the column; attributes and metrics (`attr.x`, `metric.x`) are keys of the span's maps.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

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
        column: Columns of the entity's table; two for a trace id and for a sum of columns.
        type: Type of its values.
        table: ClickHouse type of the column.
        low: Least value (inclusive) of an integer, duration or time.
        high: Greatest value (inclusive).
        vocabulary: The words it may hold, for `Type.WORD`; none elsewhere.
        nullable: Whether the column itself can be NULL.
        absent: The value that stands for "missing" in a column that cannot be NULL; None: never missing.
        meaning: One sentence.
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
}
"""The section, and so the table, of each entity."""

TIME_COLUMN: Mapping[Entity, str] = {
    Entity.TENSOR: "time",
    Entity.SPAN: "start",
    Entity.SCALAR: "time",
    Entity.GAP: "start",
    Entity.EVENT: "time",
}
"""The column that says when a row was."""

MAPS: Mapping[str, tuple[str, ...]] = {"attr": ("attributes", "numbers"), "metric": ("metrics",)}
"""Map columns of a span behind each scope whose keys are free: texts first, then numbers."""

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
    (Entity.TENSOR, "module"): "module.path",
    (Entity.TENSOR, "layer_index"): "layer.index",
    (Entity.TENSOR, "layer_type"): "layer.type",
}
_NOT_NAMED = {"flags", "trace_hi", "trace_lo", "capture", "redaction_state", "step", "microstep"}
_RANGE = {
    "UInt8": (0, 2**8 - 1),
    "UInt16": (0, 2**16 - 1),
    "UInt32": (0, 2**32 - 1),
    "UInt64": (0, 2**64 - 1),
    "Int32": (-(2**31), 2**31 - 1),
    "Int64": (-(2**63), 2**63 - 1),
}

LATER: Mapping[str, str] = {
    "attempt": "the ordinal of a launch",
    "mesh": "mesh coordinates",
    "run.name": "what a run is called; run.id is there",
    "run.status": "where a run stands",
    "run.tag": "the tags of a run",
    "run.config": "the configuration of a run",
    "trace": "fields of whole traces",
    "system": "node and device figures",
    "hit": "breakpoint hits",
    "module.type": "the type of a module; layer.type is there",
    "module.class": "the class of a module",
    "layer.path": "the path of a layer; module.path is there",
    "span.self_duration": "a span's time without its children",
    "span.child_count": "the number of a span's children",
    "tensor.shape": "comparing shapes",
    "tensor.log2_hist": "comparing histograms",
}
"""Names of the language that this version does not answer: a whole scope, or one field."""


def _type_of(declared: Declared) -> Type:
    table = declared.table
    if declared.vocabulary is not None:
        return Type.WORD
    if declared.wire is Wire.FIXED64 or table.startswith("FixedString"):
        return Type.ID
    if declared.unit:
        return Type.DURATION if declared.unit == "ns" else Type.TIME
    if "String" in table:
        return Type.STRING
    return Type.FLOAT if table.startswith("Float") else Type.INTEGER


def _absent(declared: Declared) -> str | int | None:
    """What the wire sends where there is nothing: "" for words, 0 for "not stated" codes, -1 for "has none"."""
    if declared.optional is not None:
        return None
    if declared.vocabulary is not None or declared.name == "parent_span_id":
        return 0
    if declared.wire in {Wire.DICT, Wire.STRING}:
        return ""
    return -1 if declared.low == -1 else None


def _field(entity: Entity, name: str, *, declared: Declared) -> Field:
    low, high = _RANGE.get(declared.table, (0, 0))
    absent = _absent(declared)
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
    """Fields that are no single column: a trace id is two halves, an end is start and duration."""
    trace = "Id of the trace: 32 hexadecimal digits."
    yield Field("span.trace_id", Entity.SPAN, ("trace_hi", "trace_lo"), Type.ID, "UInt64", meaning=trace)
    end = "Wall clock at the start plus the duration."
    low, high = _RANGE["Int64"]
    yield Field("span.end", Entity.SPAN, ("start", "duration"), Type.TIME, "Int64", low=low, high=high, meaning=end)
    numel = _field(Entity.TENSOR, "tensor.numel", declared=columns.TENSOR_STATS.field("numel_local"))
    yield numel


def _table() -> dict[str, dict[Entity, Field]]:
    found: dict[str, dict[Entity, Field]] = {}
    for entity in Entity:
        for field in (*_unscoped(entity), *_scoped(entity)):
            found.setdefault(field.name, {})[entity] = field
    for field in _composed():
        found[field.name] = {field.entity: field}
    return found


FIELDS: Mapping[str, Mapping[Entity, Field]] = _table()
"""Every field by name, for each entity that has it."""

SCOPES = {"tensor", "span", "scalar", "gap", "event", "module", "layer", "run", *MAPS}
"""What may stand before the dot."""


def scope_entity(scope: str) -> Entity | None:
    """The entity a scope belongs to, None where the scope says nothing of it."""
    if scope in MAPS:
        return Entity.SPAN
    if scope in {"module", "layer"}:
        return Entity.TENSOR
    return Entity(scope) if scope in set(Entity) else None


def nearest(name: str) -> str:
    """The known name most like a wrong one, "" if none is near.

    A scope that is right is believed: only then its fields are compared by what follows the dot.
    """
    scope, _, key = name.rpartition(".")
    known = [*FIELDS, *LATER]
    of_scope = {field.rpartition(".")[2]: field for field in known if field.rpartition(".")[0] == scope}
    if near := difflib.get_close_matches(key, of_scope, n=1, cutoff=0.7):
        return of_scope[near[0]]
    if holding := [field for other, field in of_scope.items() if key in other.split("_")]:
        return holding[0]
    same_key = [field for field in known if field.rpartition(".")[2] == key]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8) if scope not in SCOPES else []
    return (same_key or near or [""])[0]


def nearest_scope(scope: str) -> str:
    """The scope most like a wrong one, "" if none is near."""
    return (difflib.get_close_matches(scope, sorted(SCOPES), n=1, cutoff=0.6) or [""])[0]
