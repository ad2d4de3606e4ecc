"""What goes wrong again and again is said once a minute, with how often.

Eight ranks that a gateway denies say one line, not eight every five seconds.
"""

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("rankscope.agent")

AGAIN_S = 60.0
MAX_KINDS = 256


class Complaints:
    """Says faults, each kind at most once a minute.

    Args:
        say: Where lines go.
        monotonic: A clock in seconds.
    """

    def __init__(
        self, say: Callable[[str], object] = logger.warning, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}

    def tell(self, text: str, *, about: str) -> None:
        """Say a fault, unless its kind was said within the last minute.

        Args:
            text: The line; no secret may be in it.
            about: Its kind.
        """
        now = self._monotonic()
        with self._lock:
            at, kept_back = self._said.get(about, (float("-inf"), 0))
            if now - at < AGAIN_S:
                self._said[about] = (at, kept_back + 1)
                return
            if len(self._said) >= MAX_KINDS:
                self._said.clear()
            self._said[about] = (now, 0)
        self._say(f"{text} ({kept_back} times more in the last minutes)" if kept_back else text)
