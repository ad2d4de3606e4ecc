"""Collects what is known of this process's collectives, and makes rows of it.

Calls leave notes; now and then the flight recorder is read, and both become rows. A reading costs 2.2 ms whatever is
new (512 entries), so it is made when the recorder would soon overwrite what no call told, when rows have waited for
`STALE_NS`, and where something ends: a group, or the run. That is at most 5 µs a collective, or 0.05 % of the time.
Rows are made of it in the sealing thread, where there is a beacon that beats.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, get_debug_level
from torch.distributed import distributed_c10d

from rankscope._labels import text_of
from rankscope.collectives.calls import Calls
from rankscope.collectives.ddp import DataParallel
from rankscope.collectives.groups import Group, Groups
from rankscope.collectives.merge import Ends, Merge, Merged, Steps, Told
from rankscope.collectives.notes import Note
from rankscope.collectives.recorder import Entry, FlightRecorder
from rankscope.collectives.rows import block_of, gap_of
from rankscope_proto.names import GapCause

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._run import Run
    from rankscope._step import Step

READ_AT = 0.92
"""Share of the recorder's ring that may be new, with what another step adds, before it is read."""

MOST_READINGS = 64
"""Readings of 60 KB that wait for the sealing thread before rows are made of them where they were taken: it comes once
a second, and meanwhile thousands of collectives may have been."""

MOST_NOTES = 2_000
"""Notes that wait before rows are made of them."""

STALE_NS = 5_000_000_000
"""How long rows wait at most while steps go on."""

BEAT_STALE_NS = 2_000_000_000
"""How long they wait where no step ends: what led to a hang is to be seen."""

ASK_DDP_AFTER = 8
"""Collectives since DDP's logger was last asked: it costs 12.6 µs."""

LAST_S = 1.0
"""How long the end of a run waits for another thread that makes rows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was there at one moment.

    Attributes:
        notes: Calls that had returned.
        opened: Calls that had not.
        dump: The recorder.
        mono_ns: When (monotonic ns).
        mono_of: The monotonic time of one of C++.
    """

    notes: Sequence[Note]
    opened: Sequence[Note]
    dump: bytes
    mono_ns: int
    mono_of: Callable[[int], int]


class Collectives:
    """The collectives of one process, from now until its run ends.

    Args:
        recording: Where rows go.
        recorder: torch's flight recorder; default: this process's.
        since_ns: Monotonic time from which on what the recorder has is the run's; default: now.
    """

    def __init__(
        self, recording: "Recording", recorder: FlightRecorder | None = None, *, since_ns: int | None = None
    ) -> None:
        self._recording = recording
        self._recorder = recorder or FlightRecorder()
        if get_debug_level() == DebugLevel.DETAIL:
            # Each group has another of the same name then, which checks every collective by two of its own.
            self._recorder.decline("TORCH_DISTRIBUTED_DEBUG=DETAIL fills torch's flight recorder with its checks")
        world: Any = cast("Any", distributed_c10d)._world
        self._groups = Groups(world, ranks_of=dist.get_process_group_ranks, backend_of=dist.get_backend)
        self._calls = Calls(recording, self._groups, default_group=lambda: distributed_c10d.GroupMember.WORLD)
        self._ends = Ends()
        self._ddp = DataParallel(recording, self._groups, calls=self._calls, ends=self._ends)
        self._steps = Steps()
        self._readings: deque[Reading] = deque()
        # Re-entrant: a signal that ends the run may come while its thread is in here.
        self._taking, self._settling = threading.RLock(), threading.Lock()
        self._taken_ns = self._settled_ns = recording.mono_ns()
        self._since_ns = self._taken_ns if since_ns is None else since_ns
        self._numbers = self._ddp_numbers = self._step_numbers = self._most = 0
        self._destroy: Callable[..., Any] | None = None
        self._stalled: dict[Group, int] = {}
        self._said = False

    def begin(self) -> None:
        """Wrap what is wrapped, and take what the recorder has of the groups that are there."""
        recording = self._recording
        self._begin_groups()
        self._calls.wrap(dist)
        self._ddp.wrap()
        self._wrap_destroy()
        recording.add_step_listener(self)
        step = recording.current_step()
        if step is not None:
            self._steps.add(step)
        if recording.beacon is not None:
            recording.beacon.before_beat(self._beat)
        self._state_lack()

    def step_started(self, step: "Step", /) -> None:
        """Remember the step."""
        self._steps.add(step)

    def step_ended(self, step: "Step", /) -> None:
        """Read where it is time."""
        del step
        if not self._recording.armed:  # a forked child, where a lock may be held for ever
            return
        numbers, is_mixed = self._counted()
        self._most = max(self._most, numbers - self._step_numbers) if self._step_numbers else 0
        self._step_numbers = numbers
        if self._ddp.has_modules and numbers - self._ddp_numbers >= ASK_DDP_AFTER:
            self._ddp_numbers = numbers
            self._ddp.read(_age(self._recording.mono_ns))
        if self._is_due(numbers, is_mixed=is_mixed):
            self._take(numbers)
            if self._recording.beacon is None or len(self._readings) >= MOST_READINGS:
                self._settle()

    def run_finishing(self) -> None:
        """Hand over what is held, and put everything back."""
        try:
            if self._ddp.has_modules:
                self._ddp.read(_age(self._recording.mono_ns))
            self.read(wait_s=LAST_S, is_last=True)
        finally:
            self._end()

    def read(self, *, wait_s: float = 0.0, is_last: bool = False) -> None:
        """Make rows of what is there; where another thread does that now, it goes on.

        Args:
            wait_s: How long to wait for such a thread.
            is_last: Whether nothing comes after it, so that calls that are still open have rows, too.
        """
        self._take(self._counted()[0], is_last=is_last)
        self._settle(wait_s)

    def _is_due(self, numbers: int, *, is_mixed: bool) -> bool:
        new, notes = numbers - self._numbers, len(self._calls.waiting)
        size = self._recorder.size
        is_near = new >= max(size // 4, READ_AT * size - self._most) and (is_mixed or new > notes)
        is_stale = (new or notes) and self._recording.mono_ns() - self._taken_ns >= STALE_NS
        return bool(is_near or notes >= MOST_NOTES or is_stale)

    def _take(self, numbers: int, *, is_last: bool = False) -> None:
        """Take what is there, for `_settle`; what ends meanwhile in another thread is in the next reading."""
        calls = self._calls
        with self._taking:
            self._numbers, self._taken_ns = numbers, self._recording.mono_ns()
            notes = [calls.waiting.popleft() for _ in range(len(calls.waiting))]
            opened = tuple(calls.open.values())
            if is_last:
                notes += _cut_off(opened)
            mono_of = _age(self._recording.mono_ns)
            self._readings.append(Reading(notes, opened, self._recorder.dump(), self._taken_ns, mono_of))

    def _settle(self, wait_s: float = 0.0) -> None:
        """Make rows of what was taken."""
        if not self._settling.acquire(blocking=bool(wait_s), timeout=wait_s or -1):
            return
        try:
            while self._readings:
                self._merge(self._readings.popleft())
        finally:
            self._settling.release()

    def _merge(self, reading: Reading) -> None:
        since_ns, self._settled_ns = self._settled_ns, reading.mono_ns
        entries, is_whole = self._recorder.fresh(reading.dump)
        told = self._told(entries, reading.mono_of)
        wall_at = self._recording.clock.wall_at
        merge = Merge(reading.notes, opened=reading.opened, ends=self._ends.now(), steps=self._steps, wall_at=wall_at)
        merged = merge.merged(told, is_whole=is_whole)
        # Not what came since: ends are told after a reading was taken, of collectives that are in the next one.
        self._ends.forget(since_ns)
        self._steps.forget(since_ns)
        self._hand_over(merged, since_ns=since_ns)

    def _hand_over(self, merged: Merged, *, since_ns: int) -> None:
        recording = self._recording
        if merged.rows:
            recording.append(block_of(merged.rows))
        start_ns, end_ns = recording.clock.wall_at(since_ns), recording.clock.wall_at(self._settled_ns)
        lost, self._calls.lost = self._calls.lost, 0
        losses = {
            **{f"of group {name}: overwritten in torch's flight recorder": n for name, n in merged.overwritten.items()},
            "calls, since too many waited": lost,
        }
        for detail, count in losses.items():
            if count:
                recording.append(gap_of(GapCause.BUDGET, detail, start_ns=start_ns, end_ns=end_ns, count=count))
        if merged.unnumbered:
            detail = (
                f"numbers of {merged.unnumbered} calls, which have rows without: overwritten in the flight recorder"
            )
            recording.append(gap_of(GapCause.BUDGET, detail, start_ns=start_ns, end_ns=end_ns))
        self._state_lack()

    def _told(self, entries: Sequence[Entry], mono_of: Callable[[int], int]) -> Sequence[Told]:
        known = [(entry, self._groups.recorded(entry.pg, entry.group)) for entry in entries]
        return [Told(entry, group, mono_of(entry.created_ns)) for entry, group in known if group is not None]

    def _begin_groups(self) -> None:
        """Know each group's numbers as they were when the run began: what was before is not its own."""
        held = self._recorder.held()
        self._groups.begin({entry.pg: (entry.group, entry.number) for entry in held})
        first: dict[Group, Entry] = {}
        for entry, group, entry_ns in self._told(held, _age(self._recording.mono_ns)):
            if entry_ns < self._since_ns:
                self._recorder.skip(entry.record)
            if not entry.is_p2p and (entry_ns < self._since_ns or group not in first):
                first[group] = entry
                is_own = entry_ns >= self._since_ns
                group.start(entry.number - is_own, entry.cseq - is_own)

    def _counted(self) -> tuple[int, bool]:
        """Numbers given in all groups that are there, and whether any has p2p calls that nothing told of."""
        numbers, is_mixed = 0, False
        for group, process_group in self._groups.refresh():
            with suppress(Exception):  # it is being destroyed, or its back end does not count
                numbers += process_group._get_sequence_number_for_group()
            is_mixed |= group.is_mixed
        return numbers, is_mixed

    def _beat(self) -> None:
        """Once a second, in the sealing thread: say where groups stand, and make rows where no step ends."""
        if not self._recording.armed:
            return
        status = self._recorder.status()
        for pg, (enqueued, completed) in status.items():
            group = self._groups.known(pg)
            if group is not None and not group.is_gone:
                self._tell(group, pg, enqueued=enqueued, completed=completed)
        numbers, is_mixed = self._counted()
        is_stale = self._recording.mono_ns() - self._taken_ns >= BEAT_STALE_NS
        is_new = numbers > self._numbers or bool(self._calls.waiting)
        if (is_stale and is_new) or self._is_due(numbers, is_mixed=is_mixed):
            self._take(numbers)
        self._settle()

    def _tell(self, group: Group, pg: int, *, enqueued: int, completed: int) -> None:
        beacon = self._recording.beacon
        if beacon is None:
            return
        if group.handle is None:
            group.handle = beacon.group(group.name)
        is_stalled = completed < enqueued and self._stalled.get(group) == enqueued
        self._stalled[group] = enqueued if completed < enqueued else -1
        last = self._last_of(pg) if is_stalled else None
        if last is None:
            if not group.is_mixed and not self._calls.has_unnumbered(group):
                beacon.told(group.handle, enqueued - group.apart, completed - group.apart)
        elif last.is_over:
            beacon.told(group.handle, last.cseq, last.cseq)
        else:
            over = min(last.cseq - 1, completed - last.number + last.cseq)
            beacon.told(group.handle, last.cseq, over, op=last.traits.op, shape=last.traits.shape)

    def _last_of(self, pg: int) -> Entry | None:
        of_group = [entry for entry in self._recorder.held() if entry.pg == pg and not entry.is_p2p]
        return of_group[-1] if of_group else None

    def _wrap_destroy(self) -> None:
        real = self._destroy = dist.destroy_process_group

        @wraps(real)
        def destroy_process_group(*args: Any, **kwargs: Any) -> None:
            self._before_end()
            try:
                real(*args, **kwargs)
            finally:
                self._groups.ended()

        dist.destroy_process_group = destroy_process_group

    def _before_end(self) -> None:
        """A group is about to go: what it did is read while its numbers and ranks are known."""
        if not self._recording.armed:
            return
        try:
            self._groups.refresh()
            self.read(wait_s=LAST_S)
        except Exception as error:  # noqa: BLE001  # must not reach training
            self._recording.note_fault(f"{type(error).__qualname__} at the end of a group: {text_of(error)}")

    def _state_lack(self) -> None:
        if self._recorder.lack and not self._said:
            self._said = True
            detail = f"{self._recorder.lack}: only calls of torch.distributed's functions are recorded"
            now_ns = self._recording.clock.wall_ns()
            self._recording.append(gap_of(GapCause.UNSUPPORTED, detail, start_ns=now_ns))

    def _end(self) -> None:
        self._recording.remove_step_listener(self)
        self._calls.unwrap(dist)
        self._ddp.unwrap()
        if self._destroy is not None and getattr(dist.destroy_process_group, "__wrapped__", None) is self._destroy:
            dist.destroy_process_group = self._destroy


def attach(run: "Run", *, since_ns: int | None = None) -> Collectives:
    """Record a run's collectives from now on.

    Args:
        run: The run.
        since_ns: Monotonic time from which on what torch's flight recorder has is the run's; default: now.
    """
    recording: Recording = run._recording  # pyright: ignore[reportPrivateUsage]  # internal to this distribution
    collectives = Collectives(recording, since_ns=since_ns)
    collectives.begin()
    return collectives


def _cut_off(opened: Sequence[Note]) -> Sequence[Note]:
    """The calls that are open when nothing is recorded any more."""
    notes = [note for note in opened if note.operation.is_numbered]
    for note in notes:
        note.moved, note.is_failed = max(1, note.moved), True
    return notes


def _age(clock_ns: Callable[[], int]) -> Callable[[int], int]:
    """Turns times of C++ into monotonic ones, by how long ago they are now.

    By age, and not by the wall time that the recording's clock would give: that was tied to the monotonic one when the
    run began, and a wall clock that was set since would tear the recorder's times from the others. The closest of a
    few pairs of readings, since a thread that is put aside between the two would shift all times by that.
    """
    pairs: list[tuple[int, int]] = []
    for _ in range(3):
        before_ns = clock_ns()
        real_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after_ns = clock_ns()
        pairs.append((after_ns - before_ns, (before_ns + after_ns) // 2 - real_ns))
    offset_ns = min(pairs)[1]
    return lambda created_ns: created_ns + offset_ns
