"""Whose query gets the next handle: keys take turns, and none holds more handles than its share.

Without it one key's slow queries held every handle, and all others waited behind its whole line. A query that has
waited as long as one may run is told so: the one who asked can ask again, and a line never grows without end.
"""

import asyncio
from collections import Counter, deque

from rankscope_query_api.errors import BusyError
from rankscope_query_api.limits import Asker
from rankscope_query_api.settings import Settings

MOST_WAITING = 100
"""Queries of one key that may wait at a time."""


class Turns:
    """The handles that are free, and the lines of those who wait for one. Used on one event loop.

    Args:
        settings: How many handles there are, how many one key may hold, and how long a query may wait.
    """

    def __init__(self, settings: Settings) -> None:
        self._handles = self._free = settings.query_handles
        self._share = settings.query_handles_per_key
        self._patience_s = settings.query_timeout_s
        self._held = Counter[str]()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, asker: Asker) -> None:
        """Returns when a handle is the asker's, who gives it back.

        Raises:
            BusyError: There are too many before it.
        """
        key = asker.key_id
        if self._may_hold(key) and key not in self._lines:
            self._grant(key)
            return
        line = self._lines.setdefault(key, deque())
        if len(line) >= MOST_WAITING:
            raise self._busy(key, f"{len(line)} queries wait already")
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            async with asyncio.timeout(self._patience_s):
                await turn
        except BaseException as error:
            self._leave(key, turn)
            if isinstance(error, TimeoutError):
                raise self._busy(key, f"none came free in {self._patience_s:g} s") from error
            raise

    def give_back(self, asker: Asker) -> None:
        """Lets the next one have the asker's handle."""
        self._free += 1
        self._held -= Counter([asker.key_id])
        self._serve()

    def _may_hold(self, key: str) -> bool:
        # Where no key is asked for, all are one asker: nobody is to be kept from anything.
        return self._free > 0 and (not key or self._held[key] < self._share)

    def _grant(self, key: str) -> None:
        self._free -= 1
        self._held[key] += 1

    def _serve(self) -> None:
        while any(self._serve_first_of(key) for key in tuple(self._lines)):
            pass  # more than one handle may be free: nobody took them where all in line had gone

    def _serve_first_of(self, key: str) -> bool:
        line = self._lines[key]
        # A turn that was cancelled stands in line until its query learns of it.
        turn = next((one for one in line if not one.done()), None)
        if turn is None or not self._may_hold(key):
            return False
        turn.set_result(None)
        self._grant(key)
        self._quit(key, turn)
        if line:
            self._lines[key] = self._lines.pop(key)  # behind the others, who come before its next one
        return True

    def _leave(self, key: str, turn: asyncio.Future[None]) -> None:
        """A query waits no longer; one that was just given a handle hands it on."""
        if turn.done() and not turn.cancelled():
            self.give_back(Asker(key))
            return
        self._quit(key, turn)
        self._serve()

    def _quit(self, key: str, turn: asyncio.Future[None]) -> None:
        line = self._lines[key]
        line.remove(turn)
        if not line:
            del self._lines[key]

    def _busy(self, key: str, what: str) -> BusyError:
        whose = f"the key {key} may hold {min(self._share, self._handles)} of" if key else "all queries share"
        setting = "RANKSCOPE_QUERY_HANDLES_PER_KEY" if key else "RANKSCOPE_QUERY_HANDLES"
        return BusyError(
            f"{whose} the {self._handles} handles of this service to its store, and {what}",
            hint=f"ask again in a moment, or fewer at a time; {setting} sets how many run at a time",
        )
