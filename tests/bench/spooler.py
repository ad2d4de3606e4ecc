"""Eight simulated ranks that append to spools of their own, as trainers do; the node's agent sends them.

`python -m tests.bench.spooler PLAN`, the plan in JSON: see `Plan`.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TextIO

from rankscope._identity import Identity
from rankscope.spool import SpoolHead, SpoolWriter
from tests.bench.generator import RANKS
from tests.bench.load import Trainer, identity, kind_named

BOUND_BYTES = 32 * 1024 * 1024
FULL_PAUSE_S = 0.01
SYNC_S = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ranks append.

    Attributes:
        root: Where the spools lie.
        gateway: `host:port`.
        key: The API key.
        run: The run.
        kind: Section of the rows.
        batches: Of each rank; 0: until SIGTERM.
        pause_s: Between the batches of a rank; 0.0: as fast as the spool takes them, within a small bound.
        log: File for what was appended and when: a monotonic second and the rows so far, a line each; empty: none.
    """

    root: str
    gateway: str
    key: str
    run: str
    kind: str
    batches: int = 0
    pause_s: float = 0.0
    log: str = ""

    def command(self) -> list[str]:
        """The command that carries it out."""
        return [sys.executable, "-m", "tests.bench.spooler", json.dumps(asdict(self))]


class Ranks:
    """The ranks of one process, appending in turns.

    Args:
        plan: What they append.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stop = threading.Event()
        whos = [replace(identity(plan.run, rank, ranks=RANKS), pid=os.getpid()) for rank in range(RANKS)]
        self._trainers = [Trainer(who, kind_named(plan.kind)) for who in whos]
        self._spools = [self._spool(who) for who in whos]
        self._rows = 0
        self._sync_at = 0.0

    def end(self, _number: int, _frame: FrameType | None, /) -> None:
        """For SIGTERM: append no more."""
        self._stop.set()

    def run(self, log: TextIO | None) -> None:
        """Append what is planned."""
        number = 0
        due = time.monotonic()
        while not self._stop.is_set() and (not self._plan.batches or number < self._plan.batches):
            number += 1
            for trainer, spool in zip(self._trainers, self._spools, strict=True):
                self._append(trainer, spool, is_last=number == self._plan.batches)
                if log is not None:
                    log.write(f"{time.monotonic()} {self._rows}\n")
                    log.flush()
            self._sync()
            due += self._plan.pause_s
            self._stop.wait(max(0.0, due - time.monotonic()))
        for spool in self._spools:
            spool.close()

    def _spool(self, who: Identity) -> SpoolWriter:
        head = SpoolHead.of(who, endpoints=[self._plan.gateway], created_ns=time.time_ns())
        bound = 2**40 if self._plan.batches else BOUND_BYTES
        return SpoolWriter.create(Path(self._plan.root), head, key=self._plan.key, max_bytes=bound)

    def _append(self, trainer: Trainer, spool: SpoolWriter, *, is_last: bool) -> None:
        batch = trainer.next_batch()
        while not self._stop.is_set():
            if spool.append(batch, is_last=is_last):
                self._rows += batch.rows
                return
            self._stop.wait(FULL_PAUSE_S)

    def _sync(self) -> None:
        if time.monotonic() >= self._sync_at:
            self._sync_at = time.monotonic() + SYNC_S
            for spool in self._spools:
                spool.sync()


def main(plan_text: str) -> None:
    """Carries the plan out."""
    plan = Plan(**json.loads(plan_text))
    ranks = Ranks(plan)
    signal.signal(signal.SIGTERM, ranks.end)
    if not plan.log:
        ranks.run(None)
        return
    with Path(plan.log).open("w") as log:
        ranks.run(log)


if __name__ == "__main__":
    main(*sys.argv[1:])
