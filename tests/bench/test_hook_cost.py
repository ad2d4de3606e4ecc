"""What hooks on modules add to a call where nothing is captured: many small modules, watched and plain in turns.

In time of the calling thread, since a call takes microseconds. What torch takes to call a hook that does nothing is
measured beside it: no hook can cost less, and so there is none where nothing is looked at. The check for non-finite
elements, which level 1 makes of each output in every step, is a capture; its price is told, not judged.
"""

import statistics
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from rankscope import Run
from rankscope.probe import LocalProbe
from rankscope_proto.names import Role
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

MODULES, PAIRS, WARM, EVERY = 300, 120, 8, 1000
TARGET_US = 1.0


def small_modules() -> nn.Module:
    """A model whose calls are nearly nothing but calls of its modules."""
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(MODULES)))


def added_us(plain: Callable[[], object], watched: Callable[[], object]) -> float:
    """What each module's call takes longer; medians of calls in turns."""
    took: tuple[list[float], list[float]] = ([], [])
    for pair in range(PAIRS):
        turns = list(zip((plain, watched), took, strict=True))
        for call, times in turns if pair % 2 else turns[::-1]:
            began = time.thread_time()
            call()
            times.append(time.thread_time() - began)
    base, more = (statistics.median(times[WARM:]) for times in took)
    return 1e6 * (more - base) / MODULES


def watched_us(*, in_steps: bool, level: int, roles: tuple[Role, ...] = ()) -> float:
    """What a watch adds to each module's call in steps that are not captured, or outside of steps."""
    plain, seen = small_modules(), small_modules()
    inputs = torch.ones(2, 4)
    with Run(NowhereExporter()) as run, torch.no_grad():
        probe = run.watch(seen, level=level, every=EVERY, budget=None, roles=roles)
        assert isinstance(probe, LocalProbe)
        steps = iter(number for number in range(1, 2 * PAIRS * EVERY) if number % EVERY)

        def step() -> None:
            with run.step(next(steps)):
                seen(inputs)

        step()
        return added_us(lambda: plain(inputs), step if in_steps else lambda: seen(inputs))


def test_a_module_hook_without_capture(report: Report) -> None:
    torch.set_num_threads(1)
    gradients = (Role.ACTIVATION_GRAD,)
    figures = {
        "in evaluation, level 1": watched_us(in_steps=False, level=1),
        "in evaluation, level 2": watched_us(in_steps=False, level=2),
        "in a step, gradients alone": watched_us(in_steps=True, level=2, roles=gradients),
    }
    for name, figure in figures.items():
        report.judge(f"module hook without capture, {name}", figure, "us", sense="at most", target=TARGET_US)
    report.add("  a hook that does nothing", empty_hook_us(), "us")
    report.add("  with level 1's check of the output", watched_us(in_steps=True, level=1), "us")


def nothing(_module: nn.Module, _inputs: object, _output: object) -> None:
    """A hook that does nothing."""


def empty_hook_us() -> float:
    """What torch takes to call one."""
    plain, hooked = small_modules(), small_modules()
    inputs = torch.ones(2, 4)
    for module in hooked.children():
        module.register_forward_hook(nothing)
    with torch.no_grad():
        return added_us(lambda: plain(inputs), lambda: hooked(inputs))
