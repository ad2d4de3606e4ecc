"""Samples the node, its devices and the processes on it every few seconds, into the diaries of their launches.

Where a rank is slow the next question is what its machine did. Promises: one thread that sleeps between samples and
samples nothing while no process lives; a sample is at most `MOST_FIGURES` rows a launch; one that a driver holds up is
followed by none before it is over; a trainer is never touched.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from rankscope._block import Block
from rankscope.agent.complaints import Complaints
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour
from rankscope.agent.sampler.figures import Counters, Figure
from rankscope.agent.sampler.node import Node
from rankscope.agent.sampler.nvidia import Gpus
from rankscope.agent.sampler.processes import Processes

MOST_FIGURES = 512
"""A node has some 40, a GPU 8, a rank 4."""

CLOSE_S = 1.0


class Sampler:
    """Takes the samples; a `Visitor` of the agent's rounds.

    Args:
        diaries: Where they go.
        every_s: Seconds between two samples.
        complaints: Says what goes wrong.
        gpus: Reads those of its GPUs.
        monotonic: A clock in seconds.
    """

    def __init__(
        self,
        diaries: Diaries,
        *,
        every_s: float,
        complaints: Complaints | None = None,
        gpus: Gpus | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._diaries = diaries
        self._every_s = every_s
        self._complaints = complaints or Complaints()
        self._monotonic = monotonic
        self._counters = Counters()
        self._node = Node(self._counters)
        self._processes = Processes(self._counters)
        self._gpus = gpus
        self._due_s = monotonic()
        self._changed = threading.Condition()
        self._waiting: Sequence[Neighbour] | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def visit(self, neighbours: Sequence[Neighbour], /) -> None:
        """Have a sample taken, where it is time for one and some process lives."""
        # Programs that record over HTTP have streams of this process, and may run anywhere.
        own = os.getpid()
        living = [one for one in neighbours if not (one.is_near and one.head.pid == own)]
        if not living or self._monotonic() < self._due_s:
            return
        with self._changed:
            self._waiting = living
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rankscope-sampler", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Take no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        gpus = self._gpus or Gpus()
        while (living := self._next()) is not None:
            try:
                self._sample(living, gpus)
            except Exception as error:  # noqa: BLE001  # the agent goes on, and it is said
                self._complaints.tell(f"the node cannot be sampled: {error!r}", about="sampler")
        gpus.close()

    def _next(self) -> Sequence[Neighbour] | None:
        """The processes to sample, once there are some; None: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting is not None)
            living, self._waiting = self._waiting, None
            return None if self._is_closed else living

    def _sample(self, living: Sequence[Neighbour], gpus: Gpus) -> None:
        began_s = self._monotonic()
        self._due_s = began_s + self._every_s
        self._counters.begin(began_s)
        at_ns = time.time_ns()
        shared = [*self._node.read(), *gpus.read()]
        for launch in dict.fromkeys(one.launch for one in living):
            ranks = [one for one in living if one.launch == launch]
            self._write(ranks[0], [*shared, *self._of(ranks)], at_ns=at_ns)

    def _of(self, ranks: Sequence[Neighbour]) -> Iterator[Figure]:
        for rank in ranks:
            yield from self._processes.read(rank)

    def _write(self, neighbour: Neighbour, figures: Sequence[Figure], *, at_ns: int) -> None:
        kept = figures[:MOST_FIGURES]
        if not kept:
            return
        columns = {
            "name": [figure.name for figure in kept],
            "device": [figure.device for figure in kept],
            "value": [figure.value for figure in kept],
            "time": [at_ns] * len(kept),
        }
        self._diaries.of(neighbour).append(Block("system_stats", len(kept), columns))
