"""The `Ingest` service: from the bytes of a request to an acknowledgement.

It promises that what it accepts is valid by `validate.py`, is in the broker under its own bytes
(only the receive time is appended), and that whatever it does not accept gets an answer that says
which: a permanent refusal, or how long to wait. It keeps no batch: it may be killed at any time.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import grpc.aio
from google.protobuf.message import DecodeError

from rankscope_ingest import metrics
from rankscope_ingest.buffer import Accepted, Offer, Outcome
from rankscope_ingest.errors import BrokerError, Busy, Refused
from rankscope_ingest.statuses import abort
from rankscope_ingest.validate import Checked, check
from rankscope_proto.identity import shard_of
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed

logger = logging.getLogger(__name__)

MAX_CREDIT_BYTES = 4 * 2**20
NO_ROOM_RETRY_MS = 200
ROOM_WAIT_S = 2.0
ROOM_POLL_S = 0.05
_RECEIVED_TAG = b"\x81\x01"
"""Field 16 of Batch, eight bytes: appending a field to a message is legal protobuf."""

_RESULTS = {
    Outcome.NO_ROOM: "busy",
    Outcome.ACCEPTED: "accepted",
    Outcome.DUPLICATE: "duplicate",
    Outcome.EXPECTED: "expected",
    Outcome.CONFLICT: "conflict",
}

Context = grpc.aio.ServicerContext[bytes, bytes]


class Acceptor(Protocol):
    """The broker as this service needs it."""

    async def accept(self, shard: int, offer: Offer, *, budget: int) -> Accepted:
        """Offers a batch; repeating it has no further effect. Raises Busy or BrokerUnavailable."""
        ...

    async def held(self, shard: int) -> int:
        """Payload bytes a shard holds."""
        ...


class Watcher(Protocol):
    """Sees every batch that was accepted."""

    async def accepted(self, batch: Checked, incarnation: bytes) -> None:
        """Called after a batch of a trainer was accepted. Must not raise."""
        ...


class IngestService:
    """Accepts sealed batches.

    Args:
        acceptor: The broker.
        watcher: Told of every accepted batch.
        budget: Payload bytes a shard may hold before senders wait.
        now_ns: The wall clock.
    """

    def __init__(
        self, acceptor: Acceptor, watcher: Watcher, *, budget: int, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._acceptor = acceptor
        self._watcher = watcher
        self._budget = budget
        self._now_ns = now_ns

    async def push(self, request: bytes, context: Context) -> bytes:
        """Ingest.Push: one batch, one acknowledgement or status."""
        try:
            stand = await self._accept(request)
            if stand.outcome is Outcome.NO_ROOM:
                raise Busy("the broker's budget is full; is the writer running?", retry_after_ms=NO_ROOM_RETRY_MS)
            return self._ack(stand)
        except Exception as error:  # noqa: BLE001 # whatever it is, the sender is told which status it means
            return await abort(context, error)

    async def stream(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Ingest.Stream: batches in order, an acknowledgement each; a refusal ends it.

        No room is `OUTCOME_EXPECTED` with a delay, so that the stream stays. The batch that a
        status concerns is the first one without an acknowledgement.
        """
        with metrics.STREAMS.track_inprogress():
            try:
                async for stand in self._stands(requests):
                    yield self._ack(stand)
            except Exception as error:  # noqa: BLE001 # as in push
                await abort(context, error)

    async def _stands(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Accepted]:
        stand: Accepted | None = None
        async for request in requests:
            if stand is None or not _is_behind(request, stand):
                stand = await self._accept(request)
            yield stand

    async def _accept(self, request: bytes) -> Accepted:
        now_ns = self._now_ns()
        try:
            sealed, batch = _parse(request, now_ns)
            shard = shard_of(batch.run_id, sealed.incarnation)
            stand = await self._offer(shard, _offer(sealed, now_ns, expanded=batch.expanded))
        except Exception as error:
            metrics.BATCHES.labels(_result_of(error)).inc()
            raise
        metrics.BATCHES.labels(_RESULTS[stand.outcome]).inc()
        if stand.outcome is Outcome.ACCEPTED:
            metrics.ROWS_ACCEPTED.inc(sealed.rows)
            metrics.BYTES_ACCEPTED.inc(len(sealed.payload))
            await self._watcher.accepted(batch, sealed.incarnation)
        elif stand.outcome is Outcome.CONFLICT:
            names = {"run_id": batch.run_id, "incarnation": sealed.incarnation.hex(), "seq": sealed.seq}
            logger.error("another payload came under a seq already accepted; kept in quarantine", extra=names)
        return stand

    async def _offer(self, shard: int, offer: Offer) -> Accepted:
        """Offers a batch, and waits a little for room: cheaper than having it sent and checked again.

        Not reading on is what holds the sender back meanwhile. Its watchdog expects an answer within 5 s.
        """
        stand = await self._acceptor.accept(shard, offer, budget=self._budget)
        deadline = time.monotonic() + ROOM_WAIT_S
        while stand.outcome is Outcome.NO_ROOM and time.monotonic() < deadline:
            await asyncio.sleep(ROOM_POLL_S * random.uniform(1, 2))
            if await self._acceptor.held(shard) + len(offer.payload) <= self._budget:
                stand = await self._acceptor.accept(shard, offer, budget=self._budget)
        return stand

    def _ack(self, stand: Accepted) -> bytes:
        no_room = stand.outcome is Outcome.NO_ROOM
        outcome = Outcome.EXPECTED if no_room else stand.outcome
        return Ack(
            outcome=Ack.Outcome.ValueType(outcome.value),
            accepted=stand.accepted,
            durable=stand.durable,
            credit=min(max(self._budget - stand.held, 0), MAX_CREDIT_BYTES),
            retry_after_ms=NO_ROOM_RETRY_MS if no_room else 0,
            expected=stand.accepted if outcome is Outcome.EXPECTED else 0,
        ).SerializeToString()


def _is_behind(request: bytes, stand: Accepted) -> bool:
    """Whether a batch follows one that was not taken: the answer is the same, nothing need be checked."""
    if stand.outcome not in {Outcome.NO_ROOM, Outcome.EXPECTED}:
        return False
    sealed = _envelope(request)
    return sealed.seq > max(stand.accepted, sealed.base)


def _parse(request: bytes, now_ns: int) -> tuple[Sealed, Checked]:
    sealed = _envelope(request)
    return sealed, check(sealed, now_ns=now_ns)


def _envelope(request: bytes) -> Sealed:
    try:
        return Sealed.FromString(request)
    except DecodeError as error:
        raise Refused("sealed", "the request is not a Sealed of rankscope.v1") from error


def _offer(sealed: Sealed, now_ns: int, *, expanded: int) -> Offer:
    return Offer(
        sealed.payload + _RECEIVED_TAG + now_ns.to_bytes(8, "little", signed=True),
        sealed.incarnation,
        sealed.seq,
        sealed.digest,
        sealed.rows,
        sealed.week,
        sealed.base,
        expanded,
    )


def _result_of(error: Exception) -> str:
    results = ((Refused, "refused"), (Busy, "busy"), (BrokerError, "unavailable"))
    return next((result for kind, result in results if isinstance(error, kind)), "failed")
