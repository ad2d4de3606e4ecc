"""Runs the command line as a user does: a process of its own, its answer and its exit status."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ground.stacks import clean_environ

TIMEOUT_S = 400
"""Bounds a command that hangs. A demo takes 20 s on two idle cores, and ten times that where others use them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)

    @property
    def error(self) -> Any:
        """The one JSON document on stderr."""
        return json.loads(self.stderr)

    @property
    def last_error(self) -> Any:
        """The error of a tier: the last line of stderr, after its log and what gRPC's core says there."""
        return json.loads(self.stderr.splitlines()[-1])


def rankscope(*arguments: str, home: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """`rankscope ARGUMENT...` with its data folder at `home`."""
    return run([sys.executable, "-m", "rankscope", *arguments], home=home, environ=environ)


def without_modules(modules: Sequence[str], *arguments: str, home: Path) -> Answer:
    """`rankscope ARGUMENT...` where some packages are not installed."""
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {list(modules)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {list(modules)!r} else find_spec(name, package)
from rankscope.cli import main
sys.exit(main({list(arguments)!r}))
"""
    return run([sys.executable, "-c", program], home=home)


def run(command: Sequence[str], *, home: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """A command to its end, without a terminal."""
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        env=clean_environ(**{"RANKSCOPE_HOME": str(home), **(environ or {})}),
    )
    return Answer(done.returncode, done.stdout, done.stderr)
