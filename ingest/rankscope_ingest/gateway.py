"""The gateway: gRPC in, the broker out. Stateless; start more of them for more streams.

Requests reach their handlers as the bytes that came, because a deserialiser that raises becomes
UNKNOWN, which tells a sender nothing; before that the gate (`access.py`) has asked for the key.
Stopping: the health service says so, no new
call is taken, calls in flight get a few seconds, the broker's connections close.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio

from rankscope_ingest import metrics
from rankscope_ingest.access import Gate
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.conflicts import ConflictWatch
from rankscope_ingest.control import ControlService
from rankscope_ingest.dead_letters import DeadLetters
from rankscope_ingest.errors import Busy, ConfigError
from rankscope_ingest.health import Health
from rankscope_ingest.listening import bind, credentials_of, must_be_safe
from rankscope_ingest.service import IngestService
from rankscope_ingest.settings import GatewaySettings
from rankscope_proto.keys import KeyFileError, KeyRing
from rankscope_proto.v1.ingest_pb2 import DESCRIPTOR

logger = logging.getLogger(__name__)

STOP_GRACE_S = 3.0
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", 8 * 2**20),
    ("grpc.max_send_message_length", 2**20),
    # A key takes 80 bytes. Between the first bound and the second gRPC refuses at random.
    ("grpc.max_metadata_size", 8 * 2**10),
    ("grpc.absolute_max_metadata_size", 8 * 2**10),
    # Agents ping every 3 s to notice a frozen gateway within 5: against a default server that is
    # GOAWAY too_many_pings after a few seconds.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.max_concurrent_streams", 256),
    # A stream's window stays at 64 KiB (a larger message widens it while it is read). Windows that grow by gRPC's own
    # measure held 510 MiB for 1,000 streams on a busy machine.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_connection_age_ms", 30 * 60_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
    # A connection that says nothing, or a byte now and then, holds a descriptor no longer than this.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Without this a second gateway would silently share the port with the first.
    ("grpc.so_reuseport", 0),
)

_INGEST = DESCRIPTOR.services_by_name["Ingest"]
_CONTROL = DESCRIPTOR.services_by_name["Control"]


async def serve(settings: Mapping[str, str], stop: asyncio.Event) -> None:
    """Runs a gateway until `stop` is set.

    Args:
        settings: An environment-like mapping; see `GatewaySettings`.
        stop: Set by the caller to end it in order.

    Raises:
        ConfigError: A setting cannot be used.
        CannotStart: The port is taken.
        BrokerError: The broker cannot be reached or is unfit at the start.
    """
    config = GatewaySettings.read(settings)
    must_be_safe(config)
    gate, credentials = Gate(_key_ring(config.keys)), credentials_of(config)
    metrics.serve_metrics(config.gateway_metrics_listen, setting="RANKSCOPE_GATEWAY_METRICS_LISTEN")
    async with AsyncExitStack() as stack:
        buffer, letters = Buffer(config.redis_url), DeadLetters(config.redis_url)
        stack.push_async_callback(buffer.close)
        stack.push_async_callback(letters.close)
        await _look_at(buffer, budget=config.shard_budget_bytes)
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[gate])
        budget = config.shard_budget_bytes
        watch = ConflictWatch(buffer, budget=budget)
        ingest = IngestService(buffer, watch, letters=letters, gate=gate, budget=budget)
        _add_services(server, ingest, control=ControlService(buffer, gate))
        health = Health(server, [service.full_name for service in (_INGEST, _CONTROL)])
        bind(server, config.gateway_listen, credentials=credentials)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        logger.info("listening on %s", config.gateway_listen)
        await health.watch(buffer, stop)


async def _look_at(buffer: Buffer, *, budget: int) -> None:
    """Reads the broker's settings back and tries it; what is only unwise is warned of.

    Raises:
        BrokerError: It cannot be reached, or would lose or refuse data.
    """
    for warning in await buffer.check(budget=budget):
        logger.warning(warning)
    try:
        await buffer.test_accept()
    except Busy as error:  # a gateway that restarts in an outage must come back
        logger.warning("starting without the self-test: %s", error)


def _key_ring(path: Path | None) -> KeyRing | None:
    """The keys senders need; None where they need none.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return None if path is None else KeyRing(path)
    except KeyFileError as error:
        raise ConfigError(f"RANKSCOPE_KEYS: {error}") from error


def _add_services(server: grpc.aio.Server, ingest: IngestService, *, control: ControlService) -> None:
    """Adds `Ingest` and `Control` without deserialisers and serialisers: bytes in, bytes out.

    Also a call with one request gets it as a stream, which is the same on the wire: gRPC would read the whole body,
    however slowly it comes, before the call is counted.
    """
    ingest_methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Push": grpc.stream_unary_rpc_method_handler(ingest.push),
        "Stand": grpc.stream_unary_rpc_method_handler(ingest.stand),
        "Stream": grpc.stream_stream_rpc_method_handler(ingest.stream),
    }
    control_methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Attach": grpc.stream_stream_rpc_method_handler(control.attach)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_INGEST.full_name, ingest_methods),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_CONTROL.full_name, control_methods),))
