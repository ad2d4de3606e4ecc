"""Live rows as the tables would hold them, read column by column: as lists in which None is a missing value.

A batch may be the columns of a `Block` as they stand, with `present` and lists laid flat, beside
what the header says of all rows. What a column does not say, the table would not say either: a
NULL, or its type's zero.
"""

import functools
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from rankscope.tql.fields import MAPS, NUMBERS, SECTION, Entity, Field, Origin, Type
from rankscope.tql.typed import Key
from rankscope_proto.declaration import Field as Declared

Batch = Mapping[str, object]
"""Columns of the entity's table by name: a list, tuple or array with a value a row (None: missing), or one of all rows.

Fields that are no column of the table go by their own name (`run.name`, `attempt`, `module.class`);
`run.tag` is the list of the run's tags, `mesh` the process's coordinates by axis, `run.config` the
configuration as a nested mapping.
"""

_OF_PROCESS = {"run.tag", "run.config", "mesh"}
_ONE_VALUE = (int, float, str, bytes, type(None))
_INT64 = range(-(2**63), 2**63)


@runtime_checkable
class Array(Protocol):
    """A column of numpy's or of the standard library's."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def tolist(self) -> list[Any]:
        """Its values."""
        ...


def is_column(column: object) -> bool:
    """Whether it holds a value a row, rather than one of all rows."""
    if isinstance(column, _ONE_VALUE):
        # Asked first: whether it is like an array takes as long as a comparison of all rows.
        return False
    return isinstance(column, list | tuple | Array)


class LiveRows:
    """One batch, whose columns are read once for all conditions that are asked of it.

    Attributes:
        batch: Its columns, as they were given.
        count: Number of rows.
        kept: What numpy has made of its columns, by field name or key.
        whole: The batch that these are some rows of; None: this is all of it.
        places: Which rows of that, 0-based.
    """

    whole: "LiveRows | None" = None
    places: Sequence[int] = ()

    def __init__(self, entity: Entity, batch: Batch) -> None:
        """Count the rows.

        Args:
            entity: What they are.
            batch: Columns of the entity's table by name; not to be changed any more.

        Raises:
            ValueError: No column says how many rows there are, or two columns differ.
        """
        self.batch = batch
        self.kept: dict[str | Key, Any] = {}
        self._declared, self._maps = _layout(entity)
        self._known: dict[str | Key, list[Any]] = {}
        self._stored: dict[str, Sequence[Any]] = {}
        self.count = self._counted()

    def at(self, places: Sequence[int]) -> "LiveRows":
        """Some of the rows, those of one node for instance; of their columns only what is asked for is copied.

        Args:
            places: Which, 0-based, in the order they are wanted.
        """
        return _SomeRows(self, places)

    def _counted(self) -> int:
        lengths = {
            len(cast("Sequence[object]", column)): name
            for name, column in self.batch.items()
            if is_column(column) and name not in _OF_PROCESS and not self._is_flat(name)
        }
        if len(lengths) == 1:
            return next(iter(lengths))
        if not lengths:
            raise ValueError("no column of the batch has a value a row: give at least one as a list")
        said = ", ".join(f"{name} has {length}" for length, name in lengths.items())
        raise ValueError(f"the columns of the batch differ in length ({said}): give a value a row")

    def _is_flat(self, name: str) -> bool:
        declared = self._declared.get(name)
        return declared is not None and declared.count is not None and declared.count in self.batch

    def of(self, operand: Field | Key) -> list[Any]:
        """The value of each row, None where it is missing; ids as integers.

        Raises:
            ValueError: The batch lacks a column that says the same of all rows.
        """
        # By its name: the rows are of one entity, and a field's own hash would cost as much as a comparison.
        name = operand if isinstance(operand, Key) else operand.name
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._values(operand)
        return known

    def _values(self, operand: Field | Key) -> list[Any]:
        return self._of_key(operand) if isinstance(operand, Key) else self._of_field(operand)

    def stored(self, name: str) -> Sequence[Any]:
        """A column as the table would hold it, None for NULL.

        Raises:
            ValueError: It says the same of all rows, and the batch lacks it.
        """
        known = self._stored.get(name)
        if known is None:
            known = self._stored[name] = self._read(name)
        return known

    def _read(self, name: str) -> Sequence[Any]:
        if name not in self.batch:
            return [self._unsaid(name)] * self.count
        values, bit = listed(self.batch[name], self.count), self.present_bit(name)
        if bit is None:
            return values
        if self.common_mask is not None:
            return [None] * self.count
        return [value if mask & bit else None for value, mask in zip(values, self.masks, strict=True)]

    @functools.cached_property
    def masks(self) -> Sequence[int]:
        """`present` of every row."""
        return listed(self.batch["present"], self.count)

    @functools.cached_property
    def common_mask(self) -> int | None:
        """The `present` of all rows, where it is the same: then no row needs to be looked at."""
        first = self.masks[0]
        return first if self.masks.count(first) == self.count else None

    def _unsaid(self, name: str) -> object:
        """What the table holds of a column that a batch leaves out."""
        declared = self._declared.get(name)
        if declared is None:
            raise ValueError(f"the condition asks for {name}: add it to the batch, one value for all rows")
        if declared.optional is not None:
            return None
        return "" if "String" in declared.table else 0

    def present_bit(self, name: str) -> int | None:
        """The bit of `present` that says whether a row has the column; None: every row has it."""
        declared = self._declared.get(name)
        if declared is None or declared.optional is None or "present" not in self.batch:
            return None
        bit = 1 << declared.optional
        return None if self.common_mask is not None and self.common_mask & bit else bit

    def _of_field(self, field: Field) -> list[Any]:
        if field.origin is not Origin.ROW:
            return self._looked_up(field)
        if field.table.startswith("Array"):
            return self._lists(field)
        if field.bit:
            return [flags is not None and bool(flags & field.bit) for flags in self.stored(field.column[0])]
        if len(field.column) == 1:
            return _as_typed(field, self.stored(field.column[0]))
        both = zip(*map(self.stored, field.column), strict=True)
        if field.type is Type.ID:
            return [high << 64 | low for high, low in both]
        return [end if end in _INT64 else None for end in map(sum, both)]

    def _looked_up(self, field: Field) -> list[Any]:
        given = self.batch.get(field.name)
        if field.type is Type.LIST:
            return [given or None] * self.count
        return _as_typed(field, listed(given, self.count))

    def _lists(self, field: Field) -> list[Any]:
        """Lists within rows; as text where the field is one."""
        name = field.column[0]
        lists: Iterable[Sequence[int]] = [()] * self.count
        if name in self.batch:
            lists = self._per_row(name) if self._is_flat(name) else listed(self.batch[name], self.count)
        if field.type is Type.LIST:
            return [list(items) or None for items in lists]
        return [f"[{', '.join(map(str, items))}]" for items in lists]

    def _of_key(self, key: Key) -> list[Any]:
        if key.scope not in MAPS:
            return [_setting(self.batch.get(key.scope), key)] * self.count
        texts, numbers = MAPS[key.scope][0], MAPS[key.scope][-1]
        if key.type is Type.FLOAT:
            return [entries.get(key.key) for entries in self._map(numbers)]
        if key.type is Type.STRING:
            return [entries.get(key.key) for entries in self._map(texts)]
        both = zip(self._map(texts), self._map(numbers), strict=True)
        return [text.get(key.key, number.get(key.key)) for text, number in both]

    def _map(self, name: str) -> list[Mapping[str, Any]]:
        if name in self.batch:
            return [entries or {} for entries in listed(self.batch[name], self.count)]
        keys, values = self._maps[name]
        if keys not in self.batch:
            return [{}] * self.count
        pairs = zip(self._per_row(keys), self._per_row(values), strict=True)
        return [dict(zip(own, given, strict=True)) for own, given in pairs]

    def _per_row(self, name: str) -> Iterator[Sequence[Any]]:
        """The lists of a column that is laid flat."""
        start, flat = 0, listed(self.batch[name], self.count)
        for length in listed(self.batch[str(self._declared[name].count)], self.count):
            yield flat[start : start + length]
            start += length


class _SomeRows(LiveRows):
    """Some rows of a batch."""

    def __init__(self, whole: LiveRows, places: Sequence[int]) -> None:
        """Take the rows at these places."""
        self.batch, self.count, self.kept = whole.batch, len(places), {}
        self._known, self._stored = {}, {}
        self.whole = self._whole = whole
        self.places = places

    def _values(self, operand: Field | Key) -> list[Any]:
        values = self._whole.of(operand)
        return [values[place] for place in self.places]

    def _read(self, name: str) -> Sequence[Any]:
        values = self._whole.stored(name)
        return [values[place] for place in self.places]


@functools.cache
def _layout(entity: Entity) -> tuple[Mapping[str, Declared], Mapping[str, tuple[str, str]]]:
    """The columns of an entity's table by name, and the columns of keys and values of its maps."""
    section = SECTION[entity]
    maps = {known.name: (known.keys, known.values) for known in section.maps}
    return {declared.name: declared for declared in section.fields}, maps


def listed(column: object, count: int) -> Sequence[Any]:
    """A column as a list; of one value for all rows, a list of it."""
    if isinstance(column, list | tuple):
        return cast("Sequence[Any]", column)
    return column.tolist() if isinstance(column, Array) else [column] * count


def _as_typed(field: Field, values: Sequence[Any]) -> list[Any]:
    """The values without the one that stands for nothing, floats of the column's width, ids as integers."""
    if field.type is Type.ID:
        values = [None if value is None else _as_id(value) for value in values]
    elif field.table == "Float32":
        values = narrowed(values)
    absent = field.absent
    if absent is None:
        return list(values)
    return [None if value == absent else value for value in values]


def _as_id(value: int | str | bytes) -> int:
    """An id as the tables have it, as bytes or in hexadecimal digits."""
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    return int(value.replace("-", ""), 16) if isinstance(value, str) else value


def narrowed(values: Sequence[float | None]) -> list[float | None]:
    """The values as a column of 32-bit floats gives them back."""
    try:
        return cast("list[float | None]", array("f", cast("Sequence[float]", values)).tolist())
    except TypeError:
        narrow = array("f", [0.0 if value is None else value for value in values])
        return [None if value is None else kept for value, kept in zip(values, narrow, strict=True)]


def _setting(given: object, key: Key) -> Any:
    """A setting of the run by its path, or a coordinate of the process; None where there is none of that type.

    A number is a number; every other setting is a text, a list or a mapping its JSON.
    """
    if not isinstance(given, Mapping):
        return None
    settings = cast("Mapping[str, Any]", given)
    found = (
        settings[key.key]
        if key.key in settings
        else functools.reduce(_inner, key.key.split("."), cast("Any", settings))
    )
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is None or (is_number and key.type is Type.STRING) or (not is_number and key.type in NUMBERS):
        return None
    if is_number:
        return float(found) if key.type is Type.FLOAT else found
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _inner(outer: Any, part: str) -> Any:
    return cast("Mapping[str, Any]", outer).get(part) if isinstance(outer, Mapping) else None
