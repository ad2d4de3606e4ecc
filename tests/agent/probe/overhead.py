"""What a watch costs on the demo's model: interleaved steps with and without, medians of CPU time.

    python -m tests.agent.probe.overhead [rounds]

Two equal models are trained in turn, one of them watched, in rounds of four steps: without a watch, with
one that does not capture the step in full, without, with one that does. The cost at a stride of n is
the full step's share 1/n and the other's share (n - 1)/n. One process, one thread, no reduction.
"""

import json
import random
import statistics
import sys
import time

import torch
from torch import nn

from rankscope.examples.chars import CharModel, Text
from rankscope.examples.train_chars import BATCH, CONTEXT, LAYERS, update
from rankscope.probe.attach import attach
from tests.agent.probe.trainings import Recorded

STRIDE = 10

clock = time.process_time
"""CPU time of all threads, sealing included: a wall clock on a shared machine measures its neighbours."""


def measure(*, rounds: int, level: int = 1) -> dict[str, float]:
    """Medians of a step's CPU time in ms, and the overhead of the watch as a share of the step.

    Args:
        rounds: Rounds of four steps, at least 10.
        level: Probe level of the watch.

    Returns:
        `off_ms`, `light_ms` (a watched step not captured in full), `full_ms`, `overhead` at a stride of 10.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain, watched = Training(), Training()
    watched.watch(level)
    times: dict[str, list[float]] = {"off": [], "light": [], "full": []}
    for index in range(rounds + 2):
        found = (plain.step(1), watched.step(1), plain.step(1), watched.step(0))
        if index >= 2:  # the first steps allocate
            times["off"] += found[::2]
            times["light"].append(found[1])
            times["full"].append(found[3])
    off, light, full = (statistics.median(times[kind]) * 1e3 for kind in ("off", "light", "full"))
    mean = (full + (STRIDE - 1) * light) / STRIDE
    return {"off_ms": off, "light_ms": light, "full_ms": full, "overhead": mean / off - 1.0}


class Training:
    """The demo's model on one rank."""

    def __init__(self) -> None:
        text = Text(CONTEXT)
        self._items = [text[index] for index in range(64)]
        self._model = CharModel(text.vocabulary, context=CONTEXT, layers=LAYERS)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._criterion = nn.CrossEntropyLoss()
        self._run = Recorded().run
        self._draw = random.Random(1)

    def watch(self, level: int) -> None:
        """Have all further steps watched."""
        attach(self._run, self._model, optimizer=self._optimizer, loss=self._criterion, level=level, every=STRIDE)

    def step(self, index: int) -> float:
        """Train one step; returns its CPU time in s. Index 0 is captured in full, 1 is not."""
        batch = self._draw.sample(self._items, k=BATCH)
        codes, targets = (torch.stack(column) for column in zip(*batch, strict=True))
        start = clock()
        with self._run.step(index):
            loss = self._criterion(self._model(codes), targets.flatten())
            update(self._model, self._optimizer, loss=loss)
        return clock() - start


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    sys.stdout.write(
        json.dumps({f"level {level}": measure(rounds=count, level=level) for level in (0, 1)}, indent=1) + "\n"
    )
