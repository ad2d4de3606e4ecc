"""The gRPC connection of a process: where gateways are, how they are reached, and what their errors mean.

The channel is born in the thread that first needs it, never at import or in `init`'s thread, and a
forked child never touches it (`_grpc` says what forks cost).

A key never crosses a network in plaintext, unless somebody said that it may.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from rankscope._grpc import grpc
from rankscope._plaintext import TLS, refuse_plaintext_key
from rankscope._retry_info import retry_after_s
from rankscope.errors import ConfigError, ExportError, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

OPTIONS: tuple[tuple[str, int], ...] = (
    # The ping timeout is the option that decides how fast a dead peer is noticed: below 5 s with these.
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 1_500),
    ("grpc.http2.ping_timeout_ms", 1_500),
    ("grpc.http2.max_pings_without_data", 0),
    # With our own longest pause of 2 s a gateway that is back is found within 3 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # there is one retry layer, and it is ours
    ("grpc.max_send_message_length", 8 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),  # the gateway is inside the cluster
)

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Access:
    """What proves who asks, and who answers.

    Attributes:
        key: The API key; never shown.
        tls_ca: File with the authorities that sign the gateway; None: the system's.
        tls_cert: File with this node's certificate, for mutual TLS.
        tls_key: File with that certificate's key.
        insecure: Whether a key may cross a network without TLS.
    """

    key: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False


class _Use:
    """In which process gRPC was first used here."""

    pid = 0


def survived_fork() -> bool:
    """Whether gRPC works here: not in a child of a process that used it before, where the first call hangs."""
    return _Use.pid in (0, os.getpid())


Metadata = tuple[tuple[str, str], ...]


class Route(NamedTuple):
    """One address, the channel to it, and what goes with every call."""

    endpoint: str
    channel: grpc.Channel
    metadata: Metadata


class Connection:
    """The way to a gateway: one channel to each of its addresses, made when first asked for.

    Args:
        endpoints: `host:port`, or several in order of preference; `https://host:port` means TLS.
        access: Keys and certificates.
    """

    def __init__(self, endpoints: str | Sequence[str], access: Access | None = None) -> None:
        self._endpoints = (endpoints,) if isinstance(endpoints, str) else tuple(endpoints)
        self._access = access or Access()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._at = 0
        self._channels: dict[str, grpc.Channel] = {}

    @property
    def endpoint(self) -> str:
        """The address in use."""
        return self._endpoints[self._at]

    def leave(self, endpoint: str) -> None:
        """Go on to the next address, unless somebody left this one already."""
        with self._lock:
            if self.endpoint == endpoint:
                self._at = (self._at + 1) % len(self._endpoints)

    def route(self, key: str | None = None) -> "Route":
        """The way to the address in use: taken at once, since others may `leave` it meanwhile.

        Args:
            key: Instead of the one in `access`.

        Raises:
            ConfigError: a certificate cannot be read, or the key would cross a network in plaintext; the next
                call takes the next address.
        """
        with self._lock:
            _Use.pid = _Use.pid or os.getpid()
            endpoint = self.endpoint
            try:
                metadata = _metadata(key or self._access.key, endpoint, is_insecure=self._access.insecure)
                if endpoint not in self._channels:
                    self._channels[endpoint] = _channel(endpoint, self._access)
            except ConfigError:
                self._at = (self._at + 1) % len(self._endpoints)
                raise
            return Route(endpoint, self._channels[endpoint], metadata)

    def close(self) -> None:
        """Drop the channels and end their calls; the next `route` makes another."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()


def _metadata(key: str | None, endpoint: str, *, is_insecure: bool) -> Metadata:
    """What goes with every call: the key, if there is one."""
    if key is None:
        return ()
    refuse_plaintext_key(endpoint, is_insecure=is_insecure)
    return (("authorization", f"Bearer {key}"),)


def _channel(endpoint: str, access: Access) -> grpc.Channel:
    if not endpoint.startswith(TLS):
        return grpc.insecure_channel(endpoint, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        _content(access.tls_ca, "RANKSCOPE_TLS_CA"),
        _content(access.tls_key, "RANKSCOPE_TLS_KEY"),
        _content(access.tls_cert, "RANKSCOPE_TLS_CERT"),
    )
    return grpc.secure_channel(endpoint.removeprefix(TLS), credentials, options=OPTIONS)


def _content(path: Path | None, variable: str) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{variable} names {path}, which cannot be read ({error.strerror})") from error


class Kind(Enum):
    """What a failed call is about."""

    PASSING = "the gateway cannot now"
    REFUSED = "the batch, for ever"
    TOO_LARGE = "the batch, most likely: nothing says when to try again"
    DENIED = "who asks"
    OURS = "this machine: a setting, a file, its disk"


class Failure(NamedTuple):
    """What a failed call means: the error in our terms, what it is about, and the pause the server asked for."""

    error: ExportError
    retry_after_s: float | None
    kind: Kind = Kind.PASSING


_DENIALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def failure_of(error: grpc.RpcError, endpoint: str) -> Failure:
    """Map a gRPC error.

    INVALID_ARGUMENT is for ever. RESOURCE_EXHAUSTED without a time to try again is what gRPC itself
    says of a message that is too large. A denial lasts until somebody changes a key. All else passes.
    """
    call = error if isinstance(error, grpc.Call) else None
    code = call.code() if call else grpc.StatusCode.UNKNOWN
    details = (call.details() if call else None) or str(error)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return Failure(Rejected(f"the gateway at {endpoint} refused a batch: {details}"), None, Kind.REFUSED)
    if code in _DENIALS:
        text = f"the gateway at {endpoint} denies access ({code.name}: {details}); is RANKSCOPE_KEY right?"
        return Failure(Unavailable(text), None, Kind.DENIED)
    asked_s = retry_after_s(_status_details(call)) if call else None
    text = f"the gateway at {endpoint} does not take data now ({code.name}: {details})"
    is_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and asked_s is None
    return Failure(Unavailable(text), asked_s, Kind.TOO_LARGE if is_large else Kind.PASSING)


def _status_details(call: grpc.Call) -> bytes:
    trailing = cast("Iterable[tuple[str, str | bytes]]", call.trailing_metadata() or ())
    packed = next((value for key, value in trailing if key == _DETAILS), b"")
    return packed if isinstance(packed, bytes) else b""
