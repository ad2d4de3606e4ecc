"""What a sender is told: each error as a gRPC status that is permanent or temporary, never in between.

INVALID_ARGUMENT is for ever. INTERNAL is a fault of ours: it is logged with its traceback, and the
sender repeats the batch with growing pauses, because another gateway, or this one mended, may take
it. RESOURCE_EXHAUSTED and UNAVAILABLE carry google.rpc.RetryInfo in
`grpc-status-details-bin`, by the rule of OTLP that without it a client must not retry.
UNAUTHENTICATED and PERMISSION_DENIED last until somebody changes the key. The two
messages needed are encoded here: the package that brings them is not otherwise needed.
"""

import logging
from typing import NoReturn

import grpc
import grpc.aio

from rankscope_ingest.entries import varint
from rankscope_ingest.errors import BrokerError, Busy, Denied, Idle, IngestError, Refused, Unauthenticated

logger = logging.getLogger(__name__)

UNAVAILABLE_RETRY_MS = 1_000
IDLE_RETRY_MS = 100
DETAILS_KEY = "grpc-status-details-bin"
_RETRY_INFO_TYPE = b"type.googleapis.com/google.rpc.RetryInfo"


async def abort(context: grpc.aio.ServicerContext[bytes, bytes], error: Exception) -> NoReturn:
    """Ends a call with the status of an error, also of one that nobody foresaw: gRPC would call that UNKNOWN."""
    code, retry_after_ms = status_of(error)
    text = str(error)
    if not isinstance(error, IngestError):
        logger.error("a fault of the gateway ended a call", exc_info=error, extra={"peer": context.peer()})
        text = f"a fault of the gateway ({type(error).__name__}); its log says more"
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        logger.warning("refused: %s", error, extra={"peer": context.peer()})
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    if retry_after_ms is not None:
        metadata = ((DETAILS_KEY, retry_details(code, text, retry_after_ms=retry_after_ms)),)
    await context.abort(code, text, trailing_metadata=metadata)
    raise error  # for the type checker: abort raised


def status_of(error: Exception) -> tuple[grpc.StatusCode, int | None]:
    """The status of an error, and the milliseconds after which to try again where it is temporary."""
    if isinstance(error, Busy):
        return grpc.StatusCode.RESOURCE_EXHAUSTED, error.retry_after_ms
    found = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
    return next(found, (grpc.StatusCode.INTERNAL, None))


def retry_details(code: grpc.StatusCode, message: str, *, retry_after_ms: int) -> bytes:
    """A serialised google.rpc.Status with one RetryInfo.

    Args:
        code: The status's code.
        message: Its text.
        retry_after_ms: The delay asked for.
    """
    seconds, milliseconds = divmod(retry_after_ms, 1_000)
    delay = b"\x08" + varint(seconds) + b"\x10" + varint(milliseconds * 1_000_000)
    retry_info = _message(1, delay)
    packed = _message(1, _RETRY_INFO_TYPE) + _message(2, retry_info)
    number: int = code.value[0]
    return b"\x08" + varint(number) + _message(2, message.encode()) + _message(3, packed)


def _message(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field (number below 16)."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


_STATUSES: dict[type[IngestError], tuple[grpc.StatusCode, int | None]] = {
    Refused: (grpc.StatusCode.INVALID_ARGUMENT, None),
    BrokerError: (grpc.StatusCode.UNAVAILABLE, UNAVAILABLE_RETRY_MS),
    Idle: (grpc.StatusCode.UNAVAILABLE, IDLE_RETRY_MS),
    Unauthenticated: (grpc.StatusCode.UNAUTHENTICATED, None),
    Denied: (grpc.StatusCode.PERMISSION_DENIED, None),
}
