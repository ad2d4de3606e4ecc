"""The standard gRPC health service: whether the broker answers, for every service of the gateway."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Protocol, cast

import grpc.aio
from grpc_health.v1.health_pb2 import HealthCheckResponse

from rankscope_ingest.errors import BrokerError, Busy

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0


class Pinged(Protocol):
    """The broker as this module needs it."""

    async def ping(self) -> None:
        """Returns when the broker answers. Raises BrokerError when it does not, Busy when it writes nothing."""
        ...


class _Servicer(Protocol):
    """What is called on the health package's asyncio servicer."""

    async def set(self, service: str, status: int) -> None: ...
    async def enter_graceful_shutdown(self) -> None: ...


class Health:
    """Says how the gateway is.

    Args:
        server: Gets the service.
        names: The services it speaks for.
    """

    def __init__(self, server: grpc.aio.Server, names: Sequence[str]) -> None:
        # By name, because the package's type stubs know neither `aio` nor the generated services.
        self._servicer = cast("_Servicer", import_module("grpc_health.v1.health").aio.HealthServicer())
        import_module("grpc_health.v1.health_pb2_grpc").add_HealthServicer_to_server(self._servicer, server)
        self._names = ("", *names)

    async def watch(self, broker: Pinged, stop: asyncio.Event) -> None:
        """Follows the broker until `stop` is set, then says that no new call is wanted."""
        status = HealthCheckResponse.UNKNOWN
        while not stop.is_set():
            status = await _looked(broker, before=status)
            for name in self._names:
                await self._servicer.set(name, status)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)
        await self._servicer.enter_graceful_shutdown()


async def _looked(broker: Pinged, *, before: int) -> int:
    """How the broker is now; a change is said once, however long it lasts."""
    try:
        await broker.ping()
    except (BrokerError, Busy) as error:
        if before != HealthCheckResponse.NOT_SERVING:
            logger.warning("not serving: %s", error)
        return HealthCheckResponse.NOT_SERVING
    if before == HealthCheckResponse.NOT_SERVING:
        logger.warning("serving again")
    return HealthCheckResponse.SERVING
