"""How to call rankscope again from where it was called: a command that is shown can be pasted and works.

The program may be in an environment that is not on PATH (`make demo`), and data may lie where the next shell would
not look: make gives its commands a HOME where there is none.
"""

import os
import pwd
import shlex
import shutil
import sys
from pathlib import Path

from rankscope._home import data_folder
from rankscope.up._folder import DataFolder

PROGRAM = "rankscope"


def call(folder: DataFolder, *words: str) -> str:
    """A command line for a shell that has nothing of this process's environment but its PATH.

    Args:
        folder: the data folder that it should use.
        words: subcommand and arguments.
    """
    home = [] if is_usual(folder) else ["--home", str(folder.path)]
    return f"{program()} {shlex.join([*words, *home])}"


def program() -> str:
    """What starts this rankscope: its name where PATH leads to it, else its path, else Python with `-m`."""
    beside = Path(sys.executable).parent / PROGRAM
    if not beside.is_file():
        return f"{shlex.quote(sys.executable)} -m {PROGRAM}"
    found = shutil.which(PROGRAM)
    return PROGRAM if found and Path(found).samefile(beside) else shlex.quote(str(beside))


def is_usual(folder: DataFolder) -> bool:
    """Whether a new login of this user, with no variable set, would take this folder."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container may run as a number that has no name
        home = ""
    return data_folder({"HOME": home}).absolute() == folder.path
