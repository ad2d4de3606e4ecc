"""What `watch` at level 1, every 10th step, adds to a step of the demo's model: watched and plain steps in turns."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import nn

from rankscope import Run
from rankscope.examples.chars import CharModel, Text
from rankscope.examples.train_chars import BATCH, CONTEXT
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

STEPS, EVERY, WARM = 250, 10, 20


Trainer = tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]
"""A model, its optimizer, and one step of its training."""


def trainer(text: Text) -> Trainer:
    """The demo's model, its optimizer, and one step of its training."""
    torch.manual_seed(0)
    model = CharModel(text.vocabulary, context=CONTEXT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    def step(index: int) -> None:
        windows = [text[index * BATCH + place] for place in range(BATCH)]
        codes, targets = (torch.stack(parts) for parts in zip(*windows, strict=True))
        optimizer.zero_grad(set_to_none=True)
        criterion(model(codes), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, optimizer, step


class Times:
    """Wall and CPU seconds of the steps of one kind; CPU is of all threads, ours in the background too."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def take(self, step: Callable[[int], None], index: int) -> None:
        """Runs a step and keeps what it took."""
        wall, cpu = time.perf_counter(), time.process_time()
        step(index)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


def test_watching_at_level_1(report: Report) -> None:
    torch.set_num_threads(1)
    text = Text(CONTEXT)
    # Two equal models differ by up to 0.6 % in where their memory lies: each is the watched one in turn.
    trainers = trainer(text), trainer(text)
    shares = [measured(watched, unwatched) for watched, unwatched in (trainers, trainers[::-1])]

    wall = Share(*(statistics.mean(figures) for figures in zip(*(share.wall for share in shares), strict=True)))
    cpu = statistics.mean(share.cpu.mean for share in shares)
    report.judge("watch level 1, every 10th step", wall.mean, "% of step", sense="at most", target=2)
    report.add("  a captured step", wall.captured, "% of step")
    report.add("  the steps between", wall.others, "% of step")
    report.add("  the same in CPU time of all threads", cpu, "% of step")
    report.add("  a plain step", shares[0].plain_ms, "ms")


class Share(NamedTuple):
    """What watching adds, in per cent of a plain step: on average, in captured steps, in the others."""

    mean: float
    captured: float
    others: float


class Measured(NamedTuple):
    """Shares of wall and of CPU time, and a plain step's wall time in ms."""

    wall: Share
    cpu: Share
    plain_ms: float


def measured(watched: Trainer, unwatched: Trainer) -> Measured:
    """Trains both in turns, the one watched while it does."""
    model, optimizer, step = watched
    _, _, plain_step = unwatched
    plain, captured, others = Times(), Times(), Times()
    with Run(NowhereExporter()) as run:
        run.watch(model, optimizer=optimizer, level=1, every=EVERY)

        def watched_step(index: int) -> None:
            with run.step(index):
                step(index)

        for index in range(STEPS):
            turns = [(plain, plain_step), (captured if index % EVERY == 0 else others, watched_step)]
            # Who goes first changes, and over the captured steps too: the second finds warmer caches.
            for times, one_step in turns if (index + index // EVERY) % 2 else reversed(turns):
                times.take(one_step, index)
    return Measured(
        share(plain.wall, captured.wall, others.wall),
        share(plain.cpu, captured.cpu, others.cpu),
        1e3 * statistics.median(plain.wall),
    )


def share(plain: list[float], captured: list[float], others: list[float]) -> Share:
    """The share, from medians of warm steps."""
    base = statistics.median(plain[WARM:])
    on_capture = 100 * (statistics.median(captured[WARM // EVERY :]) / base - 1)
    between = 100 * (statistics.median(others[WARM:]) / base - 1)
    return Share((on_capture + (EVERY - 1) * between) / EVERY, on_capture, between)
