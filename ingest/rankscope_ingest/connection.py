"""The connection to the broker; the only module that imports redis.

It promises that every write is one Lua script which may be repeated without harm. redis-py's own
retry is off for that reason among others: it sends a plain XADD again when only the answer was
lost (20 calls, 40 entries). Errors of the driver leave here as `BrokerUnavailable`, `BrokerUnfit`
or `Busy`, with the address and what to try.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, cast

import redis.asyncio
import redis.exceptions
from pydantic import SecretStr
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rankscope_ingest.addresses import shown
from rankscope_ingest.errors import BrokerUnavailable, BrokerUnfit, Busy, ConfigError
from rankscope_ingest.scripts import Arg, Script

if TYPE_CHECKING:
    from collections.abc import Awaitable

TIMEOUT_S = 5.0
MAX_CONNECTIONS = 32
"""At once; a call beyond them waits its turn. redis-py's pool raises at the 101st ("Too many connections"), and
its blocking one serves waiters in no order: of 1,000 streams one waited 5 s in vain."""
FULL_RETRY_MS = 500
DISK_RETRY_MS = 1_000
PASSING = ("READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "LOADING", "BUSY ", "NOREPLICAS")
"""How refusals begin that a fail-over or a slow script brings, and that end by themselves."""


class _Client(Protocol):
    """What is called on redis.asyncio.Redis."""

    def execute_command(self, *args: Arg) -> "Awaitable[object]": ...
    async def aclose(self) -> None: ...


class _Link(Protocol):
    """What is called on a connection of redis.asyncio."""

    def on_connect(self) -> "Awaitable[None]": ...


class Connection:
    """Commands and scripts of one broker.

    Args:
        url: redis://, rediss:// or unix://.
        read_timeout_s: Longest wait for an answer; a blocking read adds its own wait.

    Attributes:
        address: What messages call the broker.
        links: Connections opened so far: where it grew, another process may answer under the address.
    """

    def __init__(self, url: SecretStr, *, read_timeout_s: float = TIMEOUT_S) -> None:
        self.address = shown(url)
        self.links = 0
        try:
            client = redis.asyncio.Redis.from_url(
                url.get_secret_value(),
                protocol=2,  # the shapes below are RESP2's
                socket_timeout=read_timeout_s,
                socket_connect_timeout=TIMEOUT_S,
                socket_read_size=2**18,  # payloads are 50-250 kB: fewer reads
                retry=Retry(NoBackoff(), 0),
                redis_connect_func=self._connected,
            )
        except ValueError as error:
            raise ConfigError(f"RANKSCOPE_REDIS_URL is {self.address!r}: {error}") from error
        self._client = cast("_Client", client)
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def close(self) -> None:
        """Closes every connection."""
        await self._client.aclose()

    async def _connected(self, link: _Link) -> None:
        self.links += 1
        await link.on_connect()

    async def info(self) -> dict[str, str]:
        """What the broker says of itself."""
        answer = cast("Mapping[str, object]", await self.command("INFO"))
        return {name: str(value) for name, value in answer.items()}

    async def command(self, *args: Arg) -> object:
        """Runs one command and returns what the broker answers."""
        async with self._mapped(), self._turn():
            return await self._client.execute_command(*args)

    async def run(self, script: Script, keys: Sequence[str], *args: Arg) -> object:
        """Runs a script; it is sent whole only where the broker does not know it."""
        async with self._mapped(), self._turn():
            try:
                return await self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:  # nothing ran: the broker is new or was restarted
                return await self._client.execute_command("EVAL", script.source, len(keys), *keys, *args)

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        """Waits for a connection, first come, first served."""
        async with asyncio.timeout(TIMEOUT_S):
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    @asynccontextmanager
    async def _mapped(self) -> AsyncGenerator[None]:
        try:
            yield
        except redis.exceptions.OutOfMemoryError as error:
            raise Busy(
                f"Redis at {self.address} is at maxmemory; is the writer running?", retry_after_ms=FULL_RETRY_MS
            ) from error
        except (TimeoutError, redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            raise BrokerUnavailable(
                f"Redis at {self.address} did not answer ({error}); is it running, and is RANKSCOPE_REDIS_URL right?"
            ) from error
        except redis.exceptions.RedisError as error:
            if str(error).startswith("MISCONF"):
                raise Busy(
                    f"Redis at {self.address} cannot write to its disk and takes nothing until it can: "
                    f"free space there, or see its log ({error})",
                    retry_after_ms=DISK_RETRY_MS,
                ) from error
            if str(error).startswith(PASSING):
                raise BrokerUnavailable(f"Redis at {self.address} takes no commands now: {error}") from error
            raise BrokerUnfit(f"Redis at {self.address} refused a command: {error}") from error
