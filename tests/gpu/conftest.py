"""The device of these tests; without one each says why it does not run."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The first CUDA device."""
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} finds no CUDA device on this machine")
    return torch.device("cuda", 0)


@contextmanager
def _unforgiving() -> Generator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def no_waiting(device: torch.device) -> AbstractContextManager[None]:
    """In it, what makes the host wait for the device raises."""
    return _unforgiving()
