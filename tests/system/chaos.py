"""Kills and cuts in an order that a seed fixes, while sources write; what it did is counted and told.

A victim is killed with SIGKILL and started again at once, without waiting for it: several tiers are often down
together. A broker's power loss is its append-only file cut at the end; a fail-over or an operator's mistake is
FLUSHALL. Only processes of the site are touched, by their ids.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import redis

from tests.system.parts import Part
from tests.system.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLED_S = 0.3
"""A process younger than this is not killed again: it has not done anything yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What may happen, and how often.

    Attributes:
        seed: Fixes the order.
        gap_s: Bounds of the pause between two faults, seconds.
        tail_cuts: Share of the broker's kills that take the end of its file too.
        most_cut: Most bytes one cut takes.
        flushes: Share of all faults that are a FLUSHALL instead of a kill.
    """

    seed: int
    gap_s: tuple[float, float] = (0.25, 1.0)
    tail_cuts: float = 0.0
    most_cut: int = 60_000
    flushes: float = 0.0


@dataclass(slots=True)
class Tally:
    """What was done.

    Attributes:
        kills: By process.
        cuts: Tails taken off the broker's file.
        cut_bytes: How much, together.
        flushes: FLUSHALL.
    """

    kills: Counter[str] = field(default_factory=Counter[str])
    cuts: int = 0
    cut_bytes: int = 0
    flushes: int = 0

    def __str__(self) -> str:
        return f"kills {self.kills.total()}, cuts {self.cuts}"

    @property
    def details(self) -> str:
        """Which processes, how much, and what else."""
        each = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        return f"{each}; {self.cut_bytes} B cut, flushes {self.flushes}"


class Chaos:
    """Breaks a site by a plan; each kind of process is as likely as any other.

    Args:
        site: With all its tiers running.
        plan: What may happen.
        sources: More processes to kill.
    """

    def __init__(self, site: Site, plan: Plan, *, sources: Mapping[str, Part]) -> None:
        self.tally = Tally()
        self._site = site
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._pause = threading.Event()
        self._parts = {**site.parts, **sources}
        self._born: dict[str, float] = dict.fromkeys(("broker", "store", *self._parts), 0.0)
        self._victims: dict[str, Callable[[], None]] = {"broker": self._kill_broker, "store": self._kill_store}
        for name in self._parts:
            self._victims[name] = lambda name=name: self._kill_part(name)

    def run(self, *, kills: int = 0, seconds: float = 0.0) -> Tally:
        """Goes on until so many kills are done, or so many seconds are over, whichever comes last."""
        end = time.monotonic() + seconds
        while self.tally.kills.total() < kills or time.monotonic() < end:
            self._pause.wait(self._random.uniform(*self._plan.gap_s))
            if self._random.random() < self._plan.flushes:
                self._flush()
            else:
                self._kill_one()
        return self.tally

    def _kill_one(self) -> None:
        now = time.monotonic()
        names = [name for name in sorted(self._victims) if now - self._born[name] > SETTLED_S]
        if not names:
            return
        kind = self._random.choice(sorted({_kind(name) for name in names}))
        name = self._random.choice([name for name in names if _kind(name) == kind])
        self._victims[name]()
        self.tally.kills[kind] += 1
        self._born[name] = time.monotonic()

    def _kill_part(self, name: str) -> None:
        part = self._parts[name]
        part.kill()
        part.start()

    def _kill_broker(self) -> None:
        self._site.broker.kill()
        if self._random.random() < self._plan.tail_cuts:
            size = int(10 ** self._random.uniform(0, len(str(self._plan.most_cut)) - 1))
            taken = self._site.broker.cut_tail(min(size, self._plan.most_cut))
            self.tally.cuts += 1
            self.tally.cut_bytes += taken
        self._site.broker.start()

    def _kill_store(self) -> None:
        self._site.front.kill()
        self._site.front.start()

    def _flush(self) -> None:
        try:
            self._site.flush()
        except redis.RedisError:
            return  # it is down: the next fault comes soon
        self.tally.flushes += 1


def _kind(name: str) -> str:
    return name.split("-", maxsplit=1)[0]
