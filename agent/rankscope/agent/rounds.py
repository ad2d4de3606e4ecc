"""Once a second the agent looks at the processes of its node; whoever has something to say of them comes along.

A thread of its own: what waits for a gateway or a disk holds up no round, and a round holds up no batch.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rankscope.agent.complaints import Complaints
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour, Neighbours

ROUND_S = 1.0


class Visitor(Protocol):
    """Who has something to say of the processes of this node, and writes it into their launches' diaries."""

    def visit(self, neighbours: Sequence[Neighbour], /) -> None:
        """Look at them; called once a second, from one thread, and back within a tenth of one.

        Args:
            neighbours: Those that live now; who was there before and is not among them is gone.
        """
        ...

    def close(self) -> None:
        """No more rounds: end what runs, within a bound."""
        ...


class Rounds:
    """Makes the rounds until it is closed.

    Args:
        root: The folder of the spools.
        diaries: Of the root; those of launches without a living process end behind a round.
        visitors: Who comes along, in order.
        complaints: Says what goes wrong.
    """

    def __init__(
        self, root: Path, diaries: Diaries, *, visitors: Sequence[Visitor], complaints: Complaints | None = None
    ) -> None:
        self._neighbours = Neighbours(root)
        self._diaries = diaries
        self._visitors = tuple(visitors)
        self._complaints = complaints or Complaints()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-rounds", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the rounds; what was said stays."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(ROUND_S)
        for visitor in self._visitors:
            visitor.close()
        self._neighbours.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            self.make()
            self._closed.wait(max(0.0, ROUND_S - (time.monotonic() - began)))

    def make(self) -> None:
        """One round."""
        neighbours = self._neighbours.look()
        for visitor in self._visitors:
            self._visit(visitor, neighbours)
        self._diaries.keep({neighbour.launch for neighbour in neighbours})

    def _visit(self, visitor: Visitor, neighbours: Sequence[Neighbour]) -> None:
        try:
            visitor.visit(neighbours)
        except Exception as error:  # noqa: BLE001  # one that stumbles takes nobody's round, and it is said
            what = f"{type(visitor).__name__} cannot look at the processes of this node: {error!r}"
            self._complaints.tell(what, about=f"visit {type(visitor).__name__}")
