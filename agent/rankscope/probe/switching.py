"""Which configuration the next step is captured by: one that was asked for here, or written into a file.

A change takes effect when the first step that is not before its `from_step` begins. Told early enough to all
ranks, by a file that all of them can read for one, they change at the same step without speaking to each other.
"""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

from rankscope.errors import ConfigError
from rankscope.probe.configuration import CaptureConfiguration

logger = logging.getLogger(__name__)

LOOKED_AT_EVERY_NS = 1_000_000_000
"""How long the file is not looked at again. A look is 2 µs on a disk of one's own, and may be much on a network's."""


class Order(NamedTuple):
    """A configuration, and the first step it holds for; None: the next that begins."""

    configuration: CaptureConfiguration
    from_step: int | None


def read_order(text: str) -> Order:
    """The order in a file: a configuration as `as_json` writes it, beside it perhaps `from_step`.

    Raises:
        ConfigError: It is none; says what is wrong.
    """
    try:
        members = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"a capture configuration is a JSON object: {error}") from error
    from_step: object = None
    if isinstance(members, dict):
        found = cast("dict[str, object]", members)
        from_step = found.pop("from_step", None)
    if from_step is not None and (not isinstance(from_step, int) or isinstance(from_step, bool) or from_step < 0):
        raise ConfigError(
            f"from_step is {from_step!r}; write the number of the first step that is captured so, or null"
        )
    return Order(CaptureConfiguration.from_json(json.dumps(members)), from_step)


class Switch:
    """The configurations that were asked for and do not hold yet.

    Args:
        file: Where another process writes an order; need not be there. None: nowhere.
        mono_ns: Monotonic clock.
    """

    def __init__(self, file: Path | None, mono_ns: Callable[[], int]) -> None:
        self._file = file
        self._mono_ns = mono_ns
        self._asked: tuple[Order, ...] = ()
        self._next_look_ns = 0
        self._seen: tuple[int, ...] | None = None
        self._complaint = ""

    def ask(self, configuration: CaptureConfiguration, from_step: int | None) -> None:
        """Ask for a configuration; from any thread. Of those that are due at a step, the one asked for last holds."""
        self._asked = (*self._asked, Order(configuration, from_step))

    def due(self, step: int) -> CaptureConfiguration | None:
        """The configuration to change to, now that a step begins; None: go on as before."""
        if self._file is not None and self._mono_ns() >= self._next_look_ns:
            self._look(self._file, step)
        asked = self._asked
        if not asked:
            return None
        due = [order for order in asked if order.from_step is None or order.from_step <= step]
        # What was asked for meanwhile, by another thread, stays.
        self._asked = tuple(order for order in self._asked if order not in due)
        return due[-1].configuration if due else None

    def _look(self, file: Path, step: int) -> None:
        """Take the order from the file, if it is another; one that cannot be read changes nothing, and is said once."""
        self._next_look_ns = self._mono_ns() + LOOKED_AT_EVERY_NS
        try:
            found = os.stat(file)  # noqa: PTH116 - a Path would be made to text again, in the training thread
        except OSError:
            return  # it is not there yet, or no more
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen == self._seen:
            return
        try:
            order = read_order(file.read_text("utf-8"))
        except (ConfigError, OSError, UnicodeError) as error:
            self._complain(f"{file} changes nothing: {error}")
            return
        self._seen, self._complaint = seen, ""
        if order.from_step is not None and order.from_step < step and step > 0:
            logger.warning(
                "%s asks for another capture from step %d on, which was before step %d: it holds from here on, "
                "on other ranks perhaps from another step; name a later one",
                file,
                order.from_step,
                step,
            )
        self.ask(*order)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            logger.warning("%s", text)
