"""Draws trees in a terminal, from rows that say how deep each stands."""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.cli._output import duration
from rankscope.client import printable

BAR_WIDTH = 24
NAME_WIDTH = 40
EIGHTHS = " ▏▎▍▌▋▊▉█"


def branches(depths: Sequence[int]) -> list[str]:
    """The lines that lead to each row of a tree.

    Args:
        depths: int[n], each row's depth from 0, a parent before its children.

    Returns:
        One prefix for each row: "" for a root, else corners and bars.
    """
    prefixes: list[str] = []
    open_below: dict[int, bool] = {}
    for row in range(len(depths) - 1, -1, -1):
        depth = depths[row]
        corner = "├─ " if open_below.get(depth) else "└─ "
        above = "".join("│  " if open_below.get(level) else "   " for level in range(1, depth))
        prefixes.append(above + corner if depth else "")
        open_below = {level: True for level in open_below if level < depth} | {depth: True}
    return prefixes[::-1]


def name_cell(lead: str, row: Mapping[str, Any]) -> str:
    """A row's name behind the lines that lead to it, as wide as the column of names."""
    return f"{lead}{printable(row['name'])}".ljust(NAME_WIDTH)


def rank_lines(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A bar for each rank's step, cut into its phases, the longest one filling the width."""
    longest = max((int(rank["duration_ns"]) for rank in ranks), default=1) or 1
    width = max((len(str(rank["rank"])) for rank in ranks), default=1)
    return [
        f"  rank {rank['rank']!s:>{width}}  {bar(int(rank['duration_ns']) / longest)}  "
        f"{duration(rank['duration_ns']):>8}  {_phases_words(rank)}"
        for rank in ranks
    ]


def bar(share: float) -> str:
    """A bar of 24 characters, filled to a share from 0 to 1, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(BAR_WIDTH)


def _phases_words(rank: Mapping[str, Any]) -> str:
    phases = [
        f"{phase} {duration(rank[f'{phase}_ns'])}"
        for phase in ("input", "forward", "backward", "optimizer")
        if int(rank[f"{phase}_ns"])
    ]
    wait = int(rank["wait_ns"])
    return ", ".join(phases) + (f" (waits {duration(wait)})" if wait else "")
