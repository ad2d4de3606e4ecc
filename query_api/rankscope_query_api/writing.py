"""Who writes large answers: one thread, one after the other, so that small ones are never behind them.

To write 80 MB of JSON takes 4 s. Six such answers in the threads that all share had those taken and the interpreter's
lock divided: the next query, of one row, waited 29 s, and all six stood in memory twice.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.responses import Response

from rankscope_query_api.room import HELD

LARGE_BYTES = 4 * 2**20
"""Of rows in memory: what is less is written in a tenth of a second, and waits for nothing."""


class Writing:
    """The thread of one service that writes its large answers."""

    def __init__(self) -> None:
        self._large = ThreadPoolExecutor(1, thread_name_prefix="rankscope-answer")

    async def written(self, write: Callable[[], Response]) -> Response:
        """The response that `write` makes of the rows that were read for this request; never on the loop.

        Args:
            write: Called once, in a thread; not at all where nobody waits for the answer any more.
        """
        held = HELD.get()
        if held is None or held.held_bytes < LARGE_BYTES:
            return await asyncio.to_thread(write)
        return await asyncio.get_running_loop().run_in_executor(self._large, write)
