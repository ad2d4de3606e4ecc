"""Lets the node's agent look at the stacks of this process, where the system asks the process for that.

Linux's Yama, as Ubuntu and others have it by default, lets only ancestors look at a process, and the agent is none:
it outlives its trainers. So a process names the agent as the one that may. Nothing else changes, and where Yama is not
or is told otherwise nothing is done.
"""

import ctypes
import socket
import struct
from contextlib import suppress
from pathlib import Path

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
RESTRICTED = "1"
"""Yama's value for: ancestors, and whom the process names."""

SET_PTRACER = 0x59616D61
_CREDENTIALS = struct.Struct("iII")


def may_look(pid: int, *, yama: Path = YAMA) -> bool:
    """Let a process and its children look at this one's stacks; whether that had to be said, and was.

    Args:
        pid: Who may.
        yama: What the system asks for.
    """
    with suppress(OSError, AttributeError, ValueError):
        if pid > 0 and yama.read_text().strip() == RESTRICTED:
            return ctypes.CDLL(None).prctl(SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0) == 0
    return False


def peer_of(connection: socket.socket) -> int:
    """The process at the other end of a Unix socket; 0: not known."""
    with suppress(OSError, struct.error):
        said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(said)[0])
    return 0
