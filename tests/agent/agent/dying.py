"""A real trainer that opens spans and is killed, and what it leaves in its spool."""

import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rankscope.spool import SpoolReader, spools
from rankscope.testing import rows_of
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.programs import command_of, environment
from tests.agent.spooled import rows_in
from tests.ground.processes import wait_until

TRAINING = """
import sys
import rankscope
from rankscope._left_open import LeftOpen
run = rankscope.init("chars", run_id="r", quiet=True, rank=3, world_size=4)
with run.trace("ended first"):
    pass
episode = run.trace("episode", "rollout", attributes={"model": "m7", "turn": 4})
episode.__enter__()
tool = run.start_span("tool", "tool")
late = run.span("ends late")
late.__enter__()
step = run.step(7)
step.__enter__()
print("open", flush=True)
for line in sys.stdin:
    if line == "end late\\n":
        late.__exit__(None, None, None)
    if line == "write no more\\n":  # as if it died between a batch and the file
        LeftOpen.is_due = lambda *_: False
    if line == "finish\\n":
        rankscope.finish()
    print("done", flush=True)
"""

OPEN = {"episode", "tool", "step", "ends late"}


class Dying:
    """The trainer, until it is killed.

    Args:
        home: Its data folder; its spools lie in `spool` there.
        source: What it runs: it says a line once all is open, and one for each line that it reads.
        environ: What goes into its environment.
    """

    def __init__(self, home: Path, source: str, environ: Mapping[str, str]) -> None:
        self.root = home / "spool"
        self._process = subprocess.Popen(
            command_of(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(home, **environ),
        )
        self.heard()

    def heard(self) -> str:
        """The next line it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def say(self, line: str) -> None:
        """Have it do something; returns once it has."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self.heard() == "done\n"

    def await_left(self, names: set[str]) -> None:
        """Returns once these spans are among what it would leave open."""
        wait_until(lambda: names <= set(left_names(self.root)), what=f"leave {names} open")

    def await_sealed(self, name: str) -> None:
        """Returns once a span of that name lies in a batch."""
        wait_until(lambda: any(row["name"] == name for row in rows_in(self.root, "spans")), what=f"spool {name}")

    def await_batches(self, more: int) -> None:
        """Returns once so many more batches are spooled."""
        wanted = self._end_seq() + more
        wait_until(lambda: self._end_seq() >= wanted, every_s=0.001, what=f"spool {more} batches")

    def _end_seq(self) -> int:
        (folder,) = spools(self.root)
        reader = SpoolReader(folder)
        try:
            return reader.end_seq
        finally:
            reader.close()

    def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        self._process.kill()
        self._process.communicate(timeout=60)


@contextmanager
def dying(home: Path, source: str = TRAINING, **environ: str) -> Generator[Dying]:
    """A trainer whose spool nobody sends; it is killed at the end, unless it was before."""
    trainer = Dying(home, source, {"RANKSCOPE_AGENT": "none", **environ})
    try:
        yield trainer
    finally:
        trainer.kill()


def left_names(root: Path) -> list[str]:
    """Names of the spans that the processes of a root's spools would leave, or left, open."""
    found: list[str] = []
    for folder in spools(root):
        reader = SpoolReader(folder)
        left = reader.left_open()
        reader.close()
        if left is not None:
            found += [str(row["name"]) for row in rows_of(Batch.FromString(left.payload), "spans")]
    return found
