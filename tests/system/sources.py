"""The sources of the fault suite: real trainers' recording with an outside ledger, small rows, many batches.

`python -m tests.system.sources NAME FOLDER` records until `FOLDER/stop` is there. Its ledger is
`FOLDER/NAME.ledger`, its costs are in `FOLDER/NAME.cost`, and `FOLDER/NAME.said` says how it ended. The rest is
the SDK's own environment. Batches are sealed ten times a second instead of once, so that many are on their way.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import rankscope
from rankscope import _pump
from rankscope._block import Block
from rankscope._export import SealedBatch
from rankscope.spool import SpoolWriter
from rankscope_proto.names import Role
from tests.system.truth import Outside

if TYPE_CHECKING:
    from rankscope._recording import Recording

SEAL_S = float(os.environ.get("SOURCE_SEAL_S", "0.1"))
PAUSE_S = float(os.environ.get("SOURCE_PAUSE_S", "0.02"))
WRITE_COSTS_EVERY = 25


class Costs:
    """How long the calls that record took, in ns, and work that waits for nothing, done beside them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: list[int] = []
        self._plain: list[int] = []

    def add(self, ns: int) -> None:
        """Notes one turn's recording calls, and does and notes as much plain work: a busy machine slows both."""
        self._calls.append(ns)
        started = time.perf_counter_ns()
        sum(number * number for number in range(700))
        self._plain.append(time.perf_counter_ns() - started)
        if len(self._calls) % WRITE_COSTS_EVERY == 0:
            self.write()

    def write(self) -> None:
        """Writes percentiles in µs; replaces the file as a whole."""
        calls, plain = sorted(self._calls), sorted(self._plain)
        figures = {
            "turns": len(calls),
            "p50_us": calls[len(calls) // 2] / 1e3,
            "p99_us": calls[len(calls) * 99 // 100] / 1e3,
            "max_us": calls[-1] / 1e3,
            "plain_p99_us": plain[len(plain) * 99 // 100] / 1e3,
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(figures))
        fresh.rename(self._path)


def statistics(number: int) -> Block:
    """Two rows of tensor statistics, without torch."""
    now = time.time_ns()
    columns = {"name": ("weight", "bias"), "role": (Role.GRAD.code,) * 2, "dtype": ("float32", "float32")}
    return Block("tensor_stats", 2, {**columns, "step": (number, number), "time": (now, now), "l2": (1.0, 2.0)})


def steady(name: str, folder: Path) -> None:
    """Emits a step with a span, a metric and two statistics, again and again, and says how many."""
    stop, pause = folder / "stop", threading.Event()
    costs = Costs(folder / f"{name}.cost")
    number = 0
    with rankscope.init() as run:
        recording = cast("Recording", vars(run)["_recording"])
        while not stop.exists():
            started = time.perf_counter_ns()
            with run.step(number), run.span("work", attributes={"number": number}):
                run.log_metric("number", number)
                recording.append(statistics(number))
            costs.add(time.perf_counter_ns() - started)
            number += 1
            pause.wait(PAUSE_S)
        finishing = time.monotonic()
    costs.write()
    took = time.monotonic() - finishing
    (folder / f"{name}.said").write_text(json.dumps({"emitted": number, "finish_s": took}))


def keep_ledger(path: Path) -> None:
    """Lets every batch that goes to a spool be written down outside, before and after."""
    ledger, into_spool = Outside(path), SpoolWriter.append

    def append(self: SpoolWriter, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        ledger.may(batch)
        taken = into_spool(self, batch, is_last=is_last, urgent=urgent)
        if taken:
            ledger.must(batch)
        return taken

    SpoolWriter.append = append


if __name__ == "__main__":
    _pump.SEAL_S = SEAL_S
    keep_ledger(Path(sys.argv[2]) / f"{sys.argv[1]}.ledger")
    steady(sys.argv[1], Path(sys.argv[2]))
