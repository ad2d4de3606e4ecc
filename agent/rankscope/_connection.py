"""The one gRPC connection of a process, and what its errors mean.

The channel is born in the thread that first needs it, never at import or in `init`'s thread, and a
forked child never touches it. gRPC's own fork support is therefore turned off, unless the
environment or an earlier import of gRPC decides otherwise: with it on, each fork of a process with a
live channel took up to 5 s (20 forks: 19.9 s against 1.3 s), and DataLoader workers are forks.
"""

import os
import threading
from typing import TYPE_CHECKING, NamedTuple, cast

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # read once, when gRPC is imported

import grpc

from rankscope.errors import ExportError, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

OPTIONS: tuple[tuple[str, int], ...] = (
    # The ping timeout is the option that decides how fast a dead peer is noticed: below 5 s with these.
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 1_500),
    ("grpc.http2.ping_timeout_ms", 1_500),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # there is one retry layer, and it is ours
    ("grpc.max_send_message_length", 8 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),  # the gateway is inside the cluster
)

_DETAILS = "grpc-status-details-bin"
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


class _Use:
    """In which process gRPC was first used here."""

    pid = 0


def survived_fork() -> bool:
    """Whether gRPC works here: not in a child of a process that used it before, where the first call hangs."""
    return _Use.pid in (0, os.getpid())


class Connection:
    """A channel to the gateway, made when first asked for.

    Args:
        endpoint: `host:port`.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def channel(self) -> grpc.Channel:
        """The channel of this process."""
        with self._lock:
            if self._channel is None:
                _Use.pid = _Use.pid or os.getpid()
                self._channel = grpc.insecure_channel(self.endpoint, options=OPTIONS)
            return self._channel

    def close(self) -> None:
        """Drop the channel and end its calls; the next `channel` makes another."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class Failure(NamedTuple):
    """What a failed call means: the error in our terms, and the pause the server asked for, if it did."""

    error: ExportError
    retry_after_s: float | None


def failure_of(error: grpc.RpcError, endpoint: str) -> Failure:
    """Map a gRPC error: INVALID_ARGUMENT is for ever, everything else may pass."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.Call) else None) or str(error)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return Failure(Rejected(f"the gateway at {endpoint} refused a batch: {details}"), None)
    text = f"the gateway at {endpoint} does not take data now ({code.name}: {details})"
    trailing = (
        cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
        if isinstance(error, grpc.Call)
        else ()
    )
    packed = next((value for key, value in trailing if key == _DETAILS), b"")
    return Failure(Unavailable(text), retry_after_s(packed if isinstance(packed, bytes) else b""))


def retry_after_s(details: bytes) -> float | None:
    """The delay of the RetryInfo in a serialised google.rpc.Status; None where there is none."""
    try:
        for any_message in _fields(details).get(3, ()):
            packed = _fields(_bytes(any_message))
            if packed.get(1) == [_RETRY_INFO]:
                delay = _fields(_bytes(_fields(_bytes(packed[2][0]))[1][0]))
                return _number(delay, 1) + _number(delay, 2) / 1e9
    except (IndexError, KeyError, TypeError):
        return None
    return None


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """Field number → values of a protobuf message that has varints and byte strings only."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(value)
        elif tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(message[at : at + value])
            at += value
        else:
            raise TypeError(f"wire type {tag & 7} has no place in a status")
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError("a message was expected, not a number")


def _number(fields: dict[int, list[int | bytes]], number: int) -> int:
    value = fields.get(number, [0])[0]
    return value if isinstance(value, int) else 0
