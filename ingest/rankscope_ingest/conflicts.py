"""A second trainer of a rank that sends data is recorded, never refused.

Sealed data is not refused for who sent it (`wire.md`), so when a batch comes from another
incarnation than the one that holds the rank's live claim, an event `rank_conflict` is written to
the run, once for each pair of incarnations, in a batch of the gateway's own.
"""

import json
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import uuid_utils

from rankscope_ingest import metrics
from rankscope_ingest.buffer import Accepted, Offer, claim_key
from rankscope_ingest.errors import IngestError
from rankscope_ingest.validate import Checked
from rankscope_proto.columns import SCHEMA_VERSION
from rankscope_proto.identity import payload_digest, shard_of, week_of
from rankscope_proto.names import EventKind, ProcessRole, Severity
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import AgentStatus

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""How long a claim that was seen is believed: one look-up in the broker for each sender and this time."""
MAX_SENDERS = 10_000


class Broker(Protocol):
    """The broker as this module needs it; `Buffer` says what each method promises."""

    async def claim_holder(self, key: str) -> tuple[bytes, bytes] | None:
        """Id of a live claim's holder and what it shows."""
        ...

    async def mark_once(self, key: str) -> bool:
        """Whether the caller is the first to set this mark."""
        ...

    async def accept(self, shard: int, offer: Offer, *, budget: int) -> Accepted:
        """Offers a batch."""
        ...


class ConflictWatch:
    """Writes `rank_conflict` events.

    Args:
        broker: Claims, marks and streams.
        budget: Payload bytes a shard may hold.
        monotonic: A clock in seconds.
        now_ns: The wall clock.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        budget: int,
        monotonic: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._broker = broker
        self._budget = budget
        self._monotonic = monotonic
        self._now_ns = now_ns
        self._looked_at: dict[bytes, float] = {}

    async def accepted(self, batch: Checked, incarnation: bytes) -> None:
        """Looks whether the sender of an accepted batch holds its rank; never raises for the broker's faults."""
        now = self._monotonic()
        is_trainer = batch.process_role == ProcessRole.TRAINER.code and batch.rank >= 0
        if not is_trainer or now - self._looked_at.get(incarnation, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
            return
        if len(self._looked_at) >= MAX_SENDERS:
            self._looked_at.clear()
        self._looked_at[incarnation] = now
        with suppress(IngestError):  # the next look repeats it
            await self._look(batch, incarnation)

    async def _look(self, batch: Checked, incarnation: bytes) -> None:
        holder = await self._broker.claim_holder(claim_key(batch.project, batch.run_id, rank=batch.rank))
        if holder is None or holder[0] == incarnation:
            return
        mark = f"rankscope:conflict:{holder[0].hex()}:{incarnation.hex()}"
        if not await self._broker.mark_once(mark):
            return
        metrics.RANK_CONFLICTS.inc()
        names = {"project": batch.project, "run_id": batch.run_id, "rank": batch.rank}
        logger.warning("a second trainer sends for a rank that is held", extra=names)
        await self._write(batch, incarnation, holder=AgentStatus.FromString(holder[1]))

    async def _write(self, batch: Checked, incarnation: bytes, *, holder: AgentStatus) -> None:
        now_ns = self._now_ns()
        own = uuid_utils.uuid7().bytes  # an incarnation for this one batch: its seq is 0 in any shard
        details = {
            "rank": batch.rank,
            "holder": {"incarnation": holder.incarnation.hex(), "node": holder.node, "pid": holder.pid},
            "second": {"incarnation": incarnation.hex(), "node": batch.node, "pid": batch.pid},
        }
        event = _event(batch, own, now_ns=now_ns, details=json.dumps(details))
        payload = event.SerializeToString()
        offer = Offer(payload, own, 0, payload_digest(payload), 1, event.header.week, 0)
        await self._broker.accept(shard_of(batch.run_id, own), offer, budget=self._budget)


def _event(batch: Checked, incarnation: bytes, *, now_ns: int, details: str) -> Batch:
    """A batch of the gateway with one event of the run."""
    message = Batch(strings=["", EventKind.RANK_CONFLICT.value, "two trainers of one rank"], received=now_ns)
    header = message.header
    header.schema_version = SCHEMA_VERSION
    header.project, header.run_id, header.launch_id = batch.project, batch.run_id, batch.launch_id
    header.process_role = ProcessRole.SERVER.code
    header.rank = header.local_rank = header.worker_index = header.parent_rank = -1
    header.world_size = 1
    header.node = socket.gethostname()
    header.incarnation = incarnation
    header.sealed = now_ns
    header.week = week_of(now_ns, now_ns=now_ns)
    header.emitted_events = 1
    events = message.events
    events.time.append(now_ns)
    events.kind.append(1)
    events.name.append(2)
    events.severity.append(Severity.WARNING.code)
    events.payload.append(details)
    return message
