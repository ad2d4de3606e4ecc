"""Launches the example training on four ranks, as a user would: with torchrun, and nothing else."""

import contextlib
import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rankscope._discovery import Discovery
from rankscope.demo._options import RANKS, DemoOptions, Say
from rankscope.up import DataFolder, UpError, end, tethered

EXAMPLE = "rankscope.examples.train_chars"
STOP_ALLOWANCE_S = 40.0
"""torchrun gives its workers 30 s to end before it kills them."""

LAUNCHER_REPORT = "torch/distributed/elastic/"
"""In the launcher's lines about a failed rank."""

WORDS_SHOWN = 20

LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class TrainingFailedError(UpError):
    """The training ended with an error; the message holds its last words."""

    code = "training_failed"


@dataclass(frozen=True, slots=True)
class Training:
    """One launch of the example.

    Attributes:
        run: its run id.
        options: what the demo was told.
        folder: the data folder.
        server: where its data goes.
        injected: the file into which it writes the faults it has.
    """

    run: str
    options: DemoOptions
    folder: DataFolder
    server: Discovery
    injected: Path

    def finish(self, say: Say) -> None:
        """Run it to its end, passing on what it prints.

        Raises:
            TrainingFailedError: it ended with an error.
        """
        log = self.folder.log("training")
        with self.folder.open_log("training") as noise, self._started(noise) as process:
            for line in _lines_of(process):
                say(f"  {line}")
            status = process.wait()
        if status:
            raise TrainingFailedError(
                f"the training ended with status {status}:\n{_last_words(log)}", hint=f"all it said is in {log}"
            )

    @contextlib.contextmanager
    def _started(self, noise: BinaryIO) -> Generator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            tethered(*self._command()),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=noise,  # torchrun's remarks and one line of `init`: shown only when the training fails
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process, allowance_s=STOP_ALLOWANCE_S)
            if process.stdout:
                process.stdout.close()

    def _command(self) -> list[str]:
        # --local-addr: by default the ranks meet at this machine's name, which a container often cannot resolve.
        launcher = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        options = ["--steps", str(self.options.steps), "--seed", str(self.options.seed)]
        faults = [] if self.options.faults else ["--no-faults"]
        return [
            *(sys.executable, "-m", *launcher, "--nproc-per-node", str(RANKS), "-m", EXAMPLE),
            *(*options, *faults, "--injected-json", str(self.injected)),
        ]

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
        return inherited | {
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "RANKSCOPE_ENDPOINT": self.server.gateway,
            "RANKSCOPE_HOME": str(self.folder.path),
            "RANKSCOPE_RUN_ID": self.run,
            "RANKSCOPE_PROJECT": "default",
            "RANKSCOPE_UPLOAD_MODE": "async",
        }


def new_run_id(options: DemoOptions) -> str:
    """A run id that names the seed and differs each time."""
    return f"demo-{options.seed}-{secrets.token_hex(2)}"


def _lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    for line in process.stdout or ():
        yield line.decode("utf-8", "replace").rstrip()


def _last_words(log: Path) -> str:
    """The end of what the ranks said themselves: the launcher repeats at length that they failed."""
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    own = list(itertools.takewhile(lambda line: LAUNCHER_REPORT not in line, lines))
    return "\n".join((own or lines)[-WORDS_SHOWN:])
