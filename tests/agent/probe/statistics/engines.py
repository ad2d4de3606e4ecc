"""The two engines, to be tried one beside the other: torch's operations, and a kernel compiled once a session."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.probe.statistics import engines
from rankscope.probe.statistics.library import library
from rankscope.probe.statistics.native import Kernel

ENGINES = ["torch", "kernel"]


def compiled(folder: Path) -> Path:
    """The kernel of this session: whoever asks first compiles it."""
    return library({**os.environ, "RANKSCOPE_HOME": str(folder)})


@contextmanager
def computing(kernel: Kernel | None) -> Generator[None]:
    """Compute with a kernel, or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "state", engines.State())
        engines.state.kernel = kernel
        yield
