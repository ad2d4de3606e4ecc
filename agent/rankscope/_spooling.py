"""Where this process's spool lies: in the folder asked for, or on a local disk where the data folder is on none.

Promises: a folder that somebody named is used or refused with the reason; the default one never keeps a training
from recording: home folders of clusters are often on NFS, where a spool must not be.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rankscope._home import temporary_folder
from rankscope._identity import Identity
from rankscope._settings import Settings
from rankscope.errors import ConfigError
from rankscope.spool import SpoolError, SpoolHead, SpoolWriter


class Spooled(NamedTuple):
    """A spool that was made: it, the settings with its root, and what a person should know of that, or ""."""

    writer: SpoolWriter
    settings: Settings
    warning: str


def make_spool(settings: Settings, identity: Identity) -> Spooled:
    """Make this process's spool.

    It says where to send it only if somebody said so here: a server of one's own, found by its file, may
    listen elsewhere when it comes back.

    Args:
        settings: This process's.
        identity: Whose spool it is.

    Raises:
        ConfigError: the folder that was named cannot hold one.
        SpoolError: neither the data folder nor the system's temporary folder can.
    """
    head = SpoolHead.of(identity, endpoints=settings.endpoint, created_ns=time.time_ns())
    try:
        return Spooled(_make(settings, head), settings, "")
    except SpoolError as error:
        if settings.spool is not None:
            raise ConfigError(str(error)) from error
        elsewhere = replace(settings, spool=_temporary_root())
        warning = f"{error}. Until then batches lie in {elsewhere.spool}"
        return Spooled(_make(elsewhere, head), elsewhere, warning)


def _make(settings: Settings, head: SpoolHead) -> SpoolWriter:
    return SpoolWriter.create(
        settings.spool_root,
        head,
        key=settings.key,
        max_bytes=settings.spool_bytes,
        fsync_each=settings.spool_fsync == "always",
        any_file_system=settings.spool_any_fs,
    )


def _temporary_root() -> Path:
    try:
        return temporary_folder() / "spool"
    except (ConfigError, OSError) as error:
        raise SpoolError(f"no spool can be made: {error}; name a local folder with RANKSCOPE_SPOOL") from error
