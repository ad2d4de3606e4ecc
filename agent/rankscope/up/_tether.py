"""Run a program that ends when the process that started it ends, however that ends.

`python -I -S _tether.py PARENT_PID PROGRAM ARGUMENT...` asks the kernel for a SIGTERM at the parent's death and
becomes the program. The request survives `exec`, so the program needs to know nothing of it, and it is made in
the child, since a `preexec_fn` beside chDB's threads can hang. Run by its path, it imports nothing of the package:
15 ms, not 200.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Become `arguments[1:]`, tied to the process `arguments[0]`.

    Raises:
        OSError: the kernel refused, or the program cannot be run.
    """
    parent = int(arguments[0])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM)):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(0)  # it died before the kernel was asked
    os.execvp(arguments[1], arguments[1:])  # noqa: S606 - becoming the program is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
