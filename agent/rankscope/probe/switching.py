"""Which configuration the next step is captured by: one that was asked for here, or written into a file.

A change takes effect when the first step that is not before its `from_step` begins. Told early enough to all
ranks, by a file that all of them can read for one, they change at the same step without speaking to each other.
"""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple, cast

from rankscope.errors import ConfigError
from rankscope.probe.configuration import CaptureConfiguration, parsed

logger = logging.getLogger(__name__)

LOOKED_AT_EVERY_NS = 1_000_000_000
"""How long the file is not looked at again. A look is 2 µs on a disk of one's own, and may be much on a network's."""

MOST_BYTES = 2**20
"""Of a file; a configuration with as many breakpoints as there may be has a tenth of them."""


class Order(NamedTuple):
    """A configuration, and the first step it holds for; None: the next that begins."""

    configuration: CaptureConfiguration
    from_step: int | None


def read_order(text: str) -> Order:
    """The order in a file: a configuration as `as_json` writes it, beside it perhaps `from_step`.

    Raises:
        ConfigError: It is none; says what is wrong.
    """
    members = parsed(text)
    from_step: object = None
    if isinstance(members, dict):
        members = cast("dict[str, object]", members)
        from_step = members.pop("from_step", None)
    if from_step is not None and (not isinstance(from_step, int) or isinstance(from_step, bool) or from_step < 0):
        raise ConfigError(
            f"from_step is {from_step!r}; write the number of the first step that is captured so, or null"
        )
    return Order(CaptureConfiguration.from_members(members), from_step)


def _text_of(file: Path, found: os.stat_result) -> str:
    """What a file says; training must wait for nobody to write into a pipe, and read nothing that does not end.

    Raises:
        ConfigError: It is no file, or no configuration is so long.
        OSError: It cannot be read.
    """
    # Looked at before it is opened, which alone may do something to a device; and opened so that nothing waits.
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'no file')}; write the JSON into a file")
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        text = opened.read(MOST_BYTES + 1) if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else b""
    if len(text) > MOST_BYTES:
        raise ConfigError(f"it has more than {MOST_BYTES:,} bytes, and no configuration is so long")
    return text.decode("utf-8")


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class Switch:
    """The configurations that were asked for and do not hold yet.

    Args:
        file: Where another process writes an order; need not be there. None: nowhere.
        mono_ns: Monotonic clock.
    """

    def __init__(self, file: Path | None, mono_ns: Callable[[], int]) -> None:
        self._file = file
        self._mono_ns = mono_ns
        self._lock = Lock()
        self._asked: list[Order] = []
        self._written: Order | None = None
        self._next_look_ns = 0
        self._seen: tuple[int, ...] | None = None
        self._complaint = ""

    def ask(self, configuration: CaptureConfiguration, from_step: int | None) -> None:
        """Ask for a configuration; from any thread. Of those that are due at a step, the one asked for last holds."""
        with self._lock:
            self._asked.append(Order(configuration, from_step))

    def due(self, step: int) -> CaptureConfiguration | None:
        """The configuration to change to, now that a step begins; None: go on as before."""
        if self._file is not None and self._mono_ns() >= self._next_look_ns:
            self._look(self._file, step)
        if not self._asked:
            return None
        with self._lock:
            due = [order for order in self._asked if order.from_step is None or order.from_step <= step]
            self._asked = [order for order in self._asked if order not in due]
        return due[-1].configuration if due else None

    def _look(self, file: Path, step: int) -> None:
        """Take the order from the file, if it is another; one that cannot be read changes nothing, and is said once.

        The one before is forgotten if it does not hold yet: another rank may never have seen it.
        """
        self._next_look_ns = self._mono_ns() + LOOKED_AT_EVERY_NS
        try:
            found = os.stat(file)  # noqa: PTH116 - a Path would be made to text again, in the training thread
        except OSError:
            return  # it is not there yet, or no more
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen == self._seen:
            return
        try:
            order = read_order(_text_of(file, found))
        except (ConfigError, OSError, UnicodeError) as error:
            self._complain(f"{file} changes nothing: {error}")
            return
        self._seen, self._complaint = seen, ""
        if order.from_step is not None and order.from_step < step:
            logger.warning(
                "%s asks for another capture from step %d on, which was before step %d: it holds from here on, "
                "on other ranks perhaps from another step; name a later one",
                file,
                order.from_step,
                step,
            )
        with self._lock:
            self._asked = [*(asked for asked in self._asked if asked is not self._written), order]
        self._written = order

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            logger.warning("%s", text)
