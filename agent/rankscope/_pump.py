"""The thread that turns rows into batches and hands them on.

It never waits for a network: an exporter without room says so, and then rows are thinned, given up and
counted, the least important first (`_shortage`); the ring drops and counts what no longer fits. Faults are
counted and the thread goes on. It also ends the stream, so that whoever finishes a run waits only as long
as they choose, whatever the disk does.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from rankscope._block import Block
from rankscope._bounds import NAME
from rankscope._export import Exporter, SealedBatch
from rankscope._heartbeat import open_span_block
from rankscope._labels import text_of
from rankscope._left_open import LeftOpen
from rankscope._seal import SEAL_ROWS, Sealer
from rankscope._shortage import LAST_TO_GO, Shortage
from rankscope_proto.names import GapCause

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._ring import Item

SEAL_S = 1.0
"""A batch is sealed this long after the last one, however small it is."""

SYNC_S = 1.0
HEARTBEAT_S = 5.0
ROOM_S = 0.05
LASTING_ROOM_S = 1.0
"""Pauses before an exporter without room is asked again: at first, and when it has had none for long."""

MOST_HELD = 4
"""Batches that may wait for room while only what must be said is sealed."""

LAST_ROOM_S = 0.3
"""How long the end of a run waits for room before it gives up what waits."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """How to end the stream: rows to add, and the monotonic second to stop draining at."""

    last_rows: Sequence[Block]
    deadline: float


class Pump:
    """Drains a recording's ring into sealed batches and gives them to the exporter.

    Args:
        recording: Where rows come from.
        exporter: Where batches go.
    """

    def __init__(self, recording: "Recording", exporter: Exporter) -> None:
        self._recording = recording
        self._exporter = exporter
        self._sealer = self._new_sealer()
        self._left_open = LeftOpen(recording, sealer=self._new_sealer, keep=exporter.leave_open)
        self._held: deque[SealedBatch] = deque()
        self._shortage = Shortage()
        self._taken_rows = 0
        self._is_complete = False
        self._ending: _Ending | None = None
        # A SimpleQueue, since a signal's handler may wait for it in the middle of anything.
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._flushes: deque[SimpleQueue[bool]] = deque()
        self._left_out_since_ns = recording.clock.wall_ns()
        now = time.monotonic()
        self._seal_at, self._sync_at, self._beat_at = now + SEAL_S, now + SYNC_S, now + HEARTBEAT_S
        self._thread = threading.Thread(target=self._run, name="rankscope-seal", daemon=True)

    def _new_sealer(self) -> Sealer:
        return Sealer(self._recording.identity, clock=self._recording.clock, masks=self._recording.masks)

    def start(self) -> None:
        """Hand on what waits already, so that a process killed at once leaves a trace, and start the thread."""
        self._shielded(self._send_now)
        self._thread.start()

    def finish(self, last_rows: Sequence[Block], *, timeout_s: float) -> bool:
        """Seal everything, add the end of the stream and hand it on; the thread does it and ends.

        Args:
            last_rows: Rows to add at the very end.
            timeout_s: How long to wait for it.

        Returns:
            Whether it was done in time; if not, the thread may still be at it.
        """
        self._ending = _Ending(last_rows, time.monotonic() + timeout_s / 2)
        self._recording.ring.wake()
        try:
            self._ended.get(timeout=max(0.0, timeout_s))
        except Empty:
            return False
        return True

    def flush(self, *, timeout_s: float) -> bool:
        """Hand on what was recorded before this call.

        Args:
            timeout_s: How long to wait for it.

        Returns:
            Whether it was done in time; if not, the thread goes on with it.
        """
        answer: SimpleQueue[bool] = SimpleQueue()
        self._flushes.append(answer)
        self._recording.ring.wake()
        try:
            return answer.get(timeout=max(0.0, timeout_s))
        except Empty:
            return False

    def taken_rows(self) -> int:
        """Rows the exporter took."""
        return self._taken_rows

    def dropped_rows(self) -> int:
        """Rows emitted that were lost before they were handed on."""
        return self._sealer.lost_rows()

    def waiting_rows(self) -> int:
        """Rows emitted that are neither."""
        return sum(batch.rows for batch in self._held) + self._sealer.rows + self._recording.ring.rows()

    def _run(self) -> None:
        beacon = self._recording.beacon
        if beacon is not None:
            self._shielded(beacon.begin)
        while self._ending is None:
            self._recording.ring.wait(self._pause_s())
            self._shielded(self._turn)
        ending = self._ending
        self._shielded(lambda: self._wind_up(ending))
        if beacon is not None:
            self._shielded(beacon.end)
        while self._flushes:
            self._flushes.popleft().put(not self._held)
        self._ended.put(None)

    def _shielded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  # training and the thread outlive any fault, and it is said
            self._recording.note_fault(f"{type(error).__qualname__} while sealing: {text_of(error, NAME)}")

    def _send_now(self) -> None:
        self._drain()
        self._seal()
        self._deliver()

    def _pause_s(self) -> float:
        if self._held:
            return LASTING_ROOM_S if self._shortage.is_lasting else ROOM_S
        return min(self._seal_at, self._sync_at, self._beat_at) - time.monotonic()

    def _turn(self) -> None:
        self._shielded(lambda: self._left_open.see_to_it(self._sealer.next_seq))
        # A producer faster than this thread must not keep it from the rest.
        while self._goes_on() and self._may_drain() and self._drain() and time.monotonic() < self._sync_at:
            pass
        if self._flushes:
            self._flush()
        now = time.monotonic()
        if now >= self._sync_at:
            self._sync_at = now + SYNC_S
            if self._recording.beacon is not None:
                self._recording.beacon.beat()
            self._exporter.sync()
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            self._beat()
        if self._shortage.is_beyond_patience:
            self._give_up_held()
        if now >= self._seal_at and not self._held:
            self._seal()
            self._deliver()

    def _goes_on(self) -> bool:
        return self._ending is None and not self._flushes

    def _flush(self) -> None:
        """Hand on what waits now, and nothing that comes meanwhile; where there is no room, who asked waits too."""
        asked = [self._flushes.popleft() for _ in range(len(self._flushes))]
        left = self._recording.ring.rows()
        while left > 0 and self._may_drain() and (rows := self._drain()):
            left -= rows
        self._seal()
        if not self._deliver() or left > 0:
            self._flushes.extendleft(reversed(asked))
            return
        self._exporter.sync()
        for answer in asked:
            answer.put(True)

    def _may_drain(self) -> bool:
        return self._deliver() or (self._shortage.is_lasting and len(self._held) < MOST_HELD)

    def _beat(self) -> None:
        if not self._held and not self._shortage.is_lasting:
            self._add(open_span_block(self._recording))
            self._state_left_out()

    def _state_left_out(self) -> None:
        """Say how many spans sampling left out since this was last said."""
        since_ns, self._left_out_since_ns = self._left_out_since_ns, self._recording.clock.wall_ns()
        self._sealer.add_left_out(self._recording.left_out.take(), start_ns=since_ns)

    def _drain(self) -> int:
        """Move a batch's worth of rows into the sealer; how many."""
        ring = self._recording.ring
        items = ring.drain(SEAL_ROWS)
        self._sealer.add_lost(ring.take_dropped(), cause=GapCause.RING_FULL)
        fullness = self._exporter.fullness
        thinned: Counter[str] = Counter()
        for item in items:
            if self._shortage.keeps(item, fullness):
                self._add(item)
            else:
                thinned[item.section] += item.count
        self._sealer.add_lost(thinned, cause=GapCause.SPOOL_FULL)
        return sum(item.count for item in items)

    def _add(self, item: "Item") -> None:
        for part in self._sealer.parts(item):
            if not self._sealer.fits(part):
                self._seal()
            self._sealer.add(part)
            if self._sealer.is_full:
                self._seal()
                # Now, since one item may be 64 batches of kept values, which are made one at a time.
                self._deliver()

    def _seal(self) -> None:
        self._seal_at = time.monotonic() + SEAL_S
        batch = self._sealer.seal()
        if batch is not None:
            self._held.append(batch)

    def _deliver(self) -> bool:
        """Give the exporter what is sealed; whether it took everything."""
        while self._held:
            if not self._take(self._held[0]):
                return False
            self._held.popleft()
        return True

    def _take(self, batch: SealedBatch) -> bool:
        is_last = self._is_complete and len(self._held) == 1
        if self._exporter.send(batch, is_last=is_last):
            self._shortage.note_taken()
        elif self._shortage.may_use_reserve and self._exporter.send(batch, is_last=is_last, urgent=True):
            self._shortage.note_urgent()
        else:
            self._shortage.note_refused()
            return False
        self._taken_rows += batch.rows
        return True

    def _give_up_held(self) -> None:
        """There is no room for long: count what waits as lost, and go on with what must be said."""
        self._recording.note_fault(f"no room in {self._exporter.place}: free some; what is dropped is counted")
        self._shortage.begin()
        if self._held:
            self._sealer.take_back(tuple(self._held), kept=LAST_TO_GO, cause=GapCause.SPOOL_FULL)
            self._held.clear()
        self._seal()

    def _wind_up(self, ending: _Ending) -> None:
        ring = self._recording.ring
        while ring.rows() and time.monotonic() < ending.deadline and self._may_drain():
            self._drain()
        ring.give_up()
        self._drain()
        self._state_left_out()
        self._seal()
        self._settle()
        # A batch of its own: its sums are the last, also where those before it were given up.
        for block in ending.last_rows:
            self._add(block)
        self._add(self._sealer.end_of_stream())
        self._seal()
        self._is_complete = True
        self._settle()
        self._exporter.sync()

    def _settle(self) -> None:
        """Hand on what is sealed, from the reserve where there is no room for a moment."""
        give_up_at = time.monotonic() + LAST_ROOM_S
        while not self._deliver() and time.monotonic() < give_up_at:
            time.sleep(ROOM_S)
        if self._held:
            self._give_up_held()
            self._deliver()
