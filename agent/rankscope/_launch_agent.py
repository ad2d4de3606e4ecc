"""Start a program that outlives whoever started it, and is nobody's child.

`python -I -S _launch_agent.py LOG PROGRAM ARGUMENT...` becomes the leader of a session of its own, so that signals
to the training's process group pass it by; forks, so that the trainer has no child that it might wait for, or
leave as a zombie; and becomes the program there, with its output in the log. Run by its path, it imports nothing
of the package: 15 ms, not 200.
"""

import os
import signal
import sys

LOG_BYTES = 4 * 1024 * 1024
"""A log that is longer when a program starts is begun anew."""


def main(arguments: list[str]) -> None:
    """Start `arguments[1:]` with its output in the file `arguments[0]`; the caller's process ends.

    Raises:
        OSError: the log cannot be written, or the program cannot be run.
    """
    log = os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    if os.fstat(log).st_size > LOG_BYTES:
        os.ftruncate(log, 0)
    os.setsid()
    if os.fork():
        os._exit(0)
    # What the trainer ignores or blocks would be ignored here, too: exec keeps it.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir("/")  # nobody should find their disk busy because of us
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - becoming the program is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
