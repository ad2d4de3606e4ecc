"""The thread that turns rows into batches and hands them on.

It never waits for I/O: an exporter without room says so, and then rows stay in the ring, which
drops and counts what no longer fits. Faults are counted and the thread goes on.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rankscope._block import Block
from rankscope._bounds import NAME
from rankscope._export import Exporter, SealedBatch
from rankscope._heartbeat import open_span_block
from rankscope._labels import text_of
from rankscope._seal import SEAL_ROWS, Sealer
from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import EventKind, GapCause, Severity

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._span import Span

SEAL_S = 1.0
"""A batch is sealed this long after the last one, however small it is."""

HEARTBEAT_S = 5.0
ROOM_S = 0.05
"""Pause before an exporter without room is asked again."""


class Pump:
    """Drains a recording's ring into sealed batches and gives them to the exporter.

    Args:
        recording: Where rows come from.
        exporter: Where batches go.
    """

    def __init__(self, recording: "Recording", exporter: Exporter) -> None:
        self._recording = recording
        self._exporter = exporter
        self._sealer = Sealer(recording.identity, clock=recording.clock)
        self._held: deque[SealedBatch] = deque()
        self._stopping = False
        self._seal_at = time.monotonic() + SEAL_S
        self._beat_at = time.monotonic() + HEARTBEAT_S
        self._thread = threading.Thread(target=self._run, name="rankscope-seal", daemon=True)

    def start(self) -> None:
        """Send what waits already, so that a process killed at once leaves a trace, and start the thread."""
        self._shielded(self._send_now)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread; rows may still wait in the ring."""
        self._stopping = True
        self._recording.ring.wake()
        self._thread.join(timeout_s)

    def finish(self, last_rows: Sequence[Block], *, deadline: float) -> int:
        """Seal everything, end the stream and wait for acceptance; after `stop`, in the caller's thread.

        Args:
            last_rows: Rows to add at the very end.
            deadline: Monotonic second to give up at; rows that are not sealed by then are dropped.

        Returns:
            Rows emitted that nobody accepted.
        """
        while self._recording.ring.rows() and time.monotonic() < deadline:
            self._drain()
        self._recording.ring.give_up()
        self._drain()
        for block in last_rows:
            self._add(block)
        self._add(self._end_of_stream())
        self._seal()
        self._hand_over(deadline)
        self._exporter.close(0.0)
        return self.unsent_rows()

    def _hand_over(self, deadline: float) -> None:
        """Wait until everything is accepted, nothing moves any more, or the deadline is over."""
        moved_at = time.monotonic()
        while not self._deliver() and time.monotonic() < min(deadline, moved_at + self._exporter.patience_s):
            waiting = len(self._held)
            time.sleep(ROOM_S)
            self._deliver()
            if len(self._held) < waiting:
                moved_at = time.monotonic()
        if not self._held:
            self._exporter.flush(max(0.0, deadline - time.monotonic()))

    def unsent_rows(self) -> int:
        """Sealed rows that nobody has accepted yet."""
        return sum(batch.rows for batch in self._held) + self._exporter.unsent_rows()

    def emitted_rows(self) -> int:
        """Rows emitted so far, in all sections."""
        return sum(self._sealer.emitted(section.name) for section in SECTIONS)

    def dropped_rows(self) -> int:
        """Rows emitted that were lost before sealing."""
        return self._sealer.lost_rows()

    def _run(self) -> None:
        while not self._stopping:
            self._recording.ring.wait(self._pause_s())
            self._shielded(self._turn)

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
            return ROOM_S
        return min(self._seal_at, self._beat_at) - time.monotonic()

    def _turn(self) -> None:
        # A producer faster than this thread must not keep it from the rest.
        while not self._stopping and self._deliver() and self._drain() and time.monotonic() < self._beat_at:
            pass
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            self._beat()
        if now >= self._seal_at and not self._held:
            self._seal()
            self._deliver()

    def _beat(self) -> None:
        if not self._held:
            self._add(open_span_block(self._recording))

    def _drain(self) -> bool:
        """Move a batch's worth of rows into the sealer; whether there were any."""
        ring = self._recording.ring
        items = ring.drain(SEAL_ROWS)
        self._sealer.add_lost(ring.take_dropped(), cause=GapCause.RING_FULL)
        for refusal in self._exporter.take_refused():
            self._recording.note_fault(f"batch refused: {refusal.detail}")
            for section, rows in refusal.batch.counts.items():
                self._sealer.state_gap(section, rows, cause=refusal.cause, detail=refusal.detail, seq=refusal.batch.seq)
        for item in items:
            self._add(item)
        return bool(items)

    def _add(self, item: "Span | Block") -> None:
        for part in self._sealer.parts(item):
            if not self._sealer.fits(part):
                self._seal()
            self._sealer.add(part)
            if self._sealer.is_full:
                self._seal()

    def _seal(self) -> None:
        self._seal_at = time.monotonic() + SEAL_S
        batch = self._sealer.seal()
        if batch is not None:
            self._held.append(batch)

    def _deliver(self) -> bool:
        """Give the exporter what is sealed; whether it took everything."""
        while self._held:
            if not self._exporter.send(self._held[0]):
                return False
            self._held.popleft()
        return True

    def _end_of_stream(self) -> Block:
        emitted = {section.name: self._sealer.emitted(section.name) for section in SECTIONS}
        emitted["events"] += 1  # this one
        return Block(
            "events",
            1,
            {
                "time": (self._recording.clock.wall_ns(),),
                "kind": (EventKind.END_OF_STREAM.value,),
                "name": ("end of stream",),
                "severity": (Severity.INFO.code,),
                "payload": (json.dumps({"emitted": emitted}),),
            },
        )
