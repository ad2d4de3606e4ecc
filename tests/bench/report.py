"""The figures of a run of `make bench`: build/bench.json and a table."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.ground.processes import ROOT

Sense = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement.

    Attributes:
        name: What was measured.
        value: The figure.
        unit: Its unit.
        target: What is asked of it; None: it only explains others.
        sense: Whether the target is a floor or a ceiling.
        met: Whether it is met; None without a target.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    sense: Sense | None = None
    met: bool | None = None


class Report:
    """Collects figures in the order they are measured."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def add(self, name: str, value: float, unit: str) -> None:
        """A figure that explains others."""
        self.figures.append(Figure(name, value, unit))

    def judge(self, name: str, value: float, unit: str, *, sense: Sense, target: float) -> None:
        """A figure with a target."""
        met = value <= target if sense == "at most" else value >= target
        self.figures.append(Figure(name, value, unit, target, sense, met))

    def write(self, path: Path = ROOT / "build" / "bench.json") -> None:
        """Writes the figures, with the machine they are from."""
        path.parent.mkdir(exist_ok=True)
        machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        entries = [asdict(figure) for figure in self.figures]
        path.write_text(json.dumps({"machine": machine, "entries": entries}, indent=2) + "\n")

    def table(self) -> str:
        """The figures as lines of a table."""
        width = max((len(figure.name) for figure in self.figures), default=0)
        return "\n".join(_line(figure, width) for figure in self.figures)


def _line(figure: Figure, width: int) -> str:
    value = f"{figure.value:,.0f}" if abs(figure.value) >= 1_000 else f"{figure.value:.3g}"
    target = "" if figure.target is None else f"{figure.sense} {figure.target:,g}"
    mark = {True: "met", False: "MISSED", None: ""}[figure.met]
    return f"{figure.name:<{width}}  {value:>10} {figure.unit:<10}  {target:<18} {mark}".rstrip()
