"""Compiles the kernel and tries it, beside the training: a program of its own, of the lowest priority.

Run as `python -I -S build.py LIBRARY COMPILER`: it knows the standard library only, so that it starts in 20 ms. The
library is tried in yet another process, since flags that promise too much end in an illegal instruction. It
is written beside and renamed; who comes second waits for the first. What a file should contain is said at its end,
which the loader of programs does not read: one that was damaged is built anew, since mapping it could end a training.
"""

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel") / "table.c"
TRIAL = Path(__file__).with_name("trial.py")

COMMON = ("-std=gnu11", "-O3", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
"""Never -ffast-math: loading the library would set flush-to-zero in the training process."""

SEAL = 32
"""Bytes at the end of a library: the digest of all before them."""

WAYS = (
    ("-march=native", "-fopenmp"),
    ("-mcpu=native", "-fopenmp"),
    ("-fopenmp",),
    ("-march=native",),
    (),
)
"""Flags in the order in which they are tried; without any, a table takes 23 passes over memory and not 4."""


def is_whole(library: Path) -> bool:
    """Whether a library is there, and is what was built."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    return len(content) > SEAL and hashlib.blake2b(content[:-SEAL], digest_size=SEAL).digest() == content[-SEAL:]


def build(library: Path, compiler: str) -> str:
    """Compile the kernel, unless somebody else just has.

    Returns:
        Why there is none; empty: it is there.
    """
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_whole(library):
            return ""
        reason = ""
        for way in WAYS:
            reason = _attempt(library, [compiler, *COMMON, *way])
            if not reason:
                return ""
        return reason


def _attempt(library: Path, command: list[str]) -> str:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        compiling = [*command, str(SOURCE), "-o", str(made), "-lm"]
        for step in (compiling, [sys.executable, "-I", "-S", str(TRIAL), str(made)]):
            done = subprocess.run(step, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines()
                return said[-1] if said else f"{step[0]} ended with {done.returncode}"
        made.chmod(0o600)
        seal = hashlib.blake2b(made.read_bytes(), digest_size=SEAL).digest()
        with made.open("ab") as file:
            file.write(seal)
            file.flush()
            os.fsync(file.fileno())  # what is cut short by a power failure would be mapped, and end a training
        made.rename(library)
    return ""


def _given_up(*_: object) -> None:
    sys.exit("given up")  # on the way out the compiler is ended, and its folder removed


if __name__ == "__main__":
    os.nice(19)
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _given_up)
    sys.exit(build(Path(sys.argv[1]), sys.argv[2]) or 0)
