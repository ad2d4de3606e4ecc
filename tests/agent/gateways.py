"""A gateway on a real port whose every answer a test can choose: what no real one does on demand."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import cast

import grpc

from rankscope_proto.v1.ingest_pb2 import Ack, AgentStatus, Command, Sealed, StandReply, StandRequest
from rankscope_proto.v1.ingest_pb2_grpc import (
    ControlServicer,
    IngestServicer,
    add_ControlServicer_to_server,
    add_IngestServicer_to_server,
)
from tests.ground.certificates import Pair

CREDIT = 4 * 1024 * 1024

Answer = Callable[[Sealed, grpc.ServicerContext], Ack | None]
"""What to answer to one batch; None: as a gateway does."""


class ScriptedGateway(IngestServicer, ControlServicer):
    """Accepts in order, as the real one, except where a test said otherwise.

    Args:
        port: Where it listens; 0: anywhere.
        tls: Its certificate; None: in plaintext.

    Attributes:
        accepted: The batches accepted, in order.
        arrived: Seqs of all batches that came, in order.
        answers: Answers to give to the next batches, one each.
        holders: Rank → who holds it.
        claims: All statuses that came.
        frozen: While set, no batch is answered.
        durable_below: What it says is in the store at most; None: all that it accepted.
        stands: Answers `Stand`; False: is too old to.
        keys: The authorization of every call, in order.
        lags: While set, nothing becomes durable.
        clock: Whose clock it tells; empty: it is too old to tell any.
        ahead_ns: How far that clock is ahead.
    """

    def __init__(self, port: int = 0, *, tls: Pair | None = None) -> None:
        self.accepted: list[Sealed] = []
        self.arrived: list[int] = []
        self.answers: deque[Answer] = deque()
        self.holders: dict[int, AgentStatus] = {}
        self.claims: list[AgentStatus] = []
        self.frozen = Event()
        self.lags = Event()
        self.durable_below: int | None = None
        self.stands = True
        self.keys: list[str] = []
        self.clock = ""
        self.ahead_ns = 0
        self._watermarks: dict[bytes, int] = {}
        self._durable: dict[bytes, int] = {}
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_IngestServicer_to_server(self, self._server)
        add_ControlServicer_to_server(self, self._server)
        address = f"127.0.0.1:{port}"
        self.port = (
            self._server.add_insecure_port(address)
            if tls is None
            else self._server.add_secure_port(
                address, grpc.ssl_server_credentials([(tls.key.read_bytes(), tls.cert.read_bytes())])
            )
        )
        self._server.start()

    @property
    def endpoint(self) -> str:
        """Its `host:port`."""
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End every call and free the port."""
        self.frozen.clear()
        self._server.stop(0).wait(10)

    def Push(self, request: Sealed, context: grpc.ServicerContext) -> Ack:
        return self._accept(request)

    def forget(self, *, from_seq: int = 0) -> None:
        """Lose what was accepted from a seq on, as a broker that lost its tail."""
        for incarnation in self._watermarks:
            self._watermarks[incarnation] = from_seq

    def Stream(self, request_iterator: Iterator[Sealed], context: grpc.ServicerContext) -> Iterator[Ack]:
        self.keys.extend(str(value) for name, value in context.invocation_metadata() if name == "authorization")
        for sealed in request_iterator:
            self.arrived.append(sealed.seq)
            while self.frozen.is_set() and context.is_active():
                Event().wait(0.05)
            answer = self.answers.popleft()(sealed, context) if self.answers else None
            yield self._accept(sealed) if answer is None else answer

    def Attach(self, request_iterator: Iterator[AgentStatus], context: grpc.ServicerContext) -> Iterator[Command]:
        answered: bool | None = None
        for status in request_iterator:
            self.claims.append(status)
            holder = self.holders.get(status.rank, status)
            granted = holder.incarnation in (status.incarnation, status.replaces)
            if granted:
                self.holders[status.rank] = status
            if granted != answered:
                answered = granted
                yield Command(claim=Command.Claim(granted=granted, holder=None if granted else holder))

    def Stand(self, request: StandRequest, context: grpc.ServicerContext) -> StandReply:
        received_ns = time.time_ns() + self.ahead_ns
        if not self.stands:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older one")
        stands = [
            StandReply.Stand(
                accepted=self._watermarks.get(sender.incarnation, 0), durable=self._durable_of(sender.incarnation)
            )
            for sender in request.senders
        ]
        if not self.clock:
            return StandReply(stands=stands)
        told_ns = time.time_ns() + self.ahead_ns
        return StandReply(stands=stands, received_ns=received_ns, answered_ns=told_ns, gateway=self.clock)

    def _durable_of(self, incarnation: bytes) -> int:
        if not self.lags.is_set():
            self._durable[incarnation] = self._watermarks.get(incarnation, 0)
        durable = self._durable.get(incarnation, 0)
        return durable if self.durable_below is None else min(durable, self.durable_below)

    def _accept(self, sealed: Sealed) -> Ack:
        watermark = self._watermarks.get(sealed.incarnation, 0)
        if sealed.seq > watermark and sealed.seq != sealed.base:
            return Ack(
                outcome=Ack.OUTCOME_EXPECTED,
                accepted=watermark,
                durable=self._durable_of(sealed.incarnation),
                expected=max(watermark, sealed.base),
                credit=CREDIT,
            )
        outcome = Ack.OUTCOME_DUPLICATE
        if sealed.seq >= watermark:
            outcome = Ack.OUTCOME_ACCEPTED
            self.accepted.append(sealed)
            watermark = self._watermarks[sealed.incarnation] = sealed.seq + 1
        durable = self._durable_of(sealed.incarnation)
        return Ack(outcome=outcome, accepted=watermark, durable=durable, credit=CREDIT)


def say(ack: Ack | None) -> Answer:
    """An answer that is this acknowledgement; None: as a gateway does."""

    def answer(sealed: Sealed, context: grpc.ServicerContext) -> Ack | None:
        return ack

    return answer


def refuse(code: grpc.StatusCode, words: str, *, details: bytes = b"") -> Answer:
    """An answer that ends the call with a status."""

    def answer(sealed: Sealed, context: grpc.ServicerContext) -> Ack | None:
        if details:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, words)
        return cast("None", sealed)  # never reached: abort raises

    return answer
