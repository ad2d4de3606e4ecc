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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANKSCOPE_", "TORCHELASTIC_"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        env={**kept, "RANKSCOPE_HOME": str(home), **environ},
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
