"""One run recorded in a site: its sources, their outside ledger, and the oracles' word on what became of it."""

import json
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

from tests.ground.processes import wait_until
from tests.system.oracles import PATIENCE_S, Report, Verdict, checked, fresh_row_visible, judge, never_held_up
from tests.system.parts import Part
from tests.system.site import Site
from tests.system.tables import tables_of
from tests.system.truth import truth_of

DRAIN_S = 90.0


class Trial:
    """A run of a site.

    Args:
        site: Where it is recorded.
        name: Begins the run's id.
        heal_s: Time in which a fresh row must be visible once a fault has healed.

    Attributes:
        run: The run's id.
        folder: Of the outside ledgers.
        sources: The sources by name.
    """

    def __init__(self, site: Site, name: str, *, heal_s: float = PATIENCE_S) -> None:
        self.site = site
        self._heal_s = heal_s
        self.run = f"{name}-{uuid4().hex[:8]}"
        self.folder = site.folder / "ledgers" / self.run
        self.folder.mkdir(parents=True)
        self.sources: dict[str, Part] = {}

    def add_source(self, rank: int = 0, *, world_size: int = 1, **more: str) -> Part:
        """A trainer of a rank, started; it leaves the shipping to the site's agent unless told otherwise."""
        name = f"source-{rank}"
        told = {
            "RANKSCOPE_AGENT": "none",
            "RANKSCOPE_RUN_ID": self.run,
            "RANKSCOPE_RANK": str(rank),
            "RANKSCOPE_WORLD_SIZE": str(world_size),
        }
        part = Part(
            name,
            [*self.site.source_program, name, self.folder],
            folder=self.folder,
            environ={**self.site.environ, **told, **more},
        )
        part.start()
        self.sources[name] = part
        return part

    def finish(self) -> None:
        """Tells every source to end, and waits for it; each must end with 0."""
        (self.folder / "stop").touch()
        for part in self.sources.values():
            status = part.child.wait(60)
            assert status == 0, f"{part.name} ended with {status}:\n{part.output()[-3000:]}"

    def said(self, rank: int = 0) -> dict[str, float]:
        """How a source ended: `emitted` turns, and `finish_s` that its end took."""
        return dict(json.loads((self.folder / f"source-{rank}.said").read_text()))

    def costs(self, rank: int = 0) -> dict[str, float]:
        """What recording cost a source so far: `turns`, and `p50_us`, `p99_us`, `max_us` of a turn's calls."""
        return dict(json.loads((self.folder / f"source-{rank}.cost").read_text()))

    def spools(self) -> list[Path]:
        """The run's spools that still hold something."""
        heads = (*self.site.folder.glob("spool-*/*/spool.json"), *self.site.spool.glob("*/spool.json"))
        return [head.parent for head in heads if self._is_of_run(head)]

    def _is_of_run(self, head: Path) -> bool:
        try:
            return json.loads(head.read_text())["run_id"] == self.run
        except (FileNotFoundError, ValueError):
            return False

    def await_drained(self, timeout_s: float = DRAIN_S) -> None:
        """Returns when none of its spools has anything to send and the broker holds nothing.

        Raises:
            TimeoutError: Something is left; says what, and what every process said last.
        """
        try:
            wait_until(
                lambda: not self.spools() and self.site.entries() == 0, timeout_s=timeout_s, what="an empty spool"
            )
        except TimeoutError as error:
            left = f"{len(self.spools())} spools, {self.site.entries()} entries in the broker"
            raise TimeoutError(f"{error}; left: {left}\n{self.told()}") from None

    def judge(self, *, may_declare: Collection[str] = ()) -> Report:
        """The oracles' word on what is stored now; gaps may have no causes but these."""
        tables = tables_of(self.site.store.client, self.run)
        return judge(truth_of(self.folder), tables, may_declare=may_declare)

    def settle(self, timeout_s: float = DRAIN_S, *, may_declare: Collection[str] = ()) -> Report:
        """Ends the sources, waits until all has arrived, and judges."""
        self.finish()
        self.await_drained(timeout_s)
        return self.judge(may_declare=may_declare)

    def asked(self) -> Verdict:
        """The doctor's answer as a verdict: what it calls a fault is a finding."""

        def look(verdict: Verdict) -> None:
            status, answer = self.site.doctor(self.run)
            processes = answer["completeness"]["processes"]
            faulty = [process for process in processes if process["faults"]]
            verdict.findings += [f"rank {process['rank']}: {process['faults']}" for process in faulty]
            if status and not faulty and all(process["ended"] for process in processes):
                verdict.findings.append(f"the doctor found nothing and yet ended with {status}")

        return checked("O4 (doctor)", look)

    def fresh(self) -> Verdict:
        """O3: whether a row recorded from now on becomes visible in time."""
        return fresh_row_visible(self.site.store.client, self.run, bound_s=self._heal_s)

    def held_up(self) -> Verdict:
        """O5: whether recording was."""
        return never_held_up(self.folder)

    def stored(self) -> int:
        """Scalars stored of the run."""
        query = "SELECT count() FROM scalars WHERE run_id = {run:String}"
        return int(self.site.store.client.query(query, parameters={"run": self.run}).result_rows[0][0])

    def await_stored(self, more_than: int = 0, *, timeout_s: float = 60.0) -> int:
        """Returns how many scalars are stored once they are more than that."""
        try:
            wait_until(lambda: self.stored() > more_than, timeout_s=timeout_s, what=f"more than {more_than} rows")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.told()}") from None
        return self.stored()

    def told(self) -> str:
        """The end of what every process said, for a failing test's message."""
        sources = "\n".join(f"--- {name}\n{part.output()[-1500:]}" for name, part in self.sources.items())
        return f"{self.site.said()}\n{sources}"

    def stop(self) -> None:
        """Ends what is left of its sources."""
        for part in self.sources.values():
            part.stop(timeout_s=3)
