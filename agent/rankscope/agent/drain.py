"""Sends what lies in a folder and ends: `rankscope drain`, from this machine or any other that sees the folder."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope._settings import Settings
from rankscope.agent.carrier import Carrier
from rankscope.agent.complaints import Complaints
from rankscope.agent.left import Left, left_in
from rankscope.agent.ways import ways_of
from rankscope.errors import ConfigError
from rankscope.spool import Standing

TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of a folder.

    Attributes:
        removed: Spools that the store has whole; they are gone from the folder.
        left: Those that hold something not durable.
        faults: Why, one for each reason.
    """

    removed: int
    left: tuple[Left, ...]
    faults: tuple[str, ...]


def drain(
    folder: Path, settings: Settings, *, instead: Sequence[str] = (), patience_s: float, leaves_living: bool = False
) -> Drained:
    """Send all that lies in a folder, until the store has it or nothing moves any more. Safe to repeat.

    Args:
        folder: A root of spools, or a folder that they were staged out to.
        settings: Certificates, key, and gateways for spools without their own.
        instead: Gateways for all of them.
        patience_s: Seconds without any progress after which it is given up.
        leaves_living: Whether to leave out the spools of living processes, which may grow for ever.

    Raises:
        ConfigError: there is no such folder, or it is one spool.
    """
    try:
        os.scandir(folder).close()
    except OSError as error:
        what = f"{folder} cannot be listed ({error.strerror})"
        raise ConfigError(f"{what}: name a root of spools, or a folder that they were staged out to") from error
    if (folder / "spool.json").exists():
        raise ConfigError(f"{folder} is one spool: name the folder that holds it, {folder.parent}")
    ways = ways_of(settings, instead=instead, has_key_for_all=True)  # who drains gave it for this folder
    silent = Complaints(lambda _: None)
    carrier = Carrier(folder, ways, any_file_system=True, leaves_living=leaves_living, complaints=silent)
    try:
        _carry(carrier, patience_s=patience_s)
        faults = {report.failure for report in carrier.reports() if report.failure}
        faults.update(carrier.held_by_others.values(), carrier.unsent.values())
    finally:
        carrier.close()
        ways.close()
    left = left_in(folder)
    return Drained(carrier.removed, tuple(left), tuple(sorted(faults)) if left else ())


def _carry(carrier: Carrier, *, patience_s: float) -> None:
    """Until all is through, twice in a row: what ended may have left a statement to send."""
    was_through = False
    seen, seen_at = _progress(carrier), time.monotonic()
    while True:
        carrier.tick()
        is_through = carrier.is_through
        if is_through and was_through:
            return
        was_through = is_through
        now = time.monotonic()
        if (progress := _progress(carrier)) != seen:
            seen, seen_at = progress, now
        if now - seen_at > patience_s:
            return
        time.sleep(TICK_S)


def _progress(carrier: Carrier) -> tuple[float, int]:
    """Something that changes with every progress, also of spools that another process sends."""
    return carrier.moved_at, sum(Standing.read(folder).durable for folder in carrier.held_by_others)
