"""Batches to the gateway over one gRPC stream, in order, each kept until it is accepted.

Promises: `send` never waits; there is one retry layer, with jitter and the server's own delays; a
batch leaves this process's memory only accepted, or refused for good and then reported by
`take_refused`. Beyond the bounds below `send` says "no room" and the ring takes over.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import grpc

from rankscope._connection import Connection, failure_of
from rankscope._export import Exporter, Refusal, SealedBatch
from rankscope._window import Window
from rankscope.errors import Rejected
from rankscope_proto.names import GapCause
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed
from rankscope_proto.v1.ingest_pb2_grpc import IngestStub

WINDOW_BYTES = 16 * 1024 * 1024
WINDOW_BATCHES = 256
"""What is kept for the gateway: sent or not, not yet accepted."""

FLIGHT_BYTES = 4 * 1024 * 1024
"""Bytes on the way before the first acknowledgement has told the gateway's own credit."""

WATCHDOG_S = 5.0
"""A batch on the way this long without any answer means the stream is dead, whatever TCP says."""

STALL_S = 1.5
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class GrpcExporter:
    """Sends batches from a daemon thread of its own.

    Args:
        connection: The way to the gateway; the channel is made in this exporter's thread.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._refused: deque[Refusal] = deque()
        self._changed = threading.Condition()
        self._window = Window()
        self._random = random.Random()  # the global generator is the training's
        self._credit = FLIGHT_BYTES
        self._is_rewinding = False
        self._is_failing = False
        self._not_before = 0.0
        self._answered_at = time.monotonic()
        self._call: grpc.Call | None = None
        self._conversation = 0
        self._is_closed = False
        self._pause_s = FIRST_PAUSE_S
        self._thread = threading.Thread(target=self._run, name="rankscope-send", daemon=True)
        self._thread.start()

    def send(self, batch: SealedBatch) -> bool:
        """Take a batch, or answer False when the window is full; never blocks."""
        with self._changed:
            full = len(self._window) >= WINDOW_BATCHES or self._window.size + len(batch.payload) > WINDOW_BYTES
            if self._is_closed or (full and self._window):
                return False
            self._window.add(batch)
            self._changed.notify_all()
        return True

    @property
    def patience_s(self) -> float:
        """How long a wait without any acceptance is worth while.

        A gateway that merely is slow answers in the end; the watchdog finds one that is frozen. Giving
        up on a slow one after 1.5 s lost the last second of three ranks of four on a machine whose
        load was six to a core.
        """
        return STALL_S if self._is_failing else STALL_S + WATCHDOG_S

    def flush(self, timeout_s: float) -> int:
        """Wait for acceptance of everything taken, as long as the gateway lives."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            waiting, moved_at = len(self._window), time.monotonic()
            while self._window and not self._is_closed:
                left = min(deadline, moved_at + self.patience_s) - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
                if len(self._window) < waiting:
                    waiting, moved_at = len(self._window), time.monotonic()
            return len(self._window)

    def unsent_rows(self) -> int:
        """Rows taken and neither accepted nor refused yet."""
        with self._changed:
            return self._window.rows

    def take_refused(self) -> list[Refusal]:
        """Batches refused for good since the last call."""
        return [self._refused.popleft() for _ in range(len(self._refused))]

    def close(self, timeout_s: float) -> int:
        """Stop sending; the connection stays the caller's. The number of batches never accepted."""
        with self._changed:
            self._is_closed = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()
        self._thread.join(timeout_s)
        return len(self._window)

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                self._converse()
                with self._changed:  # the gateway ended the stream: it restarts, or the stream was idle
                    self._not_before = time.monotonic() + self._next_pause(None)
            except grpc.RpcError as error:
                self._take_failure(error)

    def _wait_for_work(self) -> bool:
        """Wait until there is a batch to send and the pause is over; False once closed."""
        with self._changed:
            while not self._is_closed:
                pause = self._not_before - time.monotonic()
                if self._window and pause <= 0:
                    return True
                self._changed.wait(pause if self._window else None)
        return False

    def _converse(self) -> None:
        """One stream: until it fails, is cancelled, or the exporter is closed."""
        with self._changed:
            self._window.rewind()
            self._is_rewinding = False
            self._answered_at = time.monotonic()
            self._conversation += 1
            number = self._conversation
        # No deadline: the stream lives as long as the run. Keepalive and the watchdog end a dead one.
        call = IngestStub(self._connection.channel()).Stream(self._requests(number))
        with self._changed:
            self._call = call
        try:
            for ack in call:
                self._take_ack(ack)
        finally:
            with self._changed:
                self._call = None
                self._conversation += 1
                self._changed.notify_all()

    def _requests(self, conversation: int) -> Iterator[Sealed]:
        """The batches to send; runs in gRPC's own thread, which outlives its stream by a moment."""
        while True:
            with self._changed:
                if not self._wait_for_turn(conversation):
                    return
                if not self._window.awaits_answers:
                    self._answered_at = time.monotonic()
                batch = self._window.send_next()
                base = self._window.base
            yield Sealed(
                payload=batch.payload,
                incarnation=batch.incarnation,
                seq=batch.seq,
                digest=batch.digest,
                rows=batch.rows,
                week=batch.week,
                base=base,
            )

    def _wait_for_turn(self, conversation: int) -> bool:
        """Wait, holding the lock, until a batch may be sent; False when this stream has ended."""
        while conversation == self._conversation:
            if self._may_send():
                return True
            if self._is_closed or self._has_stopped_answering():
                return False
            self._changed.wait(0.5)
        return False  # a batch taken now would go nowhere

    def _may_send(self) -> bool:
        size = self._window.next_size()
        if self._is_closed or self._is_rewinding or size is None or time.monotonic() < self._not_before:
            return False
        # One batch may always be on the way: its answer tells when there is credit again.
        return not self._window.in_flight or self._window.in_flight + size <= self._credit

    def _has_stopped_answering(self) -> bool:
        if not self._window.awaits_answers or time.monotonic() - self._answered_at < WATCHDOG_S:
            return False
        if self._call is not None:
            self._call.cancel()
        return True

    def _take_ack(self, ack: Ack) -> None:
        with self._changed:
            self._answered_at = time.monotonic()
            self._is_failing = False
            self._pause_s = FIRST_PAUSE_S
            self._credit = ack.credit
            answered = self._window.answered()
            self._window.accept_below(ack.accepted)
            if ack.retry_after_ms:
                self._not_before = time.monotonic() + ack.retry_after_ms / 1e3
            # Whatever was sent after a batch that came too early comes too early too: wait for those
            # answers, then go on from the lowest seq held.
            self._is_rewinding |= ack.outcome == Ack.OUTCOME_EXPECTED
            if self._is_rewinding and not self._window.awaits_answers:
                self._window.rewind()
                self._is_rewinding = False
            self._changed.notify_all()
        if ack.outcome == Ack.OUTCOME_CONFLICT and answered is not None:
            detail = "another payload was accepted under this number"
            self._refused.append(Refusal(answered, GapCause.CONFLICT, detail))

    def _take_failure(self, error: grpc.RpcError) -> None:
        failure = failure_of(error, self._connection.endpoint)
        refused = None
        with self._changed:
            if isinstance(failure.error, Rejected):
                refused = self._window.first_unanswered()
            self._window.rewind()
            if refused is None:
                self._is_failing = True
                self._not_before = time.monotonic() + self._next_pause(failure.retry_after_s)
            else:
                self._window.remove(refused)
            self._changed.notify_all()
        if refused is not None:
            self._refused.append(Refusal(refused, GapCause.QUARANTINED, str(failure.error)))

    def _next_pause(self, asked_s: float | None) -> float:
        pause, self._pause_s = self._pause_s, min(LONGEST_PAUSE_S, 2 * self._pause_s)
        return max(pause * self._random.uniform(0.5, 1.0), asked_s or 0.0)


if TYPE_CHECKING:
    _conforms: Exporter = GrpcExporter(Connection(""))
