"""The rules for a section's columns, compiled once from the declaration into plain checks.

A check runs over whole columns (`len`, `min`, `max`, `sum` in C) and looks for the row at fault
only once something is wrong. A column that is absent costs one `len`; ranges that the wire type
already holds cost nothing. A column is copied into a list first (`column[:]`): the parser's own
container takes twice as long to walk (2,000 values: 49 against 33 µs). Most columns of a batch say
one value over and over, and most of the others hold codes: `list.count` and `bytes` see both in a
fraction of what `max` takes (2,000 values: 1 and 18 against 59 µs).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rankscope_ingest.errors import Refused
from rankscope_proto.columns import SECTIONS
from rankscope_proto.declaration import Field, Section, Wire

KIB = 2**10
MAX_WORD_BYTES = 2 * KIB
"""Most UTF-8 bytes of a word, a path among them; `_WORD_LIMITS` has the columns that differ."""
MAX_TEXT_BYTES = 32 * 2**20
"""Most bytes that a batch's words may take once each row carries its own: 20,000 rows that name one
text of 250 kB fit into a payload below 1 MB, and took the writer to 9.2 GB."""
_COUNT_FROM = 128 * KIB
"""A column's text below this is taken as its longest word times its rows; above, it is added up."""

_WORD_LIMITS = {
    **dict.fromkeys(("name", "thread_id", "rollout_id"), 512),
    "attribute_values": 32 * KIB,
    "predicate": 8 * KIB,
}

_BYTE = 255
_TYPE_RANGE = {
    Wire.UINT32: (0, 2**32 - 1),
    Wire.UINT64: (0, 2**64 - 1),
    Wire.INT64: (-(2**63), 2**63 - 1),
    Wire.SINT32: (-(2**31), 2**31 - 1),
    Wire.SFIXED64: (-(2**63), 2**63 - 1),
}

Column = Sequence[int]


class Message(Protocol):
    """A batch or a section of it; its fields are read by name."""

    HasField: Callable[..., bool]


class Dictionary:
    """The batch's strings, and what its columns make of them.

    Args:
        strings: Entry 0 is the empty string, if there is any.

    Attributes:
        size: Number of entries.
        sizes: UTF-8 bytes of each.
    """

    def __init__(self, strings: list[str]) -> None:
        if strings and strings[0]:
            raise Refused("strings", f"entry 0 is {strings[0][:40]!r}; it is always the empty string")
        self.size = len(strings)
        is_ascii = "".join(strings).isascii()
        self.sizes = list(map(len, strings)) if is_ascii else [len(text.encode()) for text in strings]
        self._largest = (0, "")
        self._text = 0

    def count(self, column: str, size: int) -> None:
        """Counts the bytes of a column's words, each row's its own.

        Raises:
            Refused: The batch's words take more than `MAX_TEXT_BYTES`; names the column with the most.
        """
        self._text += size
        self._largest = max(self._largest, (size, column))
        if self._text > MAX_TEXT_BYTES:
            most, name = self._largest
            reason = f"{most} bytes of text once every row carries its own; a batch has at most {MAX_TEXT_BYTES}"
            raise Refused(name, f"{reason} in all columns: name long texts in fewer rows")

    @property
    def text_bytes(self) -> int:
        """Bytes of all words counted, each row's its own; never too few."""
        return self._text


@dataclass(frozen=True, slots=True)
class _Range:
    """A column whose values have bounds that its wire type does not hold."""

    name: str
    low: int | None
    high: int | None
    optional: int | None

    def holds(self, value: int) -> bool:
        """Whether a value is within the bounds."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def holds_all(self, values: Column) -> bool:
        """Whether every value is within the bounds; at least one value."""
        if _is_constant(values):
            return self.holds(values[0])
        if self.low is None and self.high == _BYTE:
            return _are_bytes(values)
        return (self.low is None or min(values) >= self.low) and (self.high is None or max(values) <= self.high)


class SectionRules:
    """What must hold for one section of a batch.

    Args:
        section: Its declaration.
    """

    def __init__(self, section: Section) -> None:
        self.name = section.name
        self._key = section.key
        self._columns = tuple(
            field.name for field in section.fields if field.count is None and field.name != section.key
        )
        counts = {field.name for field in section.fields if field.wire is Wire.COUNT}
        self._lists = tuple((count, _sliced_by(section, count)) for count in sorted(counts))
        self._words = tuple(field.name for field in section.fields if field.wire is Wire.DICT)
        self._ranges = tuple(rule for field in section.fields if (rule := _range_of(field)))

    def is_in(self, batch: Message) -> bool:
        """Whether a batch has the section."""
        return bool(batch.HasField(self.name))

    def rows(self, message: Message) -> int:
        """Rows of the section: the length of its key."""
        return len(getattr(message, self._key))

    def check(self, message: Message, dictionary: Dictionary) -> None:
        """Checks every column.

        Raises:
            Refused: Names the first column at fault.
        """
        self._check_lengths(message)
        for count, columns in self._lists:
            self._check_list(message, count, columns=columns)
        for name in self._words:
            self._check_words(name, getattr(message, name), dictionary=dictionary)
        for rule in self._ranges:
            self._check_range(rule, message)

    def _check_lengths(self, message: Message) -> None:
        rows = self.rows(message)
        for name in self._columns:
            length = len(getattr(message, name))
            if length and length != rows:
                self._refuse(name, f"{length} values for {rows} rows; a column has one a row, or is left out")

    def _check_list(self, message: Message, count: str, *, columns: tuple[str, ...]) -> None:
        counts = getattr(message, count)[:]
        total = counts[0] * len(counts) if counts and _is_constant(counts) else sum(counts)
        for name in columns:
            if (length := len(getattr(message, name))) != total:
                self._refuse(name, f"{length} elements; {count} adds up to {total}")

    def _check_words(self, name: str, column: Column, *, dictionary: Dictionary) -> None:
        if not column:
            return
        values = column[:]
        used = (
            set(values[:1]) if _is_constant(values) else set(values)
        )  # as fast as max(), and what follows looks at each word once
        if max(used) >= dictionary.size:
            row = _first(column, lambda index: index >= dictionary.size)
            self._refuse(name, f"index {column[row]} at {row}; strings has {dictionary.size} entries")
        size_of = dictionary.sizes.__getitem__
        longest, most = max(map(size_of, used)), _WORD_LIMITS.get(name, MAX_WORD_BYTES)
        if longest > most:
            row = _first(column, lambda index: size_of(index) > most)
            self._refuse(name, f"{size_of(column[row])} bytes at {row}; at most {most}")
        size = longest * len(values)
        dictionary.count(f"{self.name}.{name}", size if size < _COUNT_FROM else sum(map(size_of, values)))

    def _check_range(self, rule: _Range, message: Message) -> None:
        column: Column = getattr(message, rule.name)
        if not column:
            return
        values = column[:]
        if rule.holds_all(values):
            return
        wrong = [row for row, value in enumerate(values) if not rule.holds(value)]
        present: Column = getattr(message, "present", ()) if rule.optional is not None else ()
        wrong = [row for row in wrong if not present or present[row] >> (rule.optional or 0) & 1]
        if wrong:
            bounds = " to ".join(str(bound) for bound in (rule.low, rule.high) if bound is not None)
            self._refuse(
                rule.name,
                f"{column[wrong[0]]} at {wrong[0]}; it is {'from ' if rule.low is not None else 'up to '}{bounds}",
            )

    def _refuse(self, column: str, reason: str) -> None:
        raise Refused(f"{self.name}.{column}", reason)


def _sliced_by(section: Section, count: str) -> tuple[str, ...]:
    return tuple(field.name for field in section.fields if field.count == count)


def _range_of(field: Field) -> _Range | None:
    held = _TYPE_RANGE.get(field.wire)
    if held is None:
        return None
    low = field.low if field.low is not None and field.low > held[0] else None
    high = field.high if field.high is not None and field.high < held[1] else None
    return None if low is None and high is None else _Range(field.name, low, high, field.optional)


def _is_constant(values: Column) -> bool:
    """Whether all are the same; looks at three of them before it looks at all."""
    first = values[0]
    return first == values[len(values) // 2] == values[-1] and values.count(first) == len(values)


def _are_bytes(values: Column) -> bool:
    """Whether all are 0 to 255; none is negative."""
    try:
        bytes(values)
    except ValueError:
        return False
    return True


def _first(column: Column, wrong: Callable[[int], bool]) -> int:
    return next(row for row, value in enumerate(column) if wrong(value))


SECTION_RULES = tuple(SectionRules(section) for section in SECTIONS)
"""The rules of every section, in wire order."""
