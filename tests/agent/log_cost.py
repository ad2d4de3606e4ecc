"""`python -m tests.agent.log_cost`: CPU times of a log call of ten scalars, usual and in each outage, in pairs.

A program of its own, because coverage traces our lines and would measure itself.
"""

import json
import sys
from collections.abc import Callable

from rankscope import Run
from rankscope._tracing_options import TracingOptions
from rankscope.testing import MemoryExporter
from tests.agent.cost import ROUNDS, cpu_ns

CALLS = 500
VALUES = {f"metric {number}": 0.5 for number in range(10)}


def full() -> MemoryExporter:
    """A spool that is nearly full: metrics are thinned."""
    exporter = MemoryExporter()
    exporter.fullness = 1.0
    return exporter


STATES: dict[str, tuple[Callable[[], MemoryExporter], int]] = {
    "thinned": (full, 65_536),
    "no room": (lambda: MemoryExporter(room=0), 65_536),
    "ring full": (lambda: MemoryExporter(room=0), 20),
}
"""Exporter and size of the ring, by what is wrong."""


def calls_of(run: Run) -> Callable[[], None]:
    """A round of log calls."""

    def log() -> None:
        for step in range(CALLS):
            run.log_metrics(VALUES, step=step)

    return log


def pairs() -> dict[str, list[tuple[int, int]]]:
    """CPU ns of so many calls, usual and in the state, by state."""
    measured: dict[str, list[tuple[int, int]]] = {}
    for state, (exporter, ring_rows) in STATES.items():
        usual, bad = Run(MemoryExporter()), Run(exporter(), tracing=TracingOptions(ring_rows=ring_rows))
        log_usual, log_bad = calls_of(usual), calls_of(bad)
        log_usual()
        log_bad()
        measured[state] = [(cpu_ns(log_usual), cpu_ns(log_bad)) for _ in range(ROUNDS)]
        usual.finish()
        bad.finish(timeout=0.1)
    return measured


if __name__ == "__main__":
    sys.stdout.write(json.dumps(pairs()))
