"""The `Ingest` service: from the bytes of a request to an acknowledgement.

It promises that what it accepts is valid by `validate.py`, is of a project of the caller's key, is
in the broker under its own bytes (only the receive time is appended), and that whatever it does not
accept gets an answer that says which: a permanent refusal, or how long to wait. A batch whose seq
another one holds is kept as a dead letter before it is answered. It keeps no batch: it may be
killed at any time.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import grpc.aio
from google.protobuf.message import DecodeError

from rankscope._host import boot_id, node_name
from rankscope_ingest import metrics
from rankscope_ingest.access import Caller, Gate
from rankscope_ingest.buffer import Accepted, Offer, Outcome, Stand
from rankscope_ingest.dead_letters import DeadLetter, Kept, Stage
from rankscope_ingest.errors import BrokerError, Busy, Denied, Refused
from rankscope_ingest.malformed import reason_of
from rankscope_ingest.senders import ID_BYTES
from rankscope_ingest.statuses import abort
from rankscope_ingest.validate import Checked, check
from rankscope_proto.failpoints import reach
from rankscope_proto.identity import shard_of
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed, StandReply, StandRequest

MAX_CREDIT_BYTES = 4 * 2**20
MAX_SENDERS = 256
MAX_STAND_BYTES = MAX_SENDERS * 512
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

    async def stands(self, shard: int, incarnations: Sequence[bytes]) -> list[Stand]:
        """Where incarnations of a shard stand, in the order asked for."""
        ...


class Letters(Protocol):
    """Batches that cannot go on, as this service needs them."""

    async def keep(self, letter: DeadLetter) -> Kept:
        """Keeps a batch; repeating it has no further effect. Raises Busy or BrokerUnavailable."""
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
        letters: Gets every batch whose seq another one holds.
        gate: Knows whom a call is from.
        budget: Payload bytes a shard may hold before senders wait.
        now_ns: The wall clock.
    """

    def __init__(
        self,
        acceptor: Acceptor,
        watcher: Watcher,
        *,
        letters: Letters,
        gate: Gate,
        budget: int,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._acceptor = acceptor
        self._watcher = watcher
        self._letters = letters
        self._gate = gate
        self._budget = budget
        self._now_ns = now_ns
        self._clock = f"{node_name()} {boot_id()}".strip()

    async def push(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        """Ingest.Push: one batch, one acknowledgement or status."""
        try:
            with self._gate.entered(context) as caller:
                stand = await self._accept(await caller.only(requests), caller)
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
        try:
            with metrics.STREAMS.track_inprogress(), self._gate.entered(context) as caller:
                async for accepted in self._answers(requests, caller):
                    yield self._ack(accepted)
        except Exception as error:  # noqa: BLE001 # as in push
            await abort(context, error)

    async def stand(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        """Ingest.Stand: where senders stand, in the order asked for, and what time it is here."""
        received_ns = self._now_ns()
        try:
            with self._gate.entered(context) as caller:
                senders = _senders(await caller.only(requests))
                for sender in senders:
                    caller.must_have(sender.project)
                stands = await self._look_up(senders)
        except Exception as error:  # noqa: BLE001 # as in push
            return await abort(context, error)
        shown = (StandReply.Stand(accepted=stand.accepted, durable=stand.durable) for stand in stands)
        reply = StandReply(stands=shown, received_ns=received_ns, gateway=self._clock)
        reply.answered_ns = self._now_ns()  # last of all: what comes behind it counts as the way back
        return reply.SerializeToString()

    async def _look_up(self, senders: Sequence[StandRequest.Sender]) -> list[Stand]:
        shards: dict[int, list[int]] = {}
        for index, sender in enumerate(senders):
            shards.setdefault(shard_of(sender.run_id, sender.incarnation), []).append(index)
        found: dict[int, Stand] = {}
        for shard, indexes in shards.items():
            stands = await self._acceptor.stands(shard, [senders[index].incarnation for index in indexes])
            found.update(zip(indexes, stands, strict=True))
        return [found[index] for index in range(len(senders))]

    async def _answers(self, requests: AsyncIterator[bytes], caller: Caller) -> AsyncIterator[Accepted]:
        stand: Accepted | None = None
        async for request in caller.watched(requests):
            if stand is None or not _is_behind(request, stand):
                stand = await self._accept(request, caller)
            yield stand

    async def _accept(self, request: bytes, caller: Caller) -> Accepted:
        now_ns = self._now_ns()
        try:
            sealed, batch = _parse(request, now_ns)
            caller.must_have(batch.project)
            shard = shard_of(batch.run_id, sealed.incarnation)
            offer = _offer(sealed, now_ns, expanded=batch.expanded)
            reach("gateway.before_accept")
            stand = await self._offer(shard, offer)
            reach("gateway.after_accept")
            if stand.outcome is Outcome.CONFLICT:
                await self._letters.keep(_letter(offer, batch, shard=shard))
        except Exception as error:
            metrics.BATCHES.labels(_result_of(error)).inc()
            raise
        metrics.BATCHES.labels(_RESULTS[stand.outcome]).inc()
        if stand.outcome is Outcome.ACCEPTED:
            metrics.ROWS_ACCEPTED.inc(sealed.rows)
            metrics.BYTES_ACCEPTED.inc(len(sealed.payload))
            await self._watcher.accepted(batch, sealed.incarnation)
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
        sealed.again,
    )


def _letter(offer: Offer, batch: Checked, *, shard: int) -> DeadLetter:
    return DeadLetter(
        payload=offer.payload,
        incarnation=offer.incarnation,
        seq=offer.seq,
        digest=offer.digest,
        rows=offer.rows,
        week=offer.week,
        expanded=offer.expanded,
        shard=shard,
        stage=Stage.CONFLICT,
        code=0,
        detail=f"another batch holds seq {offer.seq} of run {batch.run_id!r}: two senders share an incarnation",
        at_ms=time.time_ns() // 1_000_000,
    )


def _senders(request: bytes) -> Sequence[StandRequest.Sender]:
    """Who is asked for in a request.

    Raises:
        Refused: Names the field at fault.
    """
    if len(request) > MAX_STAND_BYTES:
        raise Refused("senders", f"{len(request)} bytes; at most {MAX_STAND_BYTES}")
    try:
        senders = StandRequest.FromString(request).senders
    except DecodeError as error:
        raise reason_of(request, StandRequest.DESCRIPTOR, field="senders") from error
    if len(senders) > MAX_SENDERS:
        raise Refused("senders", f"{len(senders)} asked for; at most {MAX_SENDERS} at once")
    for index, sender in enumerate(senders):
        if len(sender.incarnation) != ID_BYTES:
            size = len(sender.incarnation)
            raise Refused("senders.incarnation", f"{size} bytes at {index}; it has exactly {ID_BYTES}")
    return senders


def _result_of(error: Exception) -> str:
    results = ((Refused, "refused"), (Denied, "denied"), (Busy, "busy"), (BrokerError, "unavailable"))
    return next((result for kind, result in results if isinstance(error, kind)), "failed")
