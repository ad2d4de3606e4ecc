"""Sending what a folder kept while nobody could take it: `run.replay_offline()`.

Promises: the same batches go under the same numbers, so repeating it, or doing it from two processes, stores nothing
twice; what earlier processes left in the folder goes too; nothing is removed before the store has it; it ends, however
much other processes, or other threads of this one, record meanwhile.
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import Unavailable
from rankscope.spool import SpoolError, SpoolHead, SpoolHeldError, SpoolReader, Standing, spools, was_removed

if TYPE_CHECKING:
    from collections.abc import Generator

    from rankscope._export import Exporter
    from rankscope._settings import Settings
    from rankscope.agent.adopt import Adopted

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of the batches of an offline folder, but for those of other living processes.

    Attributes:
        sent: Batches that the store has now, and was not known to have before.
        left: Batches that are still here.
        faults: Why, one for each reason; empty: nothing is left, or nothing is known to stand in the way.
    """

    sent: int
    left: int
    faults: tuple[str, ...]


def replay(settings: "Settings", exporter: "Exporter", *, patience_s: float) -> Replayed:
    """Send what lies in the offline folder now, until the store has it or nothing moves any more.

    Args:
        settings: This process's, with the folder, and gateways for all of it.
        exporter: Where this process records: a spool in the folder, which may grow meanwhile.
        patience_s: Seconds without any progress after which it is given up.

    Raises:
        Unavailable: this process was forked from one that had used gRPC.
    """
    from rankscope._connection import survived_fork  # not at the top: no training loads gRPC for nothing
    from rankscope.agent.drain import drain

    if not survived_fork():
        raise Unavailable("nothing can be sent from here: this process was forked from one that had used gRPC")
    root, own = settings.spool_root, Path(exporter.place)
    before = _missing(root, own)
    end_seq = _end_of(own)  # of one look: what is durable moves meanwhile
    done = drain(root, settings, instead=settings.endpoint, patience_s=patience_s, leaves_living=True)
    after, faults = _missing(root, own), set(done.faults)
    if _lives(own):  # not behind `finish`: then it went with the others
        is_hopeless = bool(done.faults) and not done.removed
        patience = 0.0 if is_hopeless else patience_s
        after[own], fault = _send_own(settings, exporter, end_seq=end_seq, patience_s=patience)
        faults |= {fault} - {""}
    left = sum(after.values())
    return Replayed(max(0, sum(before.values()) - left), left, tuple(sorted(faults)) if left else ())


def _lives(own: Path) -> bool:
    try:
        reader = SpoolReader(own)
    except SpoolError:
        return False
    is_gone = reader.owner_is_gone
    reader.close()
    return not is_gone


def _end_of(own: Path) -> int:
    """The seq behind the last batch; 0 where nothing of the spool can be read."""
    try:
        reader = SpoolReader(own)
    except SpoolError:
        return 0
    try:
        return reader.end_seq
    finally:
        reader.close()


def _missing(root: Path, own: Path) -> dict[Path, int]:
    """Batches that the store is not known to have, by spool: of dead processes, and of this one."""
    found: dict[Path, int] = {}
    for folder in spools(root):
        try:
            reader = SpoolReader(folder)
        except SpoolError:
            if not was_removed(folder):  # else its sender has just removed it
                found[folder] = 1  # nobody can say more
            continue
        if folder == own or reader.owner_is_gone:
            found[folder] = max(0, reader.end_seq - reader.durable)
        reader.close()
    return found


def _send_own(settings: "Settings", exporter: "Exporter", *, end_seq: int, patience_s: float) -> tuple[int, str]:
    """See to this process's own spool, up to a seq: how many batches are left, and why."""
    own = Path(exporter.place)
    durable, moved_at = Standing.read(own).durable, time.monotonic()
    with _sent_from_here(settings, own) as adopted:
        while durable < end_seq:
            obstacle = exporter.take_obstacle()
            is_over = time.monotonic() - moved_at > patience_s
            if is_over or (obstacle is not None and obstacle.is_lasting):
                known = "" if obstacle is None else str(obstacle.error)
                return end_seq - durable, known if adopted is None else adopted.failure
            time.sleep(LOOK_S)
            if (now_durable := Standing.read(own).durable) != durable:
                durable, moved_at = now_durable, time.monotonic()
    return 0, ""


@contextlib.contextmanager
def _sent_from_here(settings: "Settings", own: Path) -> "Generator[Adopted | None]":
    """Send this process's own spool inside the block; None: somebody does already."""
    from rankscope.agent.adopt import adopt
    from rankscope.agent.ways import Recorded, ways_of

    ways = ways_of(settings, instead=settings.endpoint, has_key_for_all=True)
    adopted = None
    with contextlib.suppress(SpoolHeldError):
        adopted = adopt(own, connect=lambda: ways.connection(Recorded.of(SpoolHead.read(own))))
    try:
        yield adopted
    finally:
        if adopted is not None:
            adopted.close()
        ways.close()
