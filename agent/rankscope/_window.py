"""The batches a sender still holds: on the way, or waiting for their turn. No I/O, no locks."""

from collections import deque

from rankscope._export import SealedBatch


class Window:
    """Batches of one incarnation in order of seq, each held until accepted or refused.

    Attributes:
        size: Bytes of all payloads held.
        in_flight: Bytes of the payloads on the way.
    """

    def __init__(self) -> None:
        self._sent: deque[SealedBatch] = deque()
        self._waiting: deque[SealedBatch] = deque()
        self._unanswered: deque[SealedBatch] = deque()
        self.size = 0
        self.in_flight = 0

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting)

    @property
    def rows(self) -> int:
        """Rows of all batches held."""
        return sum(batch.rows for batch in (*self._sent, *self._waiting))

    @property
    def base(self) -> int:
        """The lowest seq held; only while something is."""
        return (self._sent or self._waiting)[0].seq

    @property
    def awaits_answers(self) -> bool:
        """Whether a batch was sent that has no answer yet."""
        return bool(self._unanswered)

    def add(self, batch: SealedBatch) -> None:
        """Hold another batch, the last in order."""
        self._waiting.append(batch)
        self.size += len(batch.payload)

    def next_size(self) -> int | None:
        """Bytes of the next batch to send; None when all are on the way."""
        return len(self._waiting[0].payload) if self._waiting else None

    def send_next(self) -> SealedBatch:
        """The next batch to send; from now on it is on the way."""
        batch = self._waiting.popleft()
        self._sent.append(batch)
        self._unanswered.append(batch)
        self.in_flight += len(batch.payload)
        return batch

    def answered(self) -> SealedBatch | None:
        """The batch that the next answer is about; answers come in the order of sending."""
        return self._unanswered.popleft() if self._unanswered else None

    def first_unanswered(self) -> SealedBatch | None:
        """The batch that a failure is about; None when every batch sent has its answer."""
        return self._unanswered[0] if self._unanswered else None

    def accept_below(self, seq: int) -> None:
        """Let go of every batch below the receiver's watermark, also of those not sent again yet."""
        while self._sent and self._sent[0].seq < seq:
            batch = self._sent.popleft()
            self.size -= len(batch.payload)
            self.in_flight -= len(batch.payload)
        while not self._sent and self._waiting and self._waiting[0].seq < seq:
            self.size -= len(self._waiting.popleft().payload)

    def rewind(self) -> None:
        """Send everything held again, from the lowest seq on; no answer is awaited any more."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._unanswered.clear()
        self.in_flight = 0

    def remove(self, batch: SealedBatch) -> None:
        """Let go of one batch that will never be accepted; after `rewind`."""
        if batch in self._waiting:
            self._waiting.remove(batch)
            self.size -= len(batch.payload)
