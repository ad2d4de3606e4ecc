"""Programs as users run them: a process of its own, found out and ended within a bound."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 90


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """What the SDK said."""
        return [line for line in self.err.splitlines() if line.startswith("rankscope:")]


def run_program(source: str, home: Path, **environ: str) -> Ended:
    """Run Python source with nothing of this machine's servers or launchers in its environment."""
    return _ended(command_of(source), home, **environ)


def run_file(program: Path, home: Path, **environ: str) -> Ended:
    """Run a program that lies in a file: what it spawns reads it again."""
    return _ended([sys.executable, str(program)], home, **environ)


def _ended(command: list[str], home: Path, **environ: str) -> Ended:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(home, **environ),
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def command_of(source: str) -> list[str]:
    """The command that runs Python source."""
    return [sys.executable, "-c", textwrap.dedent(source)]


def environment(home: Path, **environ: str) -> dict[str, str]:
    """This environment without this machine's servers and launchers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANKSCOPE_", "TORCHELASTIC_"))}
    return {**kept, "RANKSCOPE_HOME": str(home), **environ}
