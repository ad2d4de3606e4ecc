"""A clock that a test moves, for one process of ours: `python -m tests.system.clocks FILE PROGRAM ...`.

PROGRAM is `source` or a tier's name. Every reading of the wall clock adds what FILE holds at that moment; where it
holds a rate, too, the wall clock and the monotonic one run too fast by that. Processes that follow one file are of one
node, and have one clock. The functions are replaced before anything of ours is imported, so that no module keeps the
real ones.
"""

import os
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path

WIDTH = 64
MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with a clock.

    Attributes:
        ahead_ns: How far the wall clock is ahead, at the beginning.
        ppm: How much too fast both clocks run, in parts in a million.
        since_ns: The beginning, on the real monotonic clock.
    """

    ahead_ns: int = 0
    ppm: int = 0
    since_ns: int = 0

    @classmethod
    def read(cls, text: str) -> "Wrong":
        """What a file says; an empty one says nothing."""
        return cls(*map(int, text.split()))

    def write(self) -> str:
        """The same as text."""
        return f"{self.ahead_ns} {self.ppm} {self.since_ns}".ljust(WIDTH)

    def gained_ns(self, real_mono_ns: int) -> int:
        """How far the clocks are ahead by running too fast."""
        return (real_mono_ns - self.since_ns) * self.ppm // MILLION

    def true_ns(self, told_ns: int) -> int:
        """The real time of one that the wrong wall clock told, ns since the epoch."""
        begin_ns = self.since_ns + time.time_ns() - time.monotonic_ns()
        return begin_ns + (told_ns - self.ahead_ns - begin_ns) * MILLION // (MILLION + self.ppm)


def shift(file: Path) -> None:
    """Lets this process's clocks follow the file."""
    held = os.open(file, os.O_RDONLY)
    real_wall, real_wall_ns, real_mono, real_mono_ns = time.time, time.time_ns, time.monotonic, time.monotonic_ns

    def wrong() -> Wrong:
        return Wrong.read(os.pread(held, WIDTH, 0).decode())

    def wall_ns() -> int:
        found = wrong()
        return real_wall_ns() + found.ahead_ns + found.gained_ns(real_mono_ns())

    def wall() -> float:
        found = wrong()
        return real_wall() + (found.ahead_ns + found.gained_ns(real_mono_ns())) / 10**9

    def mono_ns() -> int:
        now_ns = real_mono_ns()
        return now_ns + wrong().gained_ns(now_ns)

    def mono() -> float:
        return real_mono() + wrong().gained_ns(real_mono_ns()) / 10**9

    time.time, time.time_ns, time.monotonic, time.monotonic_ns = wall, wall_ns, mono, mono_ns


def move(file: Path, seconds: float = 0, *, ppm: int = 0) -> Wrong:
    """Moves the clock of every process that follows the file, at once; a rate is given before any of them starts."""
    wrong = Wrong(round(seconds * 10**9), ppm, time.monotonic_ns())
    held = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    os.pwrite(held, wrong.write().encode(), 0)
    os.close(held)
    return wrong


if __name__ == "__main__":
    shift(Path(sys.argv[1]))
    is_source = sys.argv[2] == "source"
    sys.argv = sys.argv[2:] if is_source else ["rankscope", *sys.argv[2:]]
    runpy.run_module("tests.system.sources" if is_source else "rankscope", run_name="__main__", alter_sys=True)
