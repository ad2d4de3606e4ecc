"""Points at which the fault suite ends, stops or delays a process, or makes a call fail.

`RANKSCOPE_FAILPOINT=writer.after_insert:kill` ends the process there; several are parted by commas.
An action is `kill` (SIGKILL), `stop` (SIGSTOP), `fail` (OSError, no space left) or `delay-<ms>`; `@3` behind it
means the third pass and no other. Without the variable a point costs one look at an empty dictionary.
"""

import errno
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

VARIABLE = "RANKSCOPE_FAILPOINT"


@dataclass(slots=True)
class _Point:
    action: str
    on_pass: int
    passes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self) -> bool:
        with self.lock:
            self.passes += 1
            return self.on_pass in (0, self.passes)


def parse(text: str) -> dict[str, _Point]:
    """The points in the variable's text.

    Raises:
        ValueError: a part is not `point:action` or `point:action@pass`.
    """
    points: dict[str, _Point] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = part.partition(":")
        action, _, on_pass = rest.partition("@")
        is_delay = action.startswith("delay-") and action.removeprefix("delay-").isdecimal()
        if not name or not (action in {"kill", "stop", "fail"} or is_delay) or (on_pass and not on_pass.isdecimal()):
            raise ValueError(
                f"{VARIABLE} has {part!r}: write point:kill, :stop, :fail or :delay-<ms>, and @n behind it"
            )
        points[name] = _Point(action, int(on_pass or 0))
    return points


def _from(environ: Mapping[str, str]) -> dict[str, _Point]:
    return parse(environ.get(VARIABLE, ""))


_points = _from(os.environ)


def reach(name: str) -> None:
    """Do what is asked for at this point; nothing where nothing is.

    Args:
        name: Tier and place, such as `writer.after_insert`.

    Raises:
        OSError: `fail` was asked for (ENOSPC).
    """
    if _points and (point := _points.get(name)) is not None and point.is_due():
        _act(point.action, name)


def _act(action: str, name: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "fail":
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (failpoint {name})")
    else:
        time.sleep(int(action.removeprefix("delay-")) / 1e3)
