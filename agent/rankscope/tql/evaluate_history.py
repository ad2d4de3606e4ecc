"""Values beside the earlier ones of their series: what one evaluator remembers from batch to batch.

Rows of a process come batch by batch in TQL's total order, which is the order it executes in;
within a batch they may stand in any. Nothing is revised when a row comes late.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from rankscope.tql.evaluate_columns import Rows
from rankscope.tql.evaluate_numbers import Number, difference, in_type, is_there
from rankscope.tql.fields import FIELDS, TIME_COLUMN, Entity, Type
from rankscope.tql.typed import SERIES, History

MOST_SERIES = 1 << 16
"""Series that are remembered; beyond it the one that was longest without a row begins anew."""

LEAST_WINDOW = 8
"""Earlier values without which `robust_z` is missing."""

_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

_ORDER = ("step", "microstep", "phase")


class Memory(Protocol):
    """What is known of one series."""

    def take(self, value: Number | None) -> Number | None:
        """What the function gives of the series' next row, which is then one of the earlier ones."""
        ...


class _Previous:
    """`prev`."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Number | None = None

    def take(self, value: Number | None) -> Number | None:
        """The last earlier value."""
        earlier = self.last
        if is_there(value):
            self.last = value
        return earlier


class _Difference(_Previous):
    """`delta`."""

    __slots__ = ()

    def take(self, value: Number | None) -> Number | None:
        """The value less the last earlier one."""
        earlier = super().take(value)
        return None if value is None or earlier is None else difference(value, earlier)


class _Mean:
    """`ema`: the exponential mean so far; an infinite value would be all of it for ever, and is passed over.

    It is the last value less the faded sum of all changes: a constant series has exactly its value, and ClickHouse's
    `exponentialMovingAverage` goes the same way, to the last bit.
    """

    __slots__ = ("change", "fading", "lag", "last", "type", "weight")

    def __init__(self, count: int, kind: Type) -> None:
        self.lag = (count - 1) / 2
        # By way of the half-life, as ClickHouse is told it: 1 - 2 / (count + 1) is another number in the last bits.
        self.fading = 2.0 ** (-1 / (-1 / math.log2(1 - 2 / (count + 1)))) if count > 1 else 0.0
        self.weight = 1 / (1 - self.fading)
        self.type = kind
        self.change = 0.0
        self.last: float | None = None

    def take(self, value: Number | None) -> Number | None:
        """The mean up to and including this value; missing for good once a change overflowed."""
        if value is not None and math.isfinite(value):
            value = float(value)
            self.change = self.change * self.fading + (0.0 if self.last is None else value - self.last)
            self.last = value
        if self.last is None:
            return None
        mean = self.last - self.change / self.weight * self.lag if self.lag else self.last
        return in_type(mean, self.type) if math.isfinite(mean) else None


class _Distance:
    """`robust_z`: the last values, in the order they came and sorted."""

    __slots__ = ("count", "ordered", "recent")

    def __init__(self, count: int) -> None:
        self.count = count
        self.recent: deque[float] = deque()
        self.ordered: list[float] = []

    def take(self, value: Number | None) -> Number | None:
        """The distance to the median of the earlier values, in robust standard deviations."""
        if value is None:
            return None
        result = self._of(float(value))
        if is_there(value):
            self._remember(float(value))
        return result

    def _of(self, value: float) -> float | None:
        if len(self.ordered) < LEAST_WINDOW:
            return None
        median = _middle(self.ordered)
        spread = _deviation(self.ordered, median)
        if not (abs(median) < _INFINITE and 0 < spread < _INFINITE):
            return None
        result = (value - median) / (_TO_SIGMA * spread)
        return None if abs(result) == _INFINITE > abs(value) else result

    def _remember(self, value: float) -> None:
        if len(self.recent) == self.count:
            del self.ordered[bisect_left(self.ordered, self.recent.popleft())]
        self.recent.append(value)
        insort(self.ordered, value)


_INFINITE = float("inf")


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _deviation(ordered: Sequence[float], median: float) -> float:
    """The median distance of sorted values to their median.

    The distances below the median ascend towards the list's start, those above it towards its end: the lesser half
    of them all is so many of the one and so many of the other. (Sorting the distances took 8 µs a row, this 2.)
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

    def __init__(self, node: History, entity: Entity) -> None:
        self._of: dict[object, Memory] = {}
        self._begin = _beginning(node)
        self._series = [FIELDS[name][entity].column[0] for name in SERIES[entity]]
        self._order = [FIELDS[name][entity].column[0] for name in _ORDER if entity in FIELDS.get(name, {})]
        self._time = TIME_COLUMN[entity]
        self._last_keys: list[Sequence[object]] = []
        self._last_memories: list[Memory] = []

    def take(self, rows: Rows, values: Sequence[Number | None]) -> list[Number | None]:
        """What the function gives in each row, whose values are then among the earlier ones."""
        memories = self._memories(rows)
        order = self._in_order(rows)
        if order is None:
            return [memory.take(value) for memory, value in zip(memories, values, strict=True)]
        given: list[Number | None] = [None] * rows.count
        for at in order:
            given[at] = memories[at].take(values[at])
        return given

    def _memories(self, rows: Rows) -> list[Memory]:
        """The memory of each row's series; batches of one layout, as every step has them, are looked up once."""
        keys = [rows.stored(name) for name in self._series]
        if "incarnation" in rows.batch:
            keys.append(rows.stored("incarnation"))
        # Columns that a batch shares with the last one are compared by identity.
        if keys != self._last_keys:
            self._last_memories = [self._memory(key) for key in zip(*keys, strict=True)]
            self._last_keys = keys
        return self._last_memories

    def _memory(self, key: object) -> Memory:
        memory = self._of.pop(key, None)
        if memory is None:
            memory = self._begin()
            if len(self._of) >= MOST_SERIES:
                del self._of[next(iter(self._of))]
        self._of[key] = memory
        return memory

    def _in_order(self, rows: Rows) -> Iterable[int] | None:
        """The rows' places in TQL's total order; None where they stand in it."""
        columns = [rows.stored(name) for name in self._order]
        if columns[0][0] is not None and all(column.count(column[0]) == rows.count for column in columns):
            return None
        keys, times = zip(*columns, strict=True), rows.stored(self._time)
        places = [_place(key, time) for key, time in zip(keys, times, strict=True)]
        return sorted(range(rows.count), key=places.__getitem__)


def _place(key: tuple[Any, ...], time: int) -> tuple[Any, ...]:
    """Rows without a step stand first, by time."""
    return (-1, *key[1:], time) if key[0] is None else (*key, 0)


def _beginning(node: History) -> Callable[[], Memory]:
    match node.function:
        case "prev":
            return _Previous
        case "delta":
            return _Difference
        case "ema":
            return lambda: _Mean(node.count, node.type)
        case "robust_z":
            return lambda: _Distance(node.count)
