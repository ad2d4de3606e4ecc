"""What observing a training costs: two equal models in turns, one of them observed, medians of warm steps."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from rankscope.probe.statistics import engine, prepare

VOCABULARY = 1_000
WARM = 3
"""Pairs of steps before the first that counts: the first ones allocate."""


def prepare_kernel() -> None:
    """Have the kernel of statistics, as who trains for long has it; without, the first steps are torch's operations."""
    thread = prepare()
    if thread is not None:
        thread.join()
    assert engine().name == "kernel", engine().detail


class Transformer(nn.Module):
    """A transformer of 26 million parameters in 102 tensors; a step on two cores takes about 300 ms."""

    def __init__(self, *, width: int = 512, layers: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores int64[batch, length] tokens: float32[batch, length, vocabulary]."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


class Training:
    """A model, its optimizer, and one batch that it is trained on again and again."""

    def __init__(self, *, width: int = 512) -> None:
        torch.manual_seed(0)
        self.model = Transformer(width=width)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.tokens = torch.randint(0, VOCABULARY, (4, 64))

    def step(self) -> None:
        """One step."""
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.model(self.tokens)
        self.criterion(scores.flatten(0, 1), self.tokens.flatten()).backward()
        self.optimizer.step()


class Cost(NamedTuple):
    """What observing adds.

    Attributes:
        share: Of a plain step, on average over the observed ones.
        full: Of a plain step, in the steps that are captured in full.
        plain_ms: A plain step.
        full_ms: What such a step adds.
    """

    share: float
    full: float
    plain_ms: float
    full_ms: float


def cost(plain: Training, observed_step: Callable[[int], None], *, pairs: int, every: int) -> Cost:
    """Train both in turns; who goes first changes.

    Args:
        plain: The one that nobody observes.
        observed_step: Trains the other for the step of a number.
        pairs: Steps of each.
        every: Steps whose number is a multiple of it are captured in full. Two of four pairs are made such steps,
            and the average is put together from both kinds.
    """
    took: dict[str, list[float]] = {"plain": [], "full": [], "other": []}
    for pair in range(pairs):
        is_full = every == 1 or pair % 4 < 2
        step = pair * every + (0 if is_full else 1)
        turns = [("plain", plain.step), ("full" if is_full else "other", lambda step=step: observed_step(step))]
        for kind, train in turns if pair % 2 else reversed(turns):
            began = time.perf_counter()
            train()
            if pair >= WARM:
                took[kind].append(time.perf_counter() - began)
    base = statistics.median(took["plain"])
    full = statistics.median(took["full"]) / base - 1
    other = statistics.median(took["other"]) / base - 1 if took["other"] else 0.0
    return Cost((full + (every - 1) * other) / every, full, 1e3 * base, 1e3 * base * full)
