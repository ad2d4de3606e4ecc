"""The `Control` service: who holds a rank, kept alive by the statuses of its process.

A claim lapses `LIFETIME_MS` after the last status. A process that ends its side of the stream in
order gives the claim back at once; one that vanishes leaves it to lapse.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import grpc.aio
from google.protobuf.message import DecodeError

from rankscope_ingest.access import Caller, Gate
from rankscope_ingest.buffer import Claimant, claim_key
from rankscope_ingest.errors import BrokerError, Busy, Refused
from rankscope_ingest.malformed import reason_of
from rankscope_ingest.senders import ID_BYTES, check_sender
from rankscope_ingest.statuses import abort
from rankscope_proto.names import ProcessRole
from rankscope_proto.v1.ingest_pb2 import AgentStatus, Command

logger = logging.getLogger(__name__)

LIFETIME_MS = 10_000
CUT_GRACE_S = 0.05
MAX_CODE = 255
MAX_STATUS_BYTES = 4_096
"""A claim shows its holder's status, and is kept in the broker's memory."""

Context = grpc.aio.ServicerContext[bytes, bytes]


class Claims(Protocol):
    """The broker as claims need it; `Buffer` says what each method promises."""

    async def claim(self, key: str, claimant: Claimant, *, lifetime_ms: int) -> bytes | None:
        """Takes or keeps a claim; what its holder shows, where it is another."""
        ...

    async def release(self, key: str, *, holder: bytes) -> None:
        """Gives a claim back."""
        ...


@dataclass(slots=True)
class _Held:
    """What a call holds: its last status, and whether the claim is its own; None before the first answer."""

    status: AgentStatus | None = None
    is_granted: bool | None = None


class ControlService:
    """Answers claims.

    Args:
        claims: The broker.
        gate: Knows whom a call is from.
    """

    def __init__(self, claims: Claims, gate: Gate) -> None:
        self._claims = claims
        self._gate = gate

    async def attach(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Control.Attach: the first status is answered; later ones only when the claim was lost."""
        held = _Held()
        try:
            with self._gate.entered(context) as caller:
                async for answer in self._answers(requests, caller, held=held):
                    yield Command(claim=answer).SerializeToString()
        except Exception as error:  # noqa: BLE001 # whatever it is, the process is told which status it means
            await abort(context, error)
        if held.status is not None and held.is_granted:
            # A call that was cut ends the requests too, and cancels this task just after.
            await asyncio.sleep(CUT_GRACE_S)
            await self._release(held.status)

    async def _answers(
        self, requests: AsyncIterator[bytes], caller: Caller, *, held: "_Held"
    ) -> AsyncIterator[Command.Claim]:
        """Each answer that differs from the one before."""
        async for request in caller.watched(requests):
            status = _parse(request)
            caller.must_have(status.project)
            held.status = status
            answer = await self._claim(status)
            if answer.granted != held.is_granted:
                held.is_granted = answer.granted
                yield answer

    async def _claim(self, status: AgentStatus) -> Command.Claim:
        if not _claims_a_rank(status):
            return Command.Claim(granted=True)
        holder = await self._claims.claim(
            claim_key(status.project, status.run_id, rank=status.rank),
            Claimant(status.incarnation, status.SerializeToString(), status.replaces),
            lifetime_ms=LIFETIME_MS,
        )
        if holder is None:
            return Command.Claim(granted=True)
        return Command.Claim(granted=False, holder=AgentStatus.FromString(holder))

    async def _release(self, status: AgentStatus) -> None:
        if _claims_a_rank(status):
            with suppress(BrokerError, Busy):  # it lapses by itself
                key = claim_key(status.project, status.run_id, rank=status.rank)
                await self._claims.release(key, holder=status.incarnation)


def _claims_a_rank(status: AgentStatus) -> bool:
    """Only a trainer's rank can be held once; its workers and servers share it."""
    return status.process_role == ProcessRole.TRAINER.code and status.rank >= 0


def _parse(request: bytes) -> AgentStatus:
    """The status in a request.

    Raises:
        Refused: Names the first field at fault.
    """
    try:
        status = AgentStatus.FromString(request)
    except DecodeError as error:
        raise reason_of(request, AgentStatus.DESCRIPTOR, field="status") from error
    check_sender(status)
    if len(status.replaces) not in {0, ID_BYTES}:
        raise Refused("replaces", f"{len(status.replaces)} bytes; it has {ID_BYTES} or none")
    if not 0 < status.process_role <= MAX_CODE:
        raise Refused("process_role", f"{status.process_role}; it is from 1 to {MAX_CODE}")
    if status.rank < -1:
        raise Refused("rank", f"{status.rank}; it is from -1")
    if len(request) > MAX_STATUS_BYTES:  # all that is left is fields of a later version
        raise Refused("status", f"{len(request)} bytes; at most {MAX_STATUS_BYTES}")
    return status
