"""Who may call the gateway: decided from a call's metadata, before anything of its body is read.

A call without a valid key ends as UNAUTHENTICATED, one whose key has not the scope or not the
project as PERMISSION_DENIED, with the same words whether that project exists or not. A stream is
looked at again while it runs, so a key that was revoked ends it within `SILENCE_S`. No key is ever
logged, and calls without a valid one are said once a minute, however many there are. Without a key
file everybody may everything: that is for loopback (`listening.py`).

Calls are counted here and not by gRPC's own limit, which answers RESOURCE_EXHAUSTED without
RetryInfo: a sender would take its batch for too large and set it aside.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar, cast

import grpc
import grpc.aio

from rankscope_ingest import metrics
from rankscope_ingest.errors import Busy, Denied, Idle, IngestError, Refused, Unauthenticated
from rankscope_ingest.statuses import abort
from rankscope_proto.keys import KeyRing, Principal, Scope, bearer

logger = logging.getLogger(__name__)

RECHECK_S = 10.0
"""How long a key is believed in a stream that is never silent."""
SILENCE_S = 30.0
"""A stream in which nothing comes for so long is closed: its sender opens another when it has a batch."""
MAX_CALLS = 8_192
MAX_CALLS_OF_A_KEY = 4_096
"""Two streams a rank: batches and the claim."""
CAP_RETRY_MS = 2_000
SAY_EVERY_S = 60.0

_OPEN_TO_ALL = "/grpc.health.v1.Health/"
_NO_KEY = "a key is needed: send `authorization: Bearer <key>`; the SDK and the agent take it from RANKSCOPE_KEY"
_SEVERAL = "several `authorization` values came with this call: send one, with the key of RANKSCOPE_KEY"
_NOT_VALID = "this key is unknown, expired or revoked: ask for another one and set RANKSCOPE_KEY to it"

Context = grpc.aio.ServicerContext[bytes, bytes]
Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Gate(grpc.aio.ServerInterceptor):
    """Lets calls in, and counts them.

    Args:
        ring: The keys; None: everybody may everything.
        monotonic: A clock in seconds.
    """

    def __init__(self, ring: KeyRing | None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ring = ring
        self._monotonic = monotonic
        self._open: Counter[str] = Counter()
        self._refused = 0
        self._said_at = -SAY_EVERY_S

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Request, Answer] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Request, Answer] | None":
        """Asks for the key before the handler is looked up; a refusal reads nothing of the body."""
        if not handler_call_details.method.startswith(_OPEN_TO_ALL):
            try:
                self._admit(self.principal(_key_in(handler_call_details.invocation_metadata)))
            except IngestError as error:
                return cast("grpc.RpcMethodHandler[Request, Answer]", self._refusal(error))
        return await continuation(handler_call_details)

    def principal(self, key: str | None) -> Principal | None:
        """Whom a key stands for; None where keys are off.

        Raises:
            Unauthenticated: There is no key, or it is not valid now.
            Denied: It may not send.
        """
        if self._ring is None:
            return None
        principal = self._ring.principal(key)
        if principal is None:
            raise Unauthenticated(_NOT_VALID if key else _NO_KEY)
        if not principal.may(Scope.INGEST):
            raise Denied(f"the key {principal.key_id} may not send: it lacks the scope ingest")
        return principal

    @contextmanager
    def entered(self, context: Context) -> Generator["Caller"]:
        """Counts a call for as long as it runs.

        Raises:
            Unauthenticated, Denied: The key ended since the call came in.
        """
        key = _key_in(context.invocation_metadata() or ())
        caller = Caller(self, key, peer=context.peer())
        self._open.update((caller.counted_as, ""))
        try:
            yield caller
        finally:
            self._open.subtract((caller.counted_as, ""))
            if not self._open[caller.counted_as]:
                del self._open[caller.counted_as]

    def now(self) -> float:
        """The gate's clock, s."""
        return self._monotonic()

    def say(self, error: IngestError, *, peer: str) -> None:
        """Counts a refusal; logs it unless another one was within the minute."""
        metrics.CALLS_REFUSED.labels(error.code).inc()
        self._refused += 1
        if self._monotonic() - self._said_at >= SAY_EVERY_S:
            self._said_at = self._monotonic()
            logger.warning("refused a call: %s", error, extra={"peer": peer, "refused_since": self._refused})
            self._refused = 0

    def _admit(self, principal: Principal | None) -> None:
        own = self._open[principal.key_id] if principal else 0
        if self._open[""] >= MAX_CALLS or own >= MAX_CALLS_OF_A_KEY:
            most = MAX_CALLS_OF_A_KEY if principal else MAX_CALLS
            raise Busy(f"{most} calls are open; start another gateway for more", retry_after_ms=CAP_RETRY_MS)

    def _refusal(self, error: IngestError) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """A handler that ends its call. A streaming one whatever the method: only that reads no request first."""

        async def refuse(_: AsyncIterator[bytes], context: Context) -> None:
            self.say(error, peer=context.peer())
            await abort(context, error)

        return grpc.stream_stream_rpc_method_handler(
            cast("Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]", refuse)
        )


class Caller:
    """Whom a running call is from.

    Attributes:
        counted_as: Id of the key; `off` where keys are off.
    """

    def __init__(self, gate: Gate, key: str | None, *, peer: str) -> None:
        self._gate = gate
        self._key = key
        self._peer = peer
        self._principal = gate.principal(key)
        self._checked_at = gate.now()
        self.counted_as = self._principal.key_id if self._principal else "off"

    def must_have(self, project: str) -> None:
        """Returns where the key is one of the project's.

        Raises:
            Denied: It is not, whether the project exists or not.
        """
        if self._principal is not None and not self._principal.may(Scope.INGEST, project):
            error = Denied(f"project {project!r} is unknown to the key {self.counted_as}")
            self._gate.say(error, peer=self._peer)
            raise error

    async def only(self, requests: AsyncIterator[bytes]) -> bytes:
        """The one request of a call.

        Raises:
            Refused: The call ended without one.
            Idle: It did not come within `SILENCE_S`.
        """
        async for request in self.watched(requests):
            return request
        raise Refused("request", "the call ended without one")

    async def watched(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The requests of a stream, while its key is valid and it is not silent.

        Raises:
            Unauthenticated, Denied: The key ended.
            Idle: Nothing came for `SILENCE_S`.
        """
        source = aiter(requests)
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    request = await anext(source)
            except StopAsyncIteration:
                return
            except TimeoutError:
                self._check()
                raise Idle(f"nothing came for {SILENCE_S:g} s: open a stream when there is something to send") from None
            if self._gate.now() - self._checked_at >= RECHECK_S:
                self._check()
            yield request

    def _check(self) -> None:
        self._checked_at = self._gate.now()
        try:
            self._principal = self._gate.principal(self._key)
        except IngestError as error:
            self._gate.say(error, peer=self._peer)
            raise


def _key_in(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The key a call brings; None where it brings none.

    Raises:
        Unauthenticated: It brings several, of which a proxy before us may have looked at another one.
    """
    values = [value for name, value in metadata if name == "authorization"]
    if len(values) > 1:
        raise Unauthenticated(_SEVERAL)
    return next((bearer(value if isinstance(value, str) else value.decode(errors="replace")) for value in values), None)
