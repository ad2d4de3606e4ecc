"""The gateway: gRPC in, the broker out. Stateless; start more of them for more streams.

Requests of `Ingest` reach their handlers as the bytes that came, because a deserialiser that
raises becomes UNKNOWN, which tells a sender nothing. Stopping: the health service says so, no new
call is taken, calls in flight get a few seconds, the broker's connections close.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from rankscope_ingest import metrics
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.conflicts import ConflictWatch
from rankscope_ingest.control import ControlService
from rankscope_ingest.errors import BrokerUnavailable, ConfigError
from rankscope_ingest.service import IngestService
from rankscope_ingest.settings import GatewaySettings, host_and_port
from rankscope_proto.v1.ingest_pb2 import DESCRIPTOR

logger = logging.getLogger(__name__)

STOP_GRACE_S = 3.0
HEALTH_EVERY_S = 2.0
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


async def serve(settings: Mapping[str, str], stop: asyncio.Event) -> None:
    """Runs a gateway until `stop` is set.

    Args:
        settings: An environment-like mapping; see `GatewaySettings`.
        stop: Set by the caller to end it in order.

    Raises:
        ConfigError: A setting cannot be used, or the port is taken.
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
        health = health_aio.HealthServicer()
        _add_services(server, buffer, health=health, budget=config.shard_budget_bytes)
        _bind(server, config.gateway_listen)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        logger.info("listening on %s", config.gateway_listen)
        await _watch_health(health, buffer, stop=stop)
        await health.enter_graceful_shutdown()


def _add_services(server: grpc.aio.Server, buffer: Buffer, *, health: health_aio.HealthServicer, budget: int) -> None:
    ingest = IngestService(buffer, ConflictWatch(buffer, budget=budget), budget=budget)
    control = ControlService(buffer)
    services = DESCRIPTOR.services_by_name
    # No deserialiser and no serialiser: bytes in, bytes out.
    ingest_methods = {
        "Push": grpc.unary_unary_rpc_method_handler(ingest.push),
        "Stream": grpc.stream_stream_rpc_method_handler(ingest.stream),
    }
    control_methods = {"Attach": grpc.stream_stream_rpc_method_handler(control.attach)}
    handlers = (
        grpc.method_handlers_generic_handler(services["Ingest"].full_name, ingest_methods),
        grpc.method_handlers_generic_handler(services["Control"].full_name, control_methods),
    )
    server.add_generic_rpc_handlers(handlers)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)


def _bind(server: grpc.aio.Server, listen: str) -> None:
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise _taken(listen) from error
    if port == 0:
        raise _taken(listen)


def _taken(listen: str) -> ConfigError:
    return ConfigError(
        f"cannot listen on {listen}: the port is taken or the address is not this machine's; "
        "set RANKSCOPE_GATEWAY_LISTEN to another"
    )


async def _watch_health(health: health_aio.HealthServicer, buffer: Buffer, *, stop: asyncio.Event) -> None:
    """Says for every service whether the broker answers, until `stop` is set."""
    names = ("", *(service.full_name for service in DESCRIPTOR.services_by_name.values()))
    while not stop.is_set():
        state = await _health_of(buffer)
        for name in names:
            await health.set(name, state)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), HEALTH_EVERY_S)


async def _health_of(buffer: Buffer) -> health_pb2.HealthCheckResponse.ServingStatus:
    try:
        await buffer.ping()
    except BrokerUnavailable as error:
        logger.warning("not serving: %s", error)
        return health_pb2.HealthCheckResponse.NOT_SERVING
    return health_pb2.HealthCheckResponse.SERVING
