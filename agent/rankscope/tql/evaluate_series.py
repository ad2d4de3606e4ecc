"""What `ema` and `robust_z` remember of every series, with numpy: all series of a batch in one call.

Promises the values of `evaluate_history` to the last bit. A window took 3 to 5 µs a series in
plain Python and takes 0.5 so (64 values); it is what says what explodes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rankscope.tql.evaluate_history import LEAST_WINDOW, TO_SIGMA, Fading, Given, Memory, Slots, distance
from rankscope.tql.evaluate_numbers import Number, in_type
from rankscope.tql.fields import Type
from rankscope.tql.typed import History

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

_FIRST_SERIES = 64


def memory(node: History) -> Memory | None:
    """What remembers for a function; None: lists do as well."""
    match node.function:
        case "ema":
            return Means(node.count, node.type)
        case "robust_z":
            return Windows(node.count)
        case _:
            return None


class _Layout:
    """The slots of the last batch as an index; those of the next one are most often the same list."""

    def __init__(self) -> None:
        self._slots: Slots = ()
        self._places: Places | None = None

    def places(self, slots: Slots) -> "Places | None":
        """The index; None where a series has several rows, which must be taken one after the other."""
        if slots is not self._slots:
            self._slots = slots
            self._places = np.array(slots, dtype=np.intp) if len(set(slots)) == len(slots) else None
        return self._places


class Means:
    """The exponential mean of every series, as its last value and the faded sum of its changes.

    Args:
        count: n of `ema`.
        kind: Type of the mean.
    """

    def __init__(self, count: int, kind: Type) -> None:
        self._fading = Fading(count)
        self._type = kind
        self._layout = _Layout()
        self._last: Floats = np.full(_FIRST_SERIES, np.nan)
        self._change: Floats = np.zeros(_FIRST_SERIES)

    def begin(self, slot: int) -> None:
        """Knows nothing of a series."""
        if slot >= len(self._last):
            self._last = np.concatenate([self._last, self._last])
            self._change = np.concatenate([self._change, self._change])
        self._last[slot], self._change[slot] = np.nan, 0.0

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """The means up to and including each value; missing for good once a change overflowed."""
        places = self._layout.places(slots)
        if places is None:
            rows = zip(slots, values, strict=True)
            return [mean for slot, value in rows for mean in self._means(np.array([slot]), [value])]
        return self._means(places, values)

    def _means(self, places: "Places", values: Sequence[Number | None]) -> Given:
        now, last, change, fading = np.array(values, np.float64), self._last[places], self._change[places], self._fading
        with np.errstate(all="ignore"):
            fresh = np.isfinite(now)
            change = np.where(fresh & ~np.isnan(last), change * fading.share + (now - last), change)
            last = np.where(fresh, now, last)
            means = last - change / fading.weight * fading.lag if fading.lag else last
        self._last[places], self._change[places] = last, change
        found = cast("list[float]", means.tolist())
        if self._type is Type.FLOAT and np.isfinite(means).all():
            return cast("Given", found)
        return [in_type(mean, self._type) if -np.inf < mean < np.inf else None for mean in found]


class Windows:
    """The last values of every series, in a ring each; NaN where there is none yet.

    Args:
        count: Earlier values that are looked at.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._layout = _Layout()
        self._scratch: Floats = np.empty((0, count))
        self._values: Floats = np.full((_FIRST_SERIES, count), np.nan)
        self._taken: Places = np.zeros(_FIRST_SERIES, dtype=np.intp)

    def begin(self, slot: int) -> None:
        """Knows nothing of a series."""
        if slot >= len(self._taken):
            self._values = np.vstack([self._values, np.full_like(self._values, np.nan)])
            self._taken = np.concatenate([self._taken, np.zeros_like(self._taken)])
        self._values[slot], self._taken[slot] = np.nan, 0

    def take(self, slots: Slots, values: Sequence[Number | None]) -> Given:
        """The distances to the median of the earlier values, in robust standard deviations."""
        places = self._layout.places(slots)
        if places is None:
            return [self._next(slot, value) for slot, value in zip(slots, values, strict=True)]
        now = np.array(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            taken = np.minimum(self._taken[places], self._count)
            distances, known = _distances(now, self._copied(places), taken=taken)
        self._remember(places, now)
        found = cast("list[float]", distances.tolist())
        if known.all() and not np.isnan(now).any():
            return cast("Given", found)
        rows = zip(values, found, known.tolist(), strict=True)
        return [one if is_known and value is not None else None for value, one, is_known in rows]

    def _copied(self, places: "Places") -> "Floats":
        """The windows of some series, in memory used again: the pages of a fresh array cost as much as a sort."""
        if len(self._scratch) < len(places):
            self._scratch = np.empty((len(places), self._count))
        # Of indices known to be in range; "raise" would copy once more.
        return np.take(self._values, places, axis=0, out=self._scratch[: len(places)], mode="clip")

    def _next(self, slot: int, value: Number | None) -> float | None:
        """One row, where a batch has several of a series."""
        if value is None:
            return None
        taken = min(int(self._taken[slot]), self._count)
        earlier = sorted(self._values[slot, :taken].tolist())
        result = distance(float(value), earlier) if taken >= LEAST_WINDOW else None
        self._remember(np.array([slot]), np.array([value], dtype=np.float64))
        return result

    def _remember(self, places: "Places", now: "Floats") -> None:
        there = ~np.isnan(now)
        places = places[there]
        self._values[places, self._taken[places] % self._count] = now[there]
        self._taken[places] += 1


def _distances(now: "Floats", windows: "Floats", *, taken: "Places") -> "tuple[Floats, NDArray[np.bool_]]":
    """The distance of each row, and where there is one; the windows are used up.

    In place: fresh arrays of this size took longer than the two sorts, in page faults.
    """
    windows.sort(axis=1)
    medians = _middles(windows, taken)
    np.subtract(windows, medians[:, None], out=windows)
    np.abs(windows, out=windows)
    windows.sort(axis=1)
    spreads = _middles(windows, taken)
    found = (now - medians) / (TO_SIGMA * spreads)
    known = (taken >= LEAST_WINDOW) & np.isfinite(medians) & (spreads > 0) & np.isfinite(spreads)
    return found, known & ~(np.isinf(found) & np.isfinite(now))


def _middles(ordered: "Floats", taken: "Places") -> "Floats":
    """The median of each row's first values; of none, anything."""
    rows: Any = slice(None)
    if (taken == taken[0]).all():
        taken = taken[:1]
    else:
        rows = np.arange(len(taken))
    lower, upper = ordered[rows, (taken - 1) // 2], ordered[rows, np.minimum(taken // 2, ordered.shape[1] - 1)]
    return np.where(taken % 2 == 1, upper, (lower + upper) / 2).reshape(len(ordered))
