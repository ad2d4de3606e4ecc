"""A wall clock that a test moves, for one process of ours: `python -m tests.system.clocks FILE PROGRAM ...`.

PROGRAM is `source` or a tier's name. Every reading of the wall clock adds the seconds that FILE holds at that
moment; the monotonic clock goes on as it does. It is replaced before anything of ours is imported, so that no module
keeps the real one.
"""

import os
import runpy
import sys
import time
from pathlib import Path

DIGITS = 16


def shift(file: Path) -> None:
    """Lets this process's wall clock follow the file."""
    held = os.open(file, os.O_RDONLY)
    real, real_ns = time.time, time.time_ns

    def seconds() -> int:
        return int(os.pread(held, DIGITS, 0) or 0)

    def shifted() -> float:
        return real() + seconds()

    def shifted_ns() -> int:
        return real_ns() + seconds() * 10**9

    time.time, time.time_ns = shifted, shifted_ns


def move(file: Path, seconds: int) -> None:
    """Moves the clock of every process that follows the file, at once."""
    held = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    os.pwrite(held, f"{seconds:>{DIGITS}}".encode(), 0)
    os.close(held)


if __name__ == "__main__":
    shift(Path(sys.argv[1]))
    is_source = sys.argv[2] == "source"
    sys.argv = sys.argv[2:] if is_source else ["rankscope", *sys.argv[2:]]
    runpy.run_module("tests.system.sources" if is_source else "rankscope", run_name="__main__", alter_sys=True)
