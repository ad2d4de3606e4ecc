"""Values beside the earlier ones of their series: what one evaluator remembers from batch to batch.

Rows of a process come batch by batch in TQL's total order, which is the order it executes in;
within a batch they may stand in any. Nothing is revised when a row comes late. A series has a
number, its slot; what a function remembers lies in lists by slot, so that a batch is one loop.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rankscope.tql.evaluate_columns import LiveRows
from rankscope.tql.evaluate_numbers import Number, difference, in_type
from rankscope.tql.fields import FIELDS, TIME_COLUMN, Entity, Field, Type
from rankscope.tql.series import SERIES
from rankscope.tql.typed import History

MOST_SERIES = 1 << 16
"""Series that are remembered; beyond it the one that was longest without a row begins anew."""

LEAST_WINDOW = 8
"""Earlier values without which `robust_z` is missing."""

TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

_INFINITE = math.inf
_ORDER = ("step", "microstep", "phase")

Slots = Sequence[int]
"""The series of each row, by its number."""

Given = list[Number | None]
"""A value of each row, None where it is missing."""


class Memory(Protocol):
    """What a function remembers of every series."""

    def begin(self, slot: int) -> None:
        """A series without earlier values has this number, the next one or that of a series to be forgotten."""
        ...

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """What the function gives in each row, the rows in order; then they are among the earlier ones."""
        ...


class _Previous:
    """`prev`: the last value of each series that was there and not NaN."""

    def __init__(self) -> None:
        self.last: Given = []

    def begin(self, slot: int) -> None:
        """Knows nothing of a series."""
        self.last[slot : slot + 1] = [None]

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """The last earlier values."""
        last, given = self.last, list[Number | None]()
        for slot, value in zip(slots, values, strict=True):
            given.append(last[slot])
            if value is not None and value == value:
                last[slot] = value
        return given


class _Difference(_Previous):
    """`delta`: the value less the last earlier one."""

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """What each value is more than the one before."""
        pairs = zip(super().take(slots, values), values, strict=True)
        return [None if value is None or before is None else difference(value, before) for before, value in pairs]


class Fading:
    """How a change fades in `ema(x, count)`: the mean is the last value less the faded sum of all changes.

    So a constant series has exactly its value, and ClickHouse's `exponentialMovingAverage` goes the same way, to the
    last bit.

    Attributes:
        share: What is left of a change after one value.
        weight: What all of it adds up to.
        lag: Values by which the mean is behind.
    """

    def __init__(self, count: int) -> None:
        # By way of the half-life, as ClickHouse is told it: 1 - 2 / (count + 1) is another number in the last bits.
        self.share = 2.0 ** (-1 / (-1 / math.log2(1 - 2 / (count + 1)))) if count > 1 else 0.0
        self.weight = 1 / (1 - self.share)
        self.lag = (count - 1) / 2


class _Means:
    """`ema`: the exponential mean so far; an infinite value would be all of it for ever, and is passed over."""

    def __init__(self, count: int, kind: Type) -> None:
        self.fading = Fading(count)
        self.type = kind
        self.last: list[float | None] = []
        self.change: list[float] = []

    def begin(self, slot: int) -> None:
        """Knows nothing of a series."""
        self.last[slot : slot + 1] = [None]
        self.change[slot : slot + 1] = [0.0]

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """The means up to and including each value; missing for good once a change overflowed."""
        means = self._means(slots, values)
        if self.type is not Type.FLOAT:
            return [None if mean is None else in_type(mean, self.type) for mean in means]
        return means

    def _means(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        last, change, given, infinite = self.last, self.change, list[Number | None](), _INFINITE
        share, weight, lag = self.fading.share, self.fading.weight, self.fading.lag
        for slot, value in zip(slots, values, strict=True):
            newest, changed = last[slot], change[slot]
            if value is not None and -infinite < value < infinite:
                if newest is not None:
                    changed = change[slot] = changed * share + (value - newest)
                newest = last[slot] = float(value)
            if newest is not None and lag:
                newest -= changed / weight * lag
                newest = newest if -infinite < newest < infinite else None
            given.append(newest)
        return given


class _Windows:
    """`robust_z`: the last values of each series, in the order they came and sorted."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.recent: list[deque[float]] = []
        self.ordered: list[list[float]] = []

    def begin(self, slot: int) -> None:
        """Knows nothing of a series."""
        self.recent[slot : slot + 1] = [deque()]
        self.ordered[slot : slot + 1] = [[]]

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """The distances to the median of the earlier values, in robust standard deviations."""
        return [
            None if value is None else self._next(slot, float(value)) for slot, value in zip(slots, values, strict=True)
        ]

    def _next(self, slot: int, value: float) -> float | None:
        ordered, recent = self.ordered[slot], self.recent[slot]
        result = distance(value, ordered) if len(ordered) >= LEAST_WINDOW else None
        if not math.isnan(value):
            if len(recent) == self.count:
                del ordered[bisect_left(ordered, recent.popleft())]
            recent.append(value)
            insort(ordered, value)
        return result


def distance(value: float, ordered: Sequence[float]) -> float | None:
    """The distance of a value to the median of sorted ones, in robust standard deviations; None: there is no spread."""
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    if not -_INFINITE < median < _INFINITE:
        return None
    spread = _deviation(ordered, median)
    if not 0 < spread < _INFINITE:
        return None
    result = (value - median) / (TO_SIGMA * spread)
    return None if abs(result) == _INFINITE > abs(value) else result


def _deviation(ordered: Sequence[float], median: float) -> float:
    """The median distance of sorted values to their median.

    The distances below the median ascend towards the list's start, those above it towards its end: the lesser half
    of them all is so many of the one and so many of the other. (Sorting the distances took four times as long.)
    """
    count, half = len(ordered), len(ordered) // 2
    low, high = 0, half
    while low < high:
        near = (low + high) // 2
        if median - ordered[half - 1 - near] < ordered[2 * half - 1 - near] - median:
            low = near + 1
        else:
            high = near
    lesser = [median - ordered[half - low]] if low else []
    lesser += [ordered[2 * half - low - 1] - median] if low < half else []
    greater = [median - ordered[half - 1 - low]] if low < half else []
    greater += [ordered[2 * half - low] - median] if 2 * half - low < count else []
    return min(greater) if count % 2 else (max(lesser) + min(greater)) / 2


class Past:
    """What one history of a condition remembers of every series."""

    def __init__(self, node: History, entity: Entity, *, memory: Memory | None = None) -> None:
        """Remember nothing yet.

        Args:
            node: The function.
            entity: What the rows are.
            memory: What remembers for it; None: lists.
        """
        self._memory = memory or _memory(node)
        self._slots: dict[object, int] = {}
        self._series = [FIELDS[name][entity] for name in SERIES[entity]]
        self._order = [FIELDS[name][entity].column[0] for name in _ORDER if entity in FIELDS.get(name, {})]
        self._time = TIME_COLUMN[entity]
        self._last_stored: list[Sequence[object]] = []
        self._last_slots: list[int] = []

    def take(self, rows: LiveRows, values: Sequence[Number | None]) -> Given:
        """What the function gives in each row, whose values are then among the earlier ones."""
        slots, order = self._slots_of(rows), self._in_order(rows)
        if order is None:
            return self._memory.take(slots, values)
        found = self._memory.take([slots[at] for at in order], [values[at] for at in order])
        given: Given = [None] * rows.count
        for at, value in zip(order, found, strict=True):
            given[at] = value
        return given

    def _slots_of(self, rows: LiveRows) -> list[int]:
        """The slot of each row's series; batches of one layout, as every step has them, are looked up once."""
        stored = [rows.stored(field.column[0]) for field in self._series]
        if "incarnation" in rows.batch:
            stored.append(rows.stored("incarnation"))
        # Columns that a batch shares with the last one are compared by identity, those of flags whole: before a bit
        # is taken out of them.
        if stored != self._last_stored:
            keys = [*map(_of_series, self._series, stored), *stored[len(self._series) :]]
            self._last_slots = [self._slot(key) for key in zip(*keys, strict=True)]
            self._last_stored = stored
        return self._last_slots

    def _slot(self, key: object) -> int:
        slot = self._slots.pop(key, None)
        if slot is None:
            slot = len(self._slots)
            if slot >= MOST_SERIES:
                slot = self._slots.pop(next(iter(self._slots)))
            self._memory.begin(slot)
        self._slots[key] = slot
        return slot

    def _in_order(self, rows: LiveRows) -> Sequence[int] | None:
        """The rows' places in TQL's total order; None where they stand in it."""
        columns = [rows.stored(name) for name in self._order]
        if columns[0][0] is not None and all(column.count(column[0]) == rows.count for column in columns):
            return None
        keys: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
        places = [_place(key, time) for key, time in zip(keys, rows.stored(self._time), strict=True)]
        return sorted(range(rows.count), key=places.__getitem__)


def _of_series(field: Field, column: Sequence[Any]) -> Sequence[object]:
    """What a column says of the series of each row; of flags, only the field's own bit."""
    return [bool(flags & field.bit) for flags in column] if field.bit else column


def _place(key: tuple[Any, ...], time: int) -> tuple[Any, ...]:
    """Rows without a step stand first, by time."""
    step, *within = key
    return (-1, time, *within) if step is None else (step, 0, *within)


def _memory(node: History) -> Memory:
    match node.function:
        case "prev":
            return _Previous()
        case "delta":
            return _Difference()
        case "ema":
            return _Means(node.count, node.type)
        case "robust_z":
            return _Windows(node.count)
