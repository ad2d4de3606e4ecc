"""Puts together what calls, the flight recorder, DDP and hooks say of the same collectives: a row for each.

What a call says wins, since it stands outside of torch: the operation as the program named it, the entry before
torch did anything, the exit when the call came back. The recorder gives all of them the number that is the same on
all ranks, and tells of those that no wrapped call saw. Pure: no clock, no torch.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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

MOST_SHAPES = 16
"""Shapes of one input that are written out."""

ON_HOST = frozenset({"gloo", "mpi"})
"""Back ends that run on the host: times are when things happened, not when they were enqueued."""

_DEEPEST = 64
_P2P = frozenset({"send", "recv", "batch_isend_irecv"})


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


class Steps:
    """The steps that were open, to find the one of a time."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)

    def add(self, step: "Step") -> None:
        """A step began."""
        self._steps.append(step)

    def at(self, mono_ns: int) -> "Step | None":
        """The step that was open at a monotonic time; of several the one that began last."""
        for step in reversed(tuple(self._steps)):
            if step.start_mono_ns <= mono_ns:
                return step if not step.end_mono_ns or mono_ns <= step.end_mono_ns else None
        return None

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
        self._steps = steps
        self._wall_at = wall_at
        self._by_number = {
            (note.group, number): note
            for note in (*notes, *opened)
            if note.operation.is_numbered
            for number in range(note.number, note.number + max(1, note.moved))
        }

    def merged(self, told: Sequence[Told]) -> Merged:
        """Rows of all that is known.

        Args:
            told: What the recorder has, oldest first.
        """
        found = Merged()
        collectives = [each for each in told if not each.entry.is_p2p]
        alone = [each for each in collectives if not self._give_number(each)]
        over = self._over(alone)
        found.rows += [self._recorded(each, over.get(each.entry.record)) for each in alone]
        unsure = self._learn(collectives, found)
        for note in self._notes:
            if note.operation.is_numbered and not note.cseq:
                if note.group in unsure:
                    found.unnumbered += 1
                else:
                    _number(note)
            found.rows.append(self._noted(note))
        return found

    def _give_number(self, told: Told) -> bool:
        """Whether a call is known that made the entry; it gets its number."""
        entry = told.entry
        note = self._by_number.get((told.group, entry.number))
        if note is not None and note.number == entry.number:
            note.cseq, note.device_ns = entry.cseq, entry.device_ns
        return note is not None

    def _learn(self, told: Sequence[Told], found: Merged) -> set[Group]:
        """Groups in which not every p2p call was seen; counts what was overwritten."""
        newest = {each.group: each.entry for each in told}
        held = Counter(each.group for each in told)
        unread = self._unread(newest)
        # Before `learn`, since what it was thought to be is only known for calls after the last reading.
        for note in unread:
            note.cseq = note.number - note.group.apart_at(note.number)
        unsure: set[Group] = set()
        for group, entry in newest.items():
            missing = entry.cseq - group.cseq - held[group] - sum(note.numbers for note in unread if note.group is group)
            if missing > 0:
                found.overwritten[group.name] += missing
            if not group.learn(entry.number, entry.cseq):
                unsure.add(group)
        for note in unread:
            if note.group in unsure:
                note.cseq = 0
        return unsure

    def _unread(self, newest: "dict[Group, Entry]") -> Sequence[Note]:
        """Calls that are older than what the recorder has of their group, and that it has no more."""
        return [
            note
            for note in self._notes
            if note.operation.is_numbered
            and not note.cseq
            and note.group in newest
            and note.number < newest[note.group].number
        ]

    def _over(self, alone: Sequence[Told]) -> dict[int, int]:
        """By `record`: when DDP said that the last reduction of a backward was over."""
        over: dict[int, int] = {}
        for backward in self._ends.of_backwards:
            reductions = [
                each.entry.record
                for each in alone
                if each.group is backward.group and backward.start_ns <= each.entry_ns <= backward.end_ns
            ]
            if reductions:
                over[reductions[-1]] = backward.end_ns
        return over

    def _recorded(self, told: Told, over_ns: int | None) -> Row:
        entry, group, entry_ns = told
        hooked_ns, module = self._ends.of_hooks.get((group, entry.number), (None, ""))
        step = self._steps.at(entry_ns)
        exit_ns = over_ns if hooked_ns is None else hooked_ns
        return Row(
            entry=self._wall_at(entry_ns),
            entry_source="recorder",
            exit=None if exit_ns is None else self._wall_at(max(entry_ns, exit_ns)),
            exit_source="" if exit_ns is None else "ddp" if hooked_ns is None else "hook",
            group=group.name,
            group_ranks=group.ranks,
            cseq=entry.cseq,
            op=entry.op,
            device=entry.device_ns,
            bytes=entry.size,
            dtype=entry.dtype,
            shape=_shapes(entry.sizes),
            step=None if step is None else step.index,
            microstep=0 if step is None else step.microstep,
            module=module,
            flags=0 if entry.backend in ON_HOST else ENQUEUED,
        )

    def _noted(self, note: Note) -> Row:
        hooked = self._ends.of_hooks.get((note.group, note.number + max(0, note.moved - 1)))
        if hooked is not None:
            note.module = hooked[1]
            if note.exit_source != "call":
                note.exit, note.exit_source = hooked[0], "hook"
        step, name = note.step, note.operation.name
        return Row(
            entry=self._wall_at(note.entry),
            entry_source="call",
            exit=self._wall_at(max(note.entry, note.exit)) if note.exit else None,
            exit_source=note.exit_source if note.exit else "",
            group=note.group.name,
            group_ranks=note.group.ranks,
            cseq=note.cseq,
            op=name,
            device=note.device_ns,
            bytes=note.size,
            dtype=str(note.dtype or "").removeprefix("torch."),
            shape=_shapes(note.shapes),
            reduction=reduction_text(name, note.reduction),
            step=None if step is None else step.index,
            microstep=0 if step is None else step.microstep,
            phase=_phase_of(note.inside),
            module=note.module,
            flags=_flags_of(note),
        )


def _number(note: Note) -> None:
    """Give a number to a call that the recorder has not, or not any more."""
    group = note.group
    note.cseq = note.number - group.apart_at(note.number)
    if note.number > group.read:
        group.learn(note.number + max(0, note.moved - 1), note.cseq + max(0, note.numbers - 1))


def _flags_of(note: Note) -> int:
    return (
        (0 if note.is_host else ENQUEUED)
        | (ASYNC if note.is_async else 0)
        | (P2P if note.operation.name in _P2P else 0)
        | (INTERRUPTED if note.is_failed else 0)
    )


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    text = shapes_text(shapes[:MOST_SHAPES])
    return f"{text};… {len(shapes)} in all" if len(shapes) > MOST_SHAPES else text


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
