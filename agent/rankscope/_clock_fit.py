"""What a server's clock is against this boot's monotonic one, from exchanges of times: pure arithmetic.

An exchange puts the difference of the two clocks between two bounds, since neither way of it takes less than no time.
However busy the way is, the bounds hold; a quick exchange has narrow ones. All bounds of the last minutes, each as wide
as the clocks may have drifted since, leave a narrower band than any of them.
Promises: the true difference lies within `error_ns` of what is said, as long as the two clocks run apart by at most
`UNKNOWN_DRIFT_PPM`, or change their drift by at most `WANDER_PPM`. Exchanges that contradict later ones are of before a
clock was set, and are forgotten; a clock that is set by less than an exchange takes is noticed at the next quick one.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

KEPT = 64
"""Exchanges that are looked at: of two minutes, at one every two seconds."""

DRIFT_SPAN_NS = 30 * 10**9
"""Before the quickest exchanges are this far apart, nothing is said of a drift: they would not tell it from noise."""

UNKNOWN_DRIFT_PPM = 100
"""Two quartz clocks run apart by up to 50 parts in a million each."""

WANDER_PPM = 2
"""How far a drift changes within minutes, as a machine grows warm."""

LEAST_ERROR_NS = 1_000
"""Clocks are not read in less."""

_S = 10**9


class Exchange(NamedTuple):
    """One question for the time, in ns: two readings of the monotonic clock here, two of the wall clock there."""

    sent_ns: int
    received_ns: int
    answered_ns: int
    back_ns: int

    @property
    def rtt_ns(self) -> int:
        """How long it was on the way, both ways."""
        return (self.back_ns - self.sent_ns) - (self.answered_ns - self.received_ns)


@dataclass(frozen=True, slots=True)
class Fit:
    """The difference of the two clocks: the server's wall clock minus the monotonic one here.

    Attributes:
        at_ns: When, on the monotonic clock.
        base_ns: The difference then.
        error_ns: Bound of its error, either way.
        drift: Its growth, ns a second; None: not known yet.
        wander_ppm: How far that may be off.
        rtt_ns: Least round trip of the exchanges used.
        samples: Exchanges used.
    """

    at_ns: int
    base_ns: int
    error_ns: int
    drift: int | None
    wander_ppm: int
    rtt_ns: int
    samples: int

    def base_at(self, mono_ns: int) -> int:
        """The difference at another moment."""
        return self.base_ns + (self.drift or 0) * (mono_ns - self.at_ns) // _S

    def error_at(self, mono_ns: int) -> int:
        """The bound of the error at another moment."""
        return self.error_ns + abs(mono_ns - self.at_ns) * self.wander_ppm // 1_000_000


class _Band(NamedTuple):
    """The difference of the clocks lies between `low` and `high`, at `at`."""

    at: int
    low: int
    high: int
    rtt: int

    @property
    def width(self) -> int:
        return self.high - self.low

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2


class ClockFit:
    """Exchanges with one server, and what they come to. Of one thread."""

    def __init__(self) -> None:
        self._bands: deque[_Band] = deque(maxlen=KEPT)

    def add(self, exchange: Exchange) -> bool:
        """Take an exchange; one in which a clock was set says nothing, and is left out (False)."""
        if exchange.rtt_ns < 0 or exchange.answered_ns < exchange.received_ns:
            return False
        at = (exchange.sent_ns + exchange.back_ns) // 2
        low, high = exchange.answered_ns - exchange.back_ns, exchange.received_ns - exchange.sent_ns
        self._bands.append(_Band(at, low, high, exchange.rtt_ns))
        return True

    def fit(self) -> Fit | None:
        """The difference at the last exchange; None: there was none."""
        while self._bands:
            drift, ppm = _drift(self._bands)
            low, high, used = _meet(self._bands, drift or 0, ppm=ppm)
            if used == len(self._bands):
                return self._fit((low, high), drift=drift, ppm=ppm)
            for _ in range(len(self._bands) - used):
                self._bands.popleft()
        return None

    def _fit(self, band: tuple[int, int], *, drift: int | None, ppm: int) -> Fit:
        low, high = band
        return Fit(
            self._bands[-1].at,
            (low + high) // 2,
            max((high - low + 1) // 2, LEAST_ERROR_NS),
            drift=drift,
            wander_ppm=ppm,
            rtt_ns=min(one.rtt for one in self._bands),
            samples=len(self._bands),
        )


def _meet(bands: "deque[_Band]", drift: int, *, ppm: int) -> tuple[int, int, int]:
    """What is common to the bands at the time of the last one, and how many of the latest have something in common."""
    at = bands[-1].at
    low, high = bands[-1].low, bands[-1].high
    for place, band in enumerate(reversed(bands)):
        age = at - band.at
        moved, doubt = drift * age // _S, age * ppm // 1_000_000
        next_low, next_high = max(low, band.low + moved - doubt), min(high, band.high + moved + doubt)
        if next_low > next_high:
            return low, high, place
        low, high = next_low, next_high
    return low, high, len(bands)


def _drift(bands: "deque[_Band]") -> tuple[int | None, int]:
    """Growth of the difference, ns a second, and how far it may be off, in parts in a million.

    Between the quickest exchange of the first third and that of the last third.
    """
    third = max(1, len(bands) // 3)
    ordered = list(bands)
    first = min(ordered[:third], key=lambda one: one.width)
    last = min(ordered[-third:], key=lambda one: one.width)
    apart = last.at - first.at
    if apart < DRIFT_SPAN_NS:
        return None, UNKNOWN_DRIFT_PPM
    doubt_ppm = -(-(first.width + last.width) * 1_000_000 // (2 * apart))
    if doubt_ppm + WANDER_PPM >= UNKNOWN_DRIFT_PPM:
        return None, UNKNOWN_DRIFT_PPM
    return (last.middle - first.middle) * _S // apart, doubt_ppm + WANDER_PPM
