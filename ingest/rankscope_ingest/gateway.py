"""The gateway: gRPC in, the broker out. Stateless; start more of them for more streams.

Requests of `Ingest` reach their handlers as the bytes that came, because a deserialiser that
raises becomes UNKNOWN, which tells a sender nothing. Stopping: the health service says so, no new
call is taken, calls in flight get a few seconds, the broker's connections close.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack

import grpc
import grpc.aio

from rankscope_ingest import metrics
from rankscope_ingest.addresses import host_and_port
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.conflicts import ConflictWatch
from rankscope_ingest.control import ControlService
from rankscope_ingest.errors import CannotStart
from rankscope_ingest.health import Health
from rankscope_ingest.service import IngestService
from rankscope_ingest.settings import GatewaySettings
from rankscope_proto.v1.ingest_pb2 import DESCRIPTOR

logger = logging.getLogger(__name__)

STOP_GRACE_S = 3.0
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", 8 * 2**20),
    ("grpc.max_send_message_length", 2**20),
    ("grpc.max_metadata_size", 8 * 2**10),
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
    ("grpc.max_connection_age_ms", 30 * 60_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
    # Without this a second gateway would silently share the port with the first.
    ("grpc.so_reuseport", 0),
)
MAX_CALLS = 4_096

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
    host_and_port(config.gateway_listen, setting="RANKSCOPE_GATEWAY_LISTEN")
    metrics.serve_metrics(config.gateway_metrics_listen, setting="RANKSCOPE_GATEWAY_METRICS_LISTEN")
    async with AsyncExitStack() as stack:
        buffer = Buffer(config.redis_url)
        stack.push_async_callback(buffer.close)
        for warning in await buffer.check():
            logger.warning(warning)
        server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
        _add_services(server, buffer, budget=config.shard_budget_bytes)
        health = Health(server, [service.full_name for service in (_INGEST, _CONTROL)])
        _bind(server, config.gateway_listen)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        logger.info("listening on %s", config.gateway_listen)
        await health.watch(buffer, stop)


def _add_services(server: grpc.aio.Server, buffer: Buffer, *, budget: int) -> None:
    """Adds `Ingest` and `Control` without deserialisers and serialisers: bytes in, bytes out."""
    ingest = IngestService(buffer, ConflictWatch(buffer, budget=budget), budget=budget)
    control = ControlService(buffer)
    ingest_methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Push": grpc.unary_unary_rpc_method_handler(ingest.push),
        "Stream": grpc.stream_stream_rpc_method_handler(ingest.stream),
    }
    control_methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Attach": grpc.stream_stream_rpc_method_handler(control.attach)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_INGEST.full_name, ingest_methods),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_CONTROL.full_name, control_methods),))


def _bind(server: grpc.aio.Server, listen: str) -> None:
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise _taken(listen) from error
    if port == 0:
        raise _taken(listen)


def _taken(listen: str) -> CannotStart:
    return CannotStart(
        f"cannot listen on {listen}: the port is taken or the address is not this machine's; "
        "set RANKSCOPE_GATEWAY_LISTEN to another"
    )
