"""Says where each process of this node stands: a hang is told by those who do not hang.

A process that is stopped, that waits in a collective, that holds the interpreter's lock or that died says nothing
itself, so the agent looks at it from outside, once a second: at what the system says of it, and at its beacon.
Promises: nobody is disturbed by being looked at; a change is in a row at once, and how things stand every five seconds,
every two where one stands still; a state is said only where it is seen twice, so that a busy machine is not taken for a
stuck process.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rankscope._block import Block, Column
from rankscope._host import process_start, stat_words
from rankscope.agent.beacons import BeaconFile, GroupNote, Notes
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour
from rankscope.agent.stacks import Stacks
from rankscope_proto.names import ProcessRole

EVERY_S = 5.0
"""How often it is said how a process stands, where nothing changes."""

STILL_EVERY_S = 2.0
"""How often of one that does not run: only rows that follow one another show that it still stands."""

WAITING_S = 2.0
"""In a collective this long without any progress, a process waits for others."""

STUCK_S = 3.0
"""Its beat is missing this long: three beats."""

STALLED_S = 4.0
"""Without any progress this long, its stack is looked at; or twice as long as it ever took for one, if that is more:
a job whose steps take ten seconds is not looked into at every step."""

LOOKS_FOR_BEACON = 10
"""Rounds in which a process's beacon is looked for: it is there before the first step."""


class State(StrEnum):
    """Where a process stands."""

    RUNNING = "running"
    WAITING = "waiting"
    """In a collective, for seconds."""
    STOPPED = "stopped"
    """By a signal, or under a debugger."""
    STUCK = "stuck"
    """No Python code has run for seconds: something holds the interpreter's lock."""
    DEAD = "dead"
    """It is gone, and said no last word."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of a process in one round.

    Attributes:
        letter: Its state, as the system has it: R, S, D, T, t; empty: it is gone.
        sealer: Likewise of its sealing thread.
        notes: What it noted.
    """

    letter: str
    sealer: str
    notes: Notes


@dataclass(slots=True)
class Watched:
    """One process, from round to round; times are seconds on the agent's monotonic clock.

    Attributes:
        neighbour: Who it is.
        file: Its notes.
        state: Where it stood last.
        stalled_s: How long it has made no progress; 0: it has, or never did so far.
    """

    neighbour: Neighbour
    file: BeaconFile
    now_s: float
    state: State = State.RUNNING
    stalled_s: float = 0.0
    _notes: Notes | None = None
    _beat_s: float = field(init=False)
    _moved_s: float = field(init=False)
    _longest_s: float = 0.0
    _was_asleep: bool = False

    def __post_init__(self) -> None:
        self._beat_s = self._moved_s = self.now_s

    @property
    def is_stalled(self) -> bool:
        """Whether it has made no progress for longer than it is known to take."""
        return self.stalled_s > max(STALLED_S, 2 * self._longest_s)

    def see(self, sight: Sight, now_s: float) -> State:
        """The state in which it is seen now."""
        notes, before = sight.notes, self._notes
        if before is None or notes.beat_ns != before.beat_ns:
            self._beat_s = now_s
        if before is None or notes.moved_ns != before.moved_ns:
            if before is not None and before.moved_ns:
                self._longest_s = max(self._longest_s, now_s - self._moved_s)
            self._moved_s = now_s
        self._notes = notes
        self.stalled_s = now_s - self._moved_s if notes.moved_ns else 0.0
        self.state = self._state(sight, now_s - self._beat_s)
        self._was_asleep = sight.sealer == "S"
        return self.state

    def _state(self, sight: Sight, silent_s: float) -> State:
        if sight.notes.is_ended:
            return State.ENDED
        if not sight.letter:
            return State.DEAD
        if sight.letter in "Tt":
            return State.STOPPED
        # Asleep it waits for the lock of the interpreter; a thread that runs, or that waits for a disk, goes on.
        if silent_s >= STUCK_S and self._was_asleep and sight.sealer == "S":
            return State.STUCK
        if sight.notes.is_in_collective and self.stalled_s >= WAITING_S:
            return State.WAITING
        return State.RUNNING


class _Told:
    """What was said of a process last."""

    def __init__(self, now_s: float) -> None:
        self.at_s = now_s
        self.is_any = False
        self.what: tuple[object, ...] = (State.RUNNING,)


class Standings:
    """Watches the processes that the rounds come by.

    Args:
        diaries: Take the rows.
        stacks: Looks at what a process is doing that makes no progress.
        monotonic: A clock in seconds.
    """

    def __init__(self, diaries: Diaries, stacks: Stacks, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._diaries = diaries
        self._stacks = stacks
        self._monotonic = monotonic
        self._watched: dict[bytes, Watched] = {}
        self._told: dict[bytes, _Told] = {}
        self._looks: dict[bytes, int] = {}

    def visit(self, neighbours: Sequence[Neighbour], /) -> None:
        """Look at each, and say what changed."""
        there = {neighbour.head.incarnation: neighbour for neighbour in neighbours}
        self._looks = {one: looks for one, looks in self._looks.items() if one in there}
        for incarnation, neighbour in there.items():
            if incarnation not in self._watched and _may_stand(neighbour):
                self._meet(neighbour)
        for incarnation, watched in list(self._watched.items()):
            self._look(watched)
            if watched.state in {State.DEAD, State.ENDED} or incarnation not in there:
                self._leave(incarnation)

    def close(self) -> None:
        """Let go of their notes."""
        self._stacks.close()
        for incarnation in list(self._watched):
            self._leave(incarnation)

    def _meet(self, neighbour: Neighbour) -> None:
        incarnation = neighbour.head.incarnation
        looks = self._looks.get(incarnation, 0)
        if looks >= LOOKS_FOR_BEACON:
            return
        self._looks[incarnation] = looks + 1
        file = BeaconFile.of(neighbour.head)
        if file is not None:
            now_s = self._monotonic()
            self._watched[incarnation] = Watched(neighbour, file, now_s)
            self._told[incarnation] = _Told(now_s)

    def _leave(self, incarnation: bytes) -> None:
        self._watched.pop(incarnation).file.close()
        self._told.pop(incarnation)
        self._stacks.forget(incarnation)
        self._looks[incarnation] = LOOKS_FOR_BEACON

    def _look(self, watched: Watched) -> None:
        head = watched.neighbour.head
        notes = watched.file.read()
        if notes is None:
            return
        is_there = process_start(head.pid) == head.process_start
        sight = Sight(
            letter_of(Path(f"/proc/{head.pid}/stat")) if is_there else "",
            letter_of(Path(f"/proc/{head.pid}/task/{notes.sealer}/stat")),
            notes,
        )
        state = watched.see(sight, self._monotonic())
        if watched.is_stalled or state in {State.STUCK, State.STOPPED}:
            self._stacks.ask(head.incarnation, head.pid)
        self._say(watched, notes)

    def _say(self, watched: Watched, notes: Notes) -> None:
        """A row for each group, where something changed or it is time to."""
        incarnation, state = watched.neighbour.head.incarnation, watched.state
        told, now_s = self._told[incarnation], self._monotonic()
        if state is State.ENDED and not told.is_any:
            return  # its own last word says it
        stack = self._stacks.take(incarnation)
        what = (state,) if state is State.RUNNING else (state, _numbers(notes))
        is_changed = what != told.what or bool(stack)
        if not is_changed and now_s - told.at_s < (EVERY_S if state is State.RUNNING else STILL_EVERY_S):
            return
        told.at_s, told.is_any, told.what = now_s, True, what
        block = standing_block(watched.neighbour, state, notes=notes, stack=stack)
        self._diaries.of(watched.neighbour).append(block, at_once=is_changed)


def standing_block(neighbour: Neighbour, state: State, *, notes: Notes, stack: str = "") -> Block:
    """Where a process stands: a row for each group that it used, or one without a group.

    Args:
        neighbour: The process.
        state: Where it stands.
        notes: What it noted.
        stack: What its threads are doing, as JSON; empty: not looked at.
    """
    groups = [group for group in notes.groups if group.enqueued] or [GroupNote("", 0, 0, "", "", 0)]
    count, incarnation = len(groups), neighbour.head.incarnation
    now_ns = time.time_ns()
    columns: dict[str, Column] = {
        "time": (now_ns,) * count,
        "of_hi": (int.from_bytes(incarnation[:8], "big"),) * count,
        "of_lo": (int.from_bytes(incarnation[8:], "big"),) * count,
        "state": (state.value,) * count,
        "group": [group.name for group in groups],
        "enqueued": [group.enqueued for group in groups],
        "completed": [min(group.completed, group.enqueued) for group in groups],
        "op": ["" if group.is_torn else group.op for group in groups],
        "shape": ["" if group.is_torn else group.shape for group in groups],
        "phase": (notes.phase,) * count,
        "stack": [stack, *[""] * (count - 1)],
    }
    if still_ns := _still_ns(state, notes):
        # One boot has one monotonic clock, whatever its processes take for the wall's.
        columns["since"] = (now_ns - max(0, time.monotonic_ns() - still_ns),) * count
    if notes.step is not None:
        columns["step"] = (notes.step,) * count
    return Block("standings", count, columns)


def _still_ns(state: State, notes: Notes) -> int:
    """Since when it stands so: one that is stuck or stopped since its last beat, however long it made no progress."""
    return max(notes.moved_ns, notes.beat_ns) if state in {State.STUCK, State.STOPPED} else notes.moved_ns


def letter_of(stat: Path) -> str:
    """The state in a process's or thread's file of the system; empty: it is gone, or a zombie."""
    try:
        letter = stat_words(stat)[0]
    except (OSError, IndexError):
        return ""
    return "" if letter in "ZX" else letter


def _may_stand(neighbour: Neighbour) -> bool:
    return neighbour.is_near and neighbour.head.process_role != ProcessRole.WORKER.code


def _numbers(notes: Notes) -> Mapping[str, tuple[int, int]]:
    return {group.name: (group.enqueued, group.completed) for group in notes.groups}
