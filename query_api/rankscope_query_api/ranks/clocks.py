"""Times of several processes on one clock, each with the bound of its error.

Raw times stay what they are: a `Correction` says what to add to one, and how far that may be off. Clocks of processes
on one node are one clock: what tells them apart is known exactly, so that the error of the node cancels between them.
Promises: a time whose clock was not measured has no place among the others (None, never 0); two times closer than
their errors are not ordered; a clock held against a server that nothing connects with the others' is not corrected.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

from rankscope_query_api.clock_reading import ClockReading

Order = Literal["before", "after", "unknown"]
"""What is known of two moments."""

_S = 10**9
_MILLION = 10**6

UNKNOWN_DRIFT_PPM = 100
"""Two quartz clocks drift apart by up to 50 parts in a million each, where nobody has measured by how much."""

KNOWN_DRIFT_PPM = 10
"""A drift that was measured changes by less, with temperature and with NTP, over minutes."""

LONGEST_REST_NS = 120 * _S
"""An agent says at least each 60 s what a clock does, and at once where it is off by more than was said. Between rows
that are farther apart nobody looked, and the clock may have been set at any moment."""


LINE_LASTS_NS = 10 * _S
"""What collectives told of a clock is held on to for so long before and behind them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time on the clock that all are put on.

    Attributes:
        at_ns: ns since the epoch; the raw time where the clock was not measured.
        error_ns: Bound of its error, either way; None: the clock was not measured.
        clock: Which clock told it: moments of one clock are ordered whatever their error.
        own_ns: The time on that clock; None: not told, then `at_ns` orders moments of one clock, too.
    """

    at_ns: int
    error_ns: int | None
    clock: str
    own_ns: int | None = None


def order(first: Moment, second: Moment) -> Order:
    """Which of two moments was before the other; unknown where they are no farther apart than their errors."""
    if first.clock == second.clock and first.own_ns is not None and second.own_ns is not None:
        apart, error = second.own_ns - first.own_ns, 0
    elif first.clock == second.clock:
        apart, error = second.at_ns - first.at_ns, 0
    elif first.error_ns is None or second.error_ns is None:
        return "unknown"
    else:
        apart, error = second.at_ns - first.at_ns, first.error_ns + second.error_ns
    if abs(apart) <= error:
        return "unknown"
    return "before" if apart > 0 else "after"


@dataclass(frozen=True, slots=True)
class Line:
    """What something else than exchanges with a server tells of a clock: a straight line, for a while.

    Attributes:
        first_ns: From when, on the clock itself.
        last_ns: Until when.
        at_ns: A moment between them.
        offset_ns: Added to the clock then it gives the common one.
        drift: Its growth, ns a second; None: not known.
        error_ns: Bound of its error over that while.
    """

    first_ns: int
    last_ns: int
    at_ns: int
    offset_ns: int
    drift: int | None
    error_ns: int

    def offset_at(self, own_ns: int) -> int:
        """The offset at another moment."""
        return self.offset_ns + (self.drift or 0) * (own_ns - self.at_ns) // _S

    def beyond_ns(self, own_ns: int) -> int:
        """How far a moment is outside of the while, in ns."""
        return max(0, self.first_ns - own_ns, own_ns - self.last_ns)

    def told(self, own_ns: int) -> tuple[int, int]:
        """Offset and the bound of its error at any moment."""
        ppm = UNKNOWN_DRIFT_PPM if self.drift is None else KNOWN_DRIFT_PPM
        return self.offset_at(own_ns), self.error_ns + self.beyond_ns(own_ns) * ppm // _MILLION


class Correction:
    """Puts the times of a run's processes on one server's clock.

    Args:
        readings: What was measured, in any order.

    Attributes:
        server: Whose clock times are put on: the one most processes were held against; "": none was measured.
    """

    def __init__(self, readings: Iterable[ClockReading]) -> None:
        self._readings = tuple(readings)
        self._lines: Mapping[str, Sequence[Line]] = {}
        self._frame_error_ns = 0
        self._clocks = _Clocks(self._readings)
        self._of: dict[str, list[ClockReading]] = defaultdict(list)
        for one in self._readings:
            self._of[one.incarnation].append(one)
        by_server = Counter(server for server, _ in {(one.server, one.incarnation) for one in self._readings})
        self.server = min(by_server, key=lambda server: (-by_server[server], server), default="")
        self._tracks = _tracks(self._readings, self._clocks, server=self.server)

    @property
    def readings(self) -> Sequence[ClockReading]:
        """What was measured."""
        return self._readings

    def of(self, incarnation: str) -> Sequence[ClockReading]:
        """What was measured of one process."""
        return self._of.get(incarnation, ())

    def refined(self, lines: Mapping[str, Sequence[Line]], *, frame_error_ns: int) -> "Correction":
        """The same with what else is known.

        Args:
            lines: By clock (`clock_of`): what refines it.
            frame_error_ns: What is not refined is that much less sure beside what is.
        """
        surer = copy(self)
        surer._lines, surer._frame_error_ns = lines, frame_error_ns
        return surer

    def is_measured(self, incarnation: str) -> bool:
        """Whether a process's times can be put on the clock."""
        return self.clock_of(incarnation) in self._tracks or self.clock_of(incarnation) in self._lines

    def is_foreign(self, incarnation: str) -> bool:
        """Whether a process's clock was held against a server only that nothing connects with the others'."""
        return not self.is_measured(incarnation) and incarnation in self._of

    def clock_of(self, incarnation: str) -> str:
        """The clock that told a process's times, by one of the processes that share it."""
        return self._clocks.place(incarnation)[0]

    def at(self, incarnation: str, wall_ns: int) -> tuple[int, int] | None:
        """What to add to a time, and the bound of the error, either way, both in ns.

        Args:
            incarnation: Whose time it is, 32 hexadecimal digits.
            wall_ns: What its wall clock said, ns since the epoch.

        Returns:
            None: the clock was not measured, so the time has no place among those of others.
        """
        clock, before = self._clocks.place(incarnation)
        own_ns = wall_ns + before
        measured = [track.at(own_ns) for track in self._tracks.get(clock, ())]
        line = self._line_at(clock, own_ns, is_measured=bool(measured))
        if line is not None:
            offset, error = line.told(own_ns)
        elif measured:
            offset, error = min(measured, key=lambda one: one[1])
            error += self._frame_error_ns
        else:
            return None
        return before + offset, error

    def on_clock(self, incarnation: str, wall_ns: int) -> tuple[str, int]:
        """The clock that told a process's time, and that time on it; `at` takes both as those of a process."""
        clock, before = self._clocks.place(incarnation)
        return clock, wall_ns + before

    def drift_of(self, clock: str, own_ns: int) -> int | None:
        """Growth of a clock's offset about a moment, ns a second; None: not known."""
        return next((track.drift_at(own_ns) for track in self._tracks.get(clock, ())), None)

    def _line_at(self, clock: str, own_ns: int, *, is_measured: bool) -> Line | None:
        """The line that holds at a moment; a clock that was never measured has no other, however long ago it was."""
        nearest = min(self._lines.get(clock, ()), key=lambda line: line.beyond_ns(own_ns), default=None)
        if nearest is None or (is_measured and nearest.beyond_ns(own_ns) > LINE_LASTS_NS):
            return None
        return nearest

    def moment(self, incarnation: str, wall_ns: int) -> Moment:
        """The same as a moment that can be ordered."""
        clock, before = self._clocks.place(incarnation)
        found = self.at(incarnation, wall_ns)
        if found is None:
            return Moment(wall_ns, None, clock, wall_ns + before)
        return Moment(wall_ns + found[0], found[1], clock, wall_ns + before)


class _Clocks:
    """Which processes share a clock, and what is between their wall clocks.

    An agent that measures writes a row for each process of its node at once: all with one time of the server, each
    with the time of its own wall clock. So the difference of two is exact, however wrong the exchange was.
    """

    def __init__(self, readings: Sequence[ClockReading]) -> None:
        self._above: dict[str, tuple[str, int]] = {}
        rounds = dict[tuple[str, str, int], ClockReading]()
        for one in readings:
            first = rounds.setdefault((one.agent, one.server, one.server_ns), one)
            self._join(one.incarnation, first.incarnation, between_ns=first.at_ns - one.at_ns)

    def place(self, incarnation: str) -> tuple[str, int]:
        """The process whose wall clock stands for the clock, and what to add to a time of this one to get its."""
        shift = 0
        while incarnation in self._above:
            incarnation, more = self._above[incarnation]
            shift += more
        return incarnation, shift

    def _join(self, incarnation: str, other: str, *, between_ns: int) -> None:
        (root, shift), (other_root, other_shift) = self.place(incarnation), self.place(other)
        if root != other_root:
            self._above[root] = (other_root, between_ns + other_shift - shift)


class _Track:
    """What one clock did against a server, over time.

    Args:
        readings: In order of time, on the clock's own wall clock; at least one.
    """

    def __init__(self, readings: Sequence[ClockReading]) -> None:
        self.readings = readings
        self._times = [one.at_ns for one in readings]

    def at(self, at_ns: int) -> tuple[int, int]:
        """Offset and the bound of its error."""
        place = bisect_right(self._times, at_ns)
        if 0 < place < len(self.readings):
            return _between(self.readings[place - 1], self.readings[place], at_ns=at_ns)
        return _beyond(self.readings[0 if place == 0 else -1], at_ns)

    def drift_at(self, at_ns: int) -> int | None:
        """Growth of the offset, as the last reading says that was taken by then."""
        return self.readings[max(0, bisect_right(self._times, at_ns) - 1)].drift


def _said(reading: ClockReading, at_ns: int) -> int:
    """The offset that a reading says for another moment."""
    return reading.offset_ns + (reading.drift or 0) * (at_ns - reading.at_ns) // _S


def _beyond(reading: ClockReading, at_ns: int) -> tuple[int, int]:
    ppm = UNKNOWN_DRIFT_PPM if reading.drift is None else KNOWN_DRIFT_PPM
    return _said(reading, at_ns), reading.error_ns + abs(at_ns - reading.at_ns) * ppm // _MILLION


def _between(first: ClockReading, last: ClockReading, *, at_ns: int) -> tuple[int, int]:
    """On the straight line between two readings; where the second is not what the first foretold, so much less sure."""
    whole, past = last.at_ns - first.at_ns, at_ns - first.at_ns
    offset = first.offset_ns + (last.offset_ns - first.offset_ns) * past // whole
    surprise = abs(last.offset_ns - _said(first, last.at_ns))
    error = max(first.error_ns, last.error_ns)
    if whole > LONGEST_REST_NS:
        return offset, error + surprise + min(past, whole - past) * KNOWN_DRIFT_PPM // _MILLION
    return offset, error + surprise * past // whole


_Pieces = dict[tuple[str, str], dict[int, ClockReading]]


def _tracks(readings: Sequence[ClockReading], clocks: _Clocks, *, server: str) -> Mapping[str, Sequence[_Track]]:
    """By clock, what it did against the server, directly or over servers that were held against each other."""
    pieces: _Pieces = defaultdict(dict)
    for one in readings:
        clock, shift = clocks.place(one.incarnation)
        moved = replace(one, at_ns=one.at_ns + shift, offset_ns=one.offset_ns - shift)
        pieces[clock, one.server][moved.at_ns] = moved
    found = {of: _Track([by_time[at] for at in sorted(by_time)]) for of, by_time in pieces.items()}
    of_clock: dict[str, list[_Track]] = defaultdict(list)
    for clock, held_against in sorted(found):
        of_clock[clock].append(found[clock, held_against])
    tracks: dict[str, list[_Track]] = defaultdict(list)
    links: dict[str, _Track | None] = {server: None}
    waiting = set(found)
    while usable := [of for of in sorted(waiting) if of[1] in links]:
        for of in usable:
            clock, held_against = of
            tracks[clock].append(_over(found[of], links[held_against]))
            waiting.discard(of)
            _link(links, clock, known=tracks[clock][0], others=of_clock[clock])
    return tracks


def _over(track: _Track, link: _Track | None) -> _Track:
    """A track against one server, made one against the server that a link leads to."""
    if link is None:
        return track
    return _Track([_added(one, link.at(one.server_ns)) for one in track.readings])


def _added(reading: ClockReading, link: tuple[int, int]) -> ClockReading:
    return replace(reading, offset_ns=reading.offset_ns + link[0], error_ns=reading.error_ns + link[1])


def _link(links: dict[str, _Track | None], clock: str, *, known: _Track, others: Sequence[_Track]) -> None:
    """What a clock that was held against two servers tells of the one against the other."""
    for track in others:
        server = track.readings[0].server
        if server not in links:
            links[server] = _Track([_difference(one, known.at(one.at_ns), clock=clock) for one in track.readings])


def _difference(reading: ClockReading, known: tuple[int, int], *, clock: str) -> ClockReading:
    offset, error = known
    return ClockReading(
        clock,
        reading.agent,
        reading.server,
        at_ns=reading.server_ns,
        offset_ns=offset - reading.offset_ns,
        error_ns=error + reading.error_ns,
    )
