"""Where a spool may lie: on a disk of this machine.

Over a network a full or absent server stops whoever writes, and locks of other hosts are not always seen: a spool
there would hold training up. The mount table says what a path lies on.
"""

import shutil
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

NOT_LOCAL = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"),
    }
)
LOCAL_FUSE = "fuse.fuse-overlayfs"
"""The root of containers that run without root, on a disk of the machine; other FUSE file systems may be anything."""

MAX_DEFAULT = 8 * 1024**3
FREE_PARTS = 5


def file_system_of(path: Path, mounts: str) -> tuple[str, str]:
    """The file system that a path lies on.

    Args:
        path: Absolute; it need not exist.
        mounts: The text of `/proc/self/mountinfo`.

    Returns:
        Its type and where it is mounted; both empty when no line covers the path.
    """
    best, kind = Path("/.."), ""
    for line in mounts.splitlines():
        left, parted, right = line.partition(" - ")
        fields = left.split()
        if not parted or len(fields) < 5 or not right.split():
            continue
        mount = Path(_unescaped(fields[4]))
        # A later line lies over an earlier one of the same place.
        if path.is_relative_to(mount) and (not kind or len(mount.parts) >= len(best.parts)):
            best, kind = mount, right.split()[0]
    return (kind, str(best)) if kind else ("", "")


def is_local(kind: str) -> bool:
    """Whether a type of file system is one of this machine's own disks; one that is not known is."""
    return kind == LOCAL_FUSE or (kind not in NOT_LOCAL and not kind.startswith("fuse."))


def default_bytes(root: Path, *, sharers: int = 1) -> int:
    """The bound of a spool that nobody gave one: 8 GiB or its part of a fifth of what is free, whichever is less.

    Args:
        root: Where spools lie; it need not exist.
        sharers: Processes of the node that spool there, this one too, at least 1.
    """
    place = root.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return min(MAX_DEFAULT, shutil.disk_usage(place).free // FREE_PARTS // sharers)


def _unescaped(text: str) -> str:
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
