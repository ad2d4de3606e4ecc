"""Puts together what calls, the flight recorder, DDP and hooks say of the same collectives: a row for each.

What a call says wins, since it stands outside of torch: the operation as the program named it, the entry before
torch did anything, the exit when the call came back. The recorder gives all of them the number that is the same on
all ranks, and tells of those that no wrapped call saw. Pure: no clock, no torch.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rankscope.collectives.groups import Group
from rankscope.collectives.notes import Note
from rankscope.collectives.operations import reduction_text
from rankscope.collectives.recorder import Entry, shapes_text
from rankscope.collectives.rows import ASYNC, ENQUEUED, INTERRUPTED, P2P, Row

if TYPE_CHECKING:
    from rankscope._span_ref import SpanRef
    from rankscope._step import Step

MOST_STEPS = 4_096
"""Steps that are remembered at most, to find the one in which a recorded collective was entered."""

MOST_TEXTS = 4_096
"""Shapes and the like whose text is kept: the same ones come again and again."""

ON_HOST = frozenset({"gloo", "mpi"})
"""Back ends that run on the host: times are when things happened, not when they were enqueued."""

_DEEPEST = 64


class Told(NamedTuple):
    """An entry of the recorder, its group, and when it was entered (monotonic ns)."""

    entry: Entry
    group: Group
    entry_ns: int


class Backward(NamedTuple):
    """When DDP's reductions of one backward began and were over (monotonic ns), and in which group."""

    group: Group
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Ends:
    """What DDP and hooks say of ends.

    Attributes:
        of_backwards: DDP's reductions.
        of_hooks: By group and number of the call: when it was over (monotonic ns), and the first parameter.
    """

    of_backwards: list[Backward] = field(default_factory=list[Backward])
    of_hooks: dict[tuple[Group, int], tuple[int, str]] = field(default_factory=dict[tuple[Group, int], tuple[int, str]])

    def now(self) -> "Ends":
        """What is said so far: more is said meanwhile, in other threads."""
        return Ends(self.of_backwards[:], self.of_hooks.copy())

    def forget(self, before_ns: int) -> None:
        """Forget the ends before then."""
        said = self.now()
        for backward in said.of_backwards:
            if backward.end_ns < before_ns:
                self.of_backwards.remove(backward)
        for call, (end_ns, _) in said.of_hooks.items():
            if end_ns < before_ns:
                self.of_hooks.pop(call, None)


class Steps:
    """The steps that were open, to find the one of a time."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)

    def add(self, step: "Step") -> None:
        """A step began."""
        self._steps.append(step)

    def finder(self) -> "Callable[[int], Step | None]":
        """Finds the step that was open at a monotonic time; of several the one that began last."""
        steps = tuple(self._steps)
        starts = [step.start_mono_ns for step in steps]

        def at(mono_ns: int) -> "Step | None":
            place = bisect_right(starts, mono_ns)
            step = steps[place - 1] if place else None
            is_open = step is not None and (not step.end_mono_ns or mono_ns <= step.end_mono_ns)
            return step if is_open else None

        return at

    def forget(self, before_ns: int) -> None:
        """Forget the steps that were over before then."""
        while self._steps and 0 < self._steps[0].end_mono_ns < before_ns:
            self._steps.popleft()


@dataclass(slots=True)
class Merged:
    """What came of one reading.

    Attributes:
        rows: A row for each collective.
        overwritten: By group: collectives that are in no source, since the recorder's ring was overwritten.
        unnumbered: Calls that have a row without a number, for the same reason.
    """

    rows: list[Row] = field(default_factory=list[Row])
    overwritten: Counter[str] = field(default_factory=Counter[str])
    unnumbered: int = 0


class Merge:
    """One reading.

    Args:
        notes: Calls that have returned.
        opened: Calls that have not: they take their number, and stay.
        ends: What DDP and hooks say.
        steps: The steps that were open.
        wall_at: The wall time of a monotonic time.
    """

    def __init__(
        self,
        notes: Sequence[Note],
        *,
        opened: Iterable[Note],
        ends: Ends,
        steps: Steps,
        wall_at: Callable[[int], int],
    ) -> None:
        self._notes = notes
        self._ends = ends
        self._step_at = steps.finder()
        self._wall_at = wall_at
        self._unread: Sequence[Note] = ()
        self._before: dict[Group, int] = {}
        self._by_number: dict[tuple[Group, int], Note] = {}
        for note in (*notes, *opened):
            if note.operation.is_numbered:
                self._by_number[note.group, note.number] = note
                for number in range(note.number + 1, note.number + note.moved):
                    self._by_number[note.group, number] = note

    def merged(self, told: Sequence[Told], *, is_whole: bool) -> Merged:
        """Rows of all that is known.

        Args:
            told: What the recorder has, oldest first.
            is_whole: Whether nothing was overwritten before it.
        """
        found = Merged()
        collectives = [each for each in told if not each.entry.is_p2p]
        alone = [each for each in collectives if not self._give_number(each)]
        over = self._over(alone)
        found.rows += [self._recorded(each, over.get(each.entry.record)) for each in alone]
        before = {group: group.read for _, group, _ in told}
        unsure = self._learn(collectives)
        if not is_whole:
            self._count_overwritten(collectives, found)
        for note in self._notes:
            if note.operation.is_numbered and not note.cseq:
                if note.number <= before.get(note.group, note.group.read):
                    continue  # begun and ended beside an earlier reading, which had it from the recorder
                if note.group in unsure:
                    found.unnumbered += 1
                else:
                    _number(note)
            found.rows.append(self._noted(note))
        return found

    def _give_number(self, told: Told) -> bool:
        """Whether a call is known that made the entry; it gets its number."""
        entry, group, _ = told
        note = self._by_number.get((group, entry.number))
        if note is None:
            return False
        if note.number == entry.number:
            note.cseq, note.device_ns = entry.cseq, entry.device_ns
        return True

    def _learn(self, told: Sequence[Told]) -> set[Group]:
        """Groups in which not every p2p call was seen."""
        newest = {group: entry for entry, group, _ in told}
        self._unread = self._not_read(newest)
        # Before `learn`: what was thought of the numbers holds for the calls since the last reading.
        for note in self._unread:
            note.cseq = note.number - note.group.apart_at(note.number)
        self._before = {group: group.cseq for group in newest}
        unsure = {group for group, entry in newest.items() if not group.learn(entry.number, entry.cseq)}
        for note in self._unread:
            if note.group in unsure:
                note.cseq = 0
        return unsure

    def _count_overwritten(self, told: Sequence[Told], found: Merged) -> None:
        first = {group: entry for entry, group, _ in reversed(told)}
        noted: Counter[Group] = Counter()
        for note in self._unread:
            if note.number < first[note.group].number:
                noted[note.group] += note.numbers
        for group, entry in first.items():
            missing = entry.cseq - self._before[group] - 1 - noted[group]
            if missing > 0:
                found.overwritten[group.name] += missing

    def _not_read(self, newest: "dict[Group, Entry]") -> Sequence[Note]:
        """Calls since the last reading that the recorder does not have: overwritten, or it never has such ones."""
        return [
            note
            for note in self._notes
            if note.operation.is_numbered
            and not note.cseq
            and note.group in newest
            and note.group.read < note.number < newest[note.group].number
        ]

    def _over(self, alone: Sequence[Told]) -> dict[int, int]:
        """By `record`: when DDP said that the last reduction of a backward was over."""
        over: dict[int, int] = {}
        for backward in self._ends.of_backwards:
            reductions = [
                entry.record
                for entry, group, entry_ns in alone
                if group is backward.group and backward.start_ns <= entry_ns <= backward.end_ns
            ]
            if reductions:
                over[reductions[-1]] = backward.end_ns
        return over

    def _recorded(self, told: Told, over_ns: int | None) -> Row:
        entry, group, entry_ns = told
        op, backend, shape, dtype, size = entry.traits
        hooked_ns, module = self._ends.of_hooks.get((group, entry.number), (None, ""))
        step = self._step_at(entry_ns)
        exit_ns = over_ns if hooked_ns is None else hooked_ns
        return Row(
            self._wall_at(entry_ns),
            None if exit_ns is None else self._wall_at(max(entry_ns, exit_ns)),
            group.name,
            group.ranks,
            entry.cseq,
            op,
            "recorder",
            "" if exit_ns is None else "ddp" if hooked_ns is None else "hook",
            entry.device_ns,
            size,
            dtype,
            shape,
            "",
            None if step is None else step.index,
            0 if step is None else step.microstep,
            0 if step is None else step.phase_at(entry_ns),
            module,
            0 if backend in ON_HOST else ENQUEUED,
        )

    def _noted(self, note: Note) -> Row:
        hooked = self._ends.of_hooks.get((note.group, note.number + max(0, note.moved - 1)))
        if hooked is not None:
            note.module = hooked[1]
            if note.exit_source != "call":
                note.exit, note.exit_source = hooked[0], "hook"
        step, group, name = note.step, note.group, note.operation.name
        exit_ns = note.exit
        return Row(
            self._wall_at(note.entry),
            self._wall_at(max(note.entry, exit_ns)) if exit_ns else None,
            group.name,
            group.ranks,
            note.cseq,
            name,
            "call",
            note.exit_source if exit_ns else "",
            note.device_ns,
            note.size,
            _dtype(note.dtype),
            _shapes(note.shapes),
            reduction_text(name, note.reduction),
            None if step is None else step.index,
            0 if step is None else step.microstep,
            _phase_of(note.inside),
            note.module,
            _flags_of(note),
        )


def _number(note: Note) -> None:
    """Give a number to a call that the recorder has not, or not any more."""
    group = note.group
    note.cseq = note.number - group.apart_at(note.number)
    group.learn(note.number + max(0, note.moved - 1), note.cseq + max(0, note.numbers - 1))


def _flags_of(note: Note) -> int:
    return (
        (0 if note.is_host else ENQUEUED)
        | (ASYNC if note.is_async else 0)
        | (0 if note.operation.is_numbered else P2P)
        | (INTERRUPTED if note.is_failed else 0)
    )


@lru_cache(MOST_TEXTS)
def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    return shapes_text(shapes)


@lru_cache(MOST_TEXTS)
def _dtype(dtype: object) -> str:
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def _phase_of(span: "SpanRef | None") -> int:
    """The phase of the innermost span that has one."""
    for _ in range(_DEEPEST):
        if span is None:
            return 0
        code: int = getattr(span, "phase_code", 0)
        if code:
            return code
        span = span.parent
    return 0
