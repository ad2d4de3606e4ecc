"""What a demo may be told."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Say = Callable[[str], None]
"""Takes one line for the person who watches."""

RANKS = 4


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """One demo.

    Attributes:
        seed: chooses the faults' rank, step and layer.
        steps: steps to train.
        faults: whether the training has faults at all.
        stays: whether to keep serving after the finding, on a terminal.
        json_path: where run, injected and found go; "-" is stdout.
    """

    seed: int
    steps: int
    faults: bool
    stays: bool
    json_path: Path | None
