"""Where data of this machine's user lies; works without HOME and without a TTY."""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rankscope.errors import ConfigError


def data_folder(environ: Mapping[str, str]) -> Path:
    """The data folder: `RANKSCOPE_HOME`, else below `XDG_DATA_HOME`, else below HOME, else a temporary one.

    The temporary folder is named by uid and made with mode 0700; the others are not made here.

    Args:
        environ: The environment.

    Raises:
        ConfigError: the temporary folder is there and another user's, or open to others.
    """
    own = environ.get("RANKSCOPE_HOME")
    if own:
        return Path(own)
    shared = environ.get("XDG_DATA_HOME")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "rankscope"
    home = environ.get("HOME")
    if home and Path(home).is_absolute() and os.access(home, os.W_OK | os.X_OK):
        return Path(home) / ".local" / "share" / "rankscope"
    return temporary_folder()


def temporary_folder() -> Path:
    """A folder of this user's alone in the system's temporary one; made when it is not there.

    Raises:
        ConfigError: it is there and another user's, or open to others.
    """
    folder = Path(tempfile.gettempdir()) / f"rankscope-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{folder} is not a folder of yours alone (mode 0700), and there is no HOME: "
            "set RANKSCOPE_HOME to a folder of your own"
        )
    return folder
