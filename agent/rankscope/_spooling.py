"""Where this process's spool lies: in the folder asked for, or on a local disk where the data folder is on none.

Promises: a folder that somebody named is used or refused with the reason; the default one never keeps a training
from recording: home folders of clusters are often on NFS, where a spool must not be.
"""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rankscope._home import temporary_folder
from rankscope._identity import Identity
from rankscope._settings import Settings
from rankscope.errors import ConfigError
from rankscope.spool import (
    SpoolError,
    SpoolHead,
    SpoolWriter,
    Trust,
    default_bytes,
    file_system_of,
    living,
    refuse_elsewhere,
)

MOUNTS = Path("/proc/self/mountinfo")

IN_MEMORY = frozenset({"ramfs", "tmpfs"})
MEMORY_BYTES = 256 * 1024 * 1024
"""Bound of a spool that lies in the node's memory, unless somebody gave one: many systems keep /tmp there."""

LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Where launchers say how many ranks this node has; Slurm says it of all nodes, as `8(x4),2`."""


class Rooted(NamedTuple):
    """The settings with a folder that can hold spools, and what a person should know of that, or ""."""

    settings: Settings
    warning: str


def find_root(settings: Settings) -> Rooted:
    """Find the folder of the node's spools, the same for all processes of the node.

    Args:
        settings: This process's.

    Raises:
        ConfigError: the folder that was named cannot hold one.
        SpoolError: neither the data folder nor the system's temporary folder can.
    """
    try:
        _check_root(settings.spool_root, settings)
    except SpoolError as error:
        if settings.offline_dir is not None:
            raise ConfigError(f"offline_dir can hold nothing: {error}") from error
        if settings.spool is not None:
            raise ConfigError(str(error)) from error
        elsewhere = replace(settings, spool=_temporary_root())
        _check_root(elsewhere.spool_root, settings)
        memory = f", in memory, {MEMORY_BYTES >> 20} MiB a process at most" if _is_memory(elsewhere.spool_root) else ""
        return Rooted(elsewhere, f"{error}. Until then batches lie in {elsewhere.spool}{memory}")
    return Rooted(settings, "")


def make_spool(settings: Settings, identity: Identity, *, sends_itself: bool = False) -> SpoolWriter:
    """Make this process's spool.

    It says where to send it only if somebody said so here: a server of one's own, found by its file, may
    listen elsewhere when it comes back.

    Args:
        settings: This process's, with a root that was found.
        identity: Whose spool it is.
        sends_itself: Whether this process will send it: the node's agent leaves it alone then, from the start.

    Raises:
        SpoolError: it cannot be made, though it could a moment ago.
    """
    bound = settings.spool_bytes
    if bound is None:
        bound = default_bytes(settings.spool_root, sharers=_sharers(settings.spool_root))
        bound = min(MEMORY_BYTES, bound) if _is_memory(settings.spool_root) else bound
    return SpoolWriter.create(
        settings.spool_root,
        SpoolHead.of(
            identity,
            endpoints=settings.endpoint,
            trust=_trust(settings),
            created_ns=time.time_ns(),
            sends_itself=sends_itself,
        ),
        key=settings.key,
        max_bytes=bound,
        fsync_each=settings.spool_fsync == "always",
        any_file_system=settings.spool_any_fs,
    )


def _trust(settings: Settings) -> Trust:
    """How the gateways are reached, for whoever sends: the agent may be one that another training started."""
    files = [str(path.absolute()) if path else "" for path in (settings.tls_ca, settings.tls_cert, settings.tls_key)]
    return Trust(files[0], files[1], files[2], insecure=settings.insecure)


def discard(writer: SpoolWriter) -> None:
    """Undo `make_spool`: nothing was appended, and nothing will be."""
    writer.close()
    shutil.rmtree(writer.folder, ignore_errors=True)


def _check_root(root: Path, settings: Settings) -> None:
    if not settings.spool_any_fs:
        refuse_elsewhere(root, _mounts())
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(root, os.W_OK | os.X_OK) or os.statvfs(root).f_flag & os.ST_RDONLY:
            raise PermissionError(f"{root} cannot be written")
    except OSError as error:
        raise SpoolError(
            f"no spool can be made in {root}: {error.strerror or error}; "
            "name a folder that you can write with RANKSCOPE_SPOOL"
        ) from error


def _sharers(root: Path) -> int:
    """How many processes of this node spool here: as its launcher says, and with those that came before this one.

    Where no launcher says it, ranks that count who came before them take less and less: 8 of them 2.7 fifths of what
    is free, and not 8.
    """
    said = [int(size) for name in LOCAL_SIZES if (size := os.environ.get(name, "")).isdecimal()]
    return max([1 + living(root), *said[:1]])


def _is_memory(root: Path) -> bool:
    return file_system_of(root.resolve(), _mounts())[0] in IN_MEMORY


def _mounts() -> str:
    return MOUNTS.read_text() if MOUNTS.exists() else ""


def _temporary_root() -> Path:
    try:
        return temporary_folder() / "spool"
    except (ConfigError, OSError) as error:
        raise SpoolError(f"no spool can be made: {error}; name a local folder with RANKSCOPE_SPOOL") from error
