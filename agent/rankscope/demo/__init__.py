"""A real training of four ranks with real faults, ended by what queries against its data say about them."""

from rankscope.demo._demo import run_demo
from rankscope.demo._options import DemoOptions
from rankscope.demo._training import TrainingFailedError

__all__ = ["DemoOptions", "TrainingFailedError", "run_demo"]
