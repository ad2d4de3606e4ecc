"""What of one spool goes next, and what is on the way. No I/O, no locks, no clock but its pace's.

Promises: batches go in order of seq; a number that the spool does not have (set aside, damaged, never appended) is
passed over only when everything below it is in the store, so that what the sender then calls its base is true; a
batch that may have been accepted before says so.
"""

from collections import deque
from typing import NamedTuple

from rankscope.agent.pace import Pace
from rankscope_proto.constructors import MAX_SEQ
from rankscope_proto.v1.ingest_pb2 import Ack

FLIGHT_BATCHES = 64
FLIGHT_BYTES = 4 * 1024 * 1024
"""Most on the way; the gateway's credit may be less."""

_TAKEN = {Ack.OUTCOME_ACCEPTED, Ack.OUTCOME_DUPLICATE, Ack.OUTCOME_CONFLICT}


class Stand(NamedTuple):
    """Where the delivery of an incarnation stands: every seq below is in the broker, in the store."""

    accepted: int
    durable: int


class Sent(NamedTuple):
    """A batch on the way."""

    seq: int
    size: int


class Window:
    """The course of one spool's batches.

    Args:
        stand: What an earlier sender of the spool knew.
        again_below: Batches below may have been sent before.
        pace: How far ahead of the store it may be; None: as far as the gateway takes it.

    Attributes:
        accepted: Every seq below is in the broker, as the gateway said last.
        durable: Every seq below is in the store, or declared lost; never falls.
        next_seq: The lowest seq not sent yet.
        base: What is called the lowest seq held: below it everything is durable or declared lost.
    """

    def __init__(self, stand: Stand, *, again_below: int, pace: Pace | None = None) -> None:
        self._pace = pace
        self.accepted, self.durable = stand
        self.next_seq = self.base = self.durable
        self._again_below = again_below
        self._flight: deque[Sent] = deque()
        self._in_flight = 0
        self._credit = FLIGHT_BYTES
        self._resume_at: int | None = None

    @property
    def first_unanswered(self) -> int | None:
        """The batch that a failure is about; None when every batch sent has its answer."""
        return self._flight[0].seq if self._flight else None

    @property
    def is_waiting(self) -> bool:
        """Whether something accepted is not known to be in the store yet."""
        return self.durable < self.accepted

    @property
    def is_settled(self) -> bool:
        """Whether all that was sent is in the store: nothing is on the way, or waits there."""
        return not self.is_waiting and not self._flight

    @property
    def is_paced(self) -> bool:
        """Whether what is durable decides what goes next, so that it should be known soon."""
        return self._pace is not None

    def begin(self, stand: Stand | None) -> None:
        """Begin to talk with a gateway.

        Args:
            stand: What it says; None: it does not tell.
        """
        self.interrupt()
        self._credit = FLIGHT_BYTES
        if stand is not None:
            self.learn(stand)
            self.next_seq = max(self.accepted, self.durable)

    def interrupt(self) -> None:
        """The talk ended: what was on the way may have been taken; what is not durable goes again."""
        if self._flight:
            self._may_be_there(self._flight[-1].seq)
        self._flight.clear()
        self._in_flight = 0
        self._resume_at = None
        self.next_seq = self.durable
        if self._pace is not None:
            self._pace.leave()

    def learn(self, stand: Stand) -> bool:
        """Take an answer to where this incarnation stands, asked while nothing was on the way.

        Returns:
            Whether the broker has lost something: what it has no more goes again.
        """
        self._keep_durable(stand.durable)
        lost = stand.accepted < self.accepted
        self.accepted = max(stand.accepted, self.durable)
        if lost:
            self.next_seq = self.accepted
        return lost

    def may_send(self, seq: int, size: int) -> bool:
        """Whether the spool's next batch may go now.

        Args:
            seq: Its number, `next_seq` or, over a hole, above it.
            size: Bytes of its payload.
        """
        if self._resume_at is not None or len(self._flight) >= FLIGHT_BATCHES:
            return False
        if seq > self.next_seq and (self._flight or self.durable < self.next_seq):
            return False
        # Where nothing is ahead of the store the next batch may go, however large the hole before it.
        is_ahead = bool(self._flight) or self.is_waiting
        if self._pace is not None and is_ahead and not self._pace.allows(seq - self.durable):
            return False
        # One batch may always be on the way: its answer tells when there is credit again.
        return not self._flight or self._in_flight + size <= self._credit

    def send(self, seq: int, size: int) -> bool:
        """Note that a batch is on the way; whether it may have been accepted before."""
        if seq > self.next_seq:
            self.base = seq
        self.base = max(self.base, min(self.durable, seq))
        if self._pace is not None:
            self._pace.note_sent(seq)
        self._flight.append(Sent(seq, size))
        self._in_flight += size
        self.next_seq = seq + 1
        return seq < self._again_below

    def take(self, ack: Ack) -> int:
        """Take the answer to the first batch on the way; its seq.

        Raises:
            IndexError: nothing was on the way.
        """
        seq, size = self._flight.popleft()
        self._in_flight -= size
        self._credit = ack.credit
        self._keep_durable(ack.durable)
        self.accepted = max(ack.accepted, self.durable)
        if ack.outcome in _TAKEN:
            self._take_over(ack, seq)
        elif self._resume_at is None:
            self._resume_at = max(ack.expected, self.durable)
        # Whatever was sent after a batch that came too early comes too early too: those answers come first.
        if self._resume_at is not None and not self._flight:
            self.next_seq, self._resume_at = self._resume_at, None
        return seq

    def ask_again(self) -> None:
        """Send what is accepted and not durable once more: nothing has moved for long."""
        self.next_seq = self.durable

    def pass_over(self, seq: int) -> None:
        """Give up a batch that will never be accepted; what follows goes once all below it is durable."""
        self.next_seq = min(self.next_seq, seq)

    def _take_over(self, ack: Ack, seq: int) -> None:
        if ack.outcome == Ack.OUTCOME_DUPLICATE:
            if seq >= self._again_below:
                self._again_below = MAX_SEQ + 1  # another sender has a copy of this spool
            self.next_seq = max(self.next_seq, ack.accepted)
        self._may_be_there(seq)

    def _may_be_there(self, seq: int) -> None:
        self._again_below = max(self._again_below, seq + 1)

    def _keep_durable(self, durable: int) -> None:
        self.durable = max(self.durable, durable)
        if self._pace is not None:
            self._pace.note_durable(self.durable)
        self.next_seq = max(self.next_seq, self.durable)
