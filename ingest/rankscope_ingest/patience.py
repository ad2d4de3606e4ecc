"""The one retry layer of the writer: the same call again, for as long as it takes.

A store or a broker that does not answer, is full or has no space on its disk is waited for: ending
would not mend it, and what was accepted stays in the broker meanwhile.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from rankscope_ingest.errors import BrokerUnavailable, Busy, StoreUncertain

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0

Result = TypeVar("Result")


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Repeats a call that failed for an outside reason, with jittered waits, until it succeeds.

    Args:
        call: Safe to repeat.

    Returns:
        What the call returned.
    """
    waits = stamina.retry_context(
        on=(BrokerUnavailable, Busy, StoreUncertain),
        attempts=None,
        timeout=None,
        wait_initial=FIRST_WAIT_S,
        wait_max=LONGEST_WAIT_S,
    )
    async for attempt in waits:
        with attempt:
            return await call()
    raise AssertionError("an endless retry ended")


def _say(details: RetryDetails) -> None:
    """Logs the first, second, fourth … failure of a call, so that a long outage fills no disk."""
    if details.retry_num & (details.retry_num - 1) == 0:
        logger.warning("failure %s of a call that is repeated: %s", details.retry_num, details.caused_by)


# stamina's own choice would print through structlog, also where nobody configured it.
set_on_retry_hooks([_say])
