"""Clocks held against each other by collectives in which every rank waits for every other.

Nobody leaves such a collective before the last one has come. So each time two clocks passed one together, each bounds
how far the other may be ahead: where a gateway is far away and ranks are near, this is the surer measure, and it places
a clock that nobody measured. All that the collectives of ten seconds say is put together, beside what the exchanges
with the gateways say. Errors are then those against one of the clocks, which is what an order of ranks needs.
Promises: what does not fit together makes errors greater, never smaller, and is said.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.clock_reading import Passage
from rankscope_query_api.ranks.clocks import KNOWN_DRIFT_PPM, UNKNOWN_DRIFT_PPM, Correction, Line

WINDOW_NS = 10 * 10**9
"""Clocks drift apart: what a collective bounds is good for so long."""

_ENDLESS = 1 << 62
_MOST_SWEEPS = 6
_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Refined:
    """What collectives make of a correction.

    Attributes:
        correction: The surer one; the same where they tell nothing more.
        contradicting: Clocks (`Correction.clock_of`) whose times cannot be as the exchanges and the collectives say.
    """

    correction: Correction
    contradicting: Sequence[str] = ()


def refined(correction: Correction, meetings: Sequence[Sequence[Passage]]) -> Refined:
    """Hold clocks against each other.

    Args:
        correction: What the exchanges with gateways say.
        meetings: The passages of each collective in which every rank waits for every other.
    """
    frame = _frame(correction, meetings)
    if frame is None:
        return Refined(correction)
    windows = [_Window(correction, some, frame=frame) for some in _by_time(correction, meetings)]
    lines: dict[str, list[Line]] = defaultdict(list)
    contradicting = set[str]()
    for window in windows:
        window.narrow()
        contradicting |= window.contradicting
        for clock, line in window.lines().items():
            lines[clock].append(line)
    frame_error_ns = max(window.error_ns(frame) for window in windows)
    surer = correction.refined(lines, frame_error_ns=frame_error_ns)
    is_surer = any(window.is_surer for window in windows) or bool(contradicting)
    return Refined(surer if is_surer else correction, tuple(sorted(contradicting)))


def _frame(correction: Correction, meetings: Sequence[Sequence[Passage]]) -> str | None:
    """The clock that the others are held against: the surest that is in most of the collectives."""
    met = Counter(correction.clock_of(passage.incarnation) for passages in meetings for passage in passages)
    first = {
        correction.clock_of(passage.incarnation): passage for passages in reversed(meetings) for passage in passages
    }
    placed = {clock: correction.at(passage.incarnation, passage.entry_ns) for clock, passage in first.items()}
    error = {clock: found[1] for clock, found in placed.items() if found is not None}
    return min(error, key=lambda clock: (-met[clock], error[clock], clock), default=None)


def _by_time(correction: Correction, meetings: Sequence[Sequence[Passage]]) -> list[list[Sequence[Passage]]]:
    found: dict[int, list[Sequence[Passage]]] = defaultdict(list)
    for passages in meetings:
        placed = ((passage, correction.at(passage.incarnation, passage.entry_ns)) for passage in passages)
        known = next((passage.entry_ns + at[0] for passage, at in placed if at is not None), None)
        if known is not None:
            found[known // WINDOW_NS].append(passages)
    return [found[window] for window in sorted(found)]


class _Window:
    """The clocks in some collectives that are near each other in time.

    Of each clock a straight line is taken to be true up to a constant; `low` and `high` bound the constant, against
    that of the clock `frame`.
    """

    def __init__(self, correction: Correction, meetings: Sequence[Sequence[Passage]], *, frame: str) -> None:
        self._frame = frame
        own: dict[str, list[int]] = defaultdict(list)
        passed: list[dict[str, tuple[int, int]]] = []
        for passages in meetings:
            passed.append(_by_clock(correction, passages))
            for clock, times in passed[-1].items():
                own[clock] += times
        self._reach = {clock: (min(times), max(times)) for clock, times in own.items()}
        self._base = {clock: _line(correction, clock, reach=reach) for clock, reach in self._reach.items()}
        self._wander = {clock: _wander_ns(self._base[clock], reach) for clock, reach in self._reach.items()}
        self._passed = [{clock: self._placed(clock, times) for clock, times in one.items()} for one in passed]
        self._low, self._high = self._first_bounds()
        self._violated_ns = 0
        self.contradicting: set[str] = set()

    def error_ns(self, clock: str) -> int:
        """Bound of what the exchanges say of a clock; 0 where they say nothing."""
        return max(0, self._base[clock].error_ns) if clock in self._base else 0

    @property
    def is_surer(self) -> bool:
        """Whether the least sure of the clocks is surer than by the exchanges alone, or one has a place by these."""
        lines = self.lines()
        if not lines:
            return False
        if any(line.error_ns < 0 for line in self._base.values()):
            return True
        return max(line.error_ns for line in lines.values()) < max(map(self.error_ns, self._base))

    def narrow(self) -> None:
        """Put together what the collectives say."""
        for _ in range(_MOST_SWEEPS):
            before = dict(self._low), dict(self._high)
            for one in self._passed:
                self._meet(one)
            if before == (self._low, self._high):
                break
        apart = {clock: self._low[clock] - self._high[clock] for clock in self._base}
        self.contradicting = {clock for clock, by_ns in apart.items() if by_ns > 0}
        self._violated_ns = max(0, *apart.values())

    def lines(self) -> Mapping[str, Line]:
        """The clocks as they are now known, by clock; one that is bounded on one side only is not among them."""
        if self.contradicting:
            self._low, self._high = self._first_bounds()
        found: dict[str, Line] = {}
        for clock, base in self._base.items():
            low, high = self._low[clock], self._high[clock]
            if low <= -_ENDLESS or high >= _ENDLESS:
                continue
            wander_ns = self._wander[clock] + (self._wander[self._frame] if clock != self._frame else 0)
            error_ns = (high - low + 1) // 2 + wander_ns + self._violated_ns
            first_ns, last_ns = self._reach[clock]
            found[clock] = Line(
                first_ns,
                last_ns,
                at_ns=base.at_ns,
                offset_ns=base.offset_ns + (low + high) // 2,
                drift=base.drift,
                error_ns=error_ns,
            )
        return found

    def _first_bounds(self) -> tuple[dict[str, int], dict[str, int]]:
        frame_ns = self.error_ns(self._frame)
        high = {
            clock: 0 if clock == self._frame else _ENDLESS if line.error_ns < 0 else line.error_ns + frame_ns
            for clock, line in self._base.items()
        }
        if self._frame not in high:
            return dict.fromkeys(high, -_ENDLESS), dict.fromkeys(high, _ENDLESS)
        return {clock: -bound for clock, bound in high.items()}, high

    def _placed(self, clock: str, times: tuple[int, int]) -> tuple[int, int]:
        """Entry and exit on the common clock, each as far out as the line may be wrong."""
        entry_ns, exit_ns = (own_ns + self._base[clock].offset_at(own_ns) for own_ns in times)
        return entry_ns - self._wander[clock], exit_ns + self._wander[clock]

    def _meet(self, passed: Mapping[str, tuple[int, int]]) -> None:
        """Whoever left, left after each had come."""
        low, high = self._low, self._high
        left = min((high[clock] + times[1] for clock, times in passed.items() if high[clock] < _ENDLESS), default=None)
        came = max((low[clock] + times[0] for clock, times in passed.items() if low[clock] > -_ENDLESS), default=None)
        for clock, (entry_ns, exit_ns) in passed.items():
            if left is not None and left - entry_ns < high[clock]:
                high[clock] = left - entry_ns
            if came is not None and came - exit_ns > low[clock]:
                low[clock] = came - exit_ns


def _by_clock(correction: Correction, passages: Sequence[Passage]) -> dict[str, tuple[int, int]]:
    """When the last process of each clock came, and when the first left, on the clock itself."""
    found: dict[str, tuple[int, int]] = {}
    for passage in passages:
        clock, entry_ns = correction.on_clock(passage.incarnation, passage.entry_ns)
        exit_ns = entry_ns + passage.exit_ns - passage.entry_ns
        last_ns, first_ns = found.get(clock, (entry_ns, exit_ns))
        found[clock] = max(last_ns, entry_ns), min(first_ns, exit_ns)
    return found


def _line(correction: Correction, clock: str, *, reach: tuple[int, int]) -> Line:
    """A clock over a window as the exchanges have it; its error is below 0 where they say nothing."""
    first_ns, last_ns = reach
    middle_ns = (first_ns + last_ns) // 2
    offset_ns, error_ns = correction.at(clock, middle_ns) or (0, -1)
    drift = correction.drift_of(clock, middle_ns)
    return Line(first_ns, last_ns, at_ns=middle_ns, offset_ns=offset_ns, drift=drift, error_ns=error_ns)


def _wander_ns(line: Line, reach: tuple[int, int]) -> int:
    """How far a clock may leave its line within the window."""
    ppm = UNKNOWN_DRIFT_PPM if line.drift is None else KNOWN_DRIFT_PPM
    return (reach[1] - reach[0]) // 2 * ppm // _MILLION
