"""Waiting on conditions inside the event loop that makes them true."""

import asyncio
from collections.abc import Callable

TIMEOUT_S = 60.0


async def eventually(condition: Callable[[], bool], *, watched: asyncio.Task[None] | None = None) -> None:
    """Returns once the condition holds.

    Args:
        condition: Asked every 20 ms.
        watched: A task whose failure ends the waiting at once.

    Raises:
        TimeoutError: It did not hold within a minute.
    """
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            if watched is not None and watched.done():
                watched.result()
                raise AssertionError("the service ended before the condition held")
            await asyncio.sleep(0.02)
