"""Small file systems of a test's own, which it can fill."""

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, *, mebibytes: int) -> Generator[Path]:
    """A file system of so many MiB, mounted at `place`; skips the test where mounting is not allowed."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system is not allowed here: a full disk cannot be shown")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is free; the file that does."""
    ballast = disk / "ballast"
    # Written, not allocated at once: others take of it meanwhile.
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4_096)):
            pass
    return ballast
