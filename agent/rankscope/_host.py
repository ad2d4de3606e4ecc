"""Facts of this machine and its processes, read from /proc; empty or None where it does not tell."""

import contextlib
import os
import socket
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The id of this boot of the machine; "" where the system has none."""
    with contextlib.suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


def process_space() -> str:
    """Where process ids compare: one boot and one pid namespace; "" where the system does not tell.

    Two containers of one host share the boot, and each has a process 1.
    """
    with contextlib.suppress(OSError):
        return f"{_BOOT_ID.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def node_name() -> str:
    """The host's name: at most 64 bytes, the system's own limit."""
    return socket.gethostname()


def stat_words(stat: Path) -> list[str]:
    """What a process's or thread's `stat` file says behind its name, from the third field on: its state.

    The name, in brackets, may hold spaces and brackets itself, and half a letter: the system cuts it after 15 bytes.

    Raises:
        OSError: It is gone, or the system does not tell.
    """
    return stat.read_bytes().rpartition(b")")[2].decode("ascii").split()


def process_start(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone.

    With the pid it names a process for good: pids are used again.
    """
    try:
        return int(stat_words(Path(f"/proc/{pid}/stat"))[19])
    except OSError:
        return None


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is there and does nothing, as after SIGSTOP or under a debugger."""
    try:
        return stat_words(Path(f"/proc/{pid}/stat"))[0] in {"T", "t"}
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return stat_words(Path(f"/proc/{pid}/stat"))[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:  # too many open files, say: it took the signal
        return True
