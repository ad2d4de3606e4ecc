"""`make chaos MINUTES=n SEED=s`: the long form of the kills, with a broker that loses its tail and is emptied."""

import os
import secrets
from collections.abc import Callable

import pytest

from tests.system.chaos import Chaos, Plan
from tests.system.oracles import HEAL_S, never_held_up, within_memory
from tests.system.site import Site
from tests.system.test_kills import MEMORY, kinds
from tests.system.trial import Trial

MINUTES = float(os.environ.get("CHAOS_MINUTES") or 5)
SEED = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
DRAIN_S = 300.0
HELD_UP_US = 20_000.0
"""A turn's calls cost 50 µs; beside a hundred restarts on two cores the scheduler adds some."""


@pytest.mark.chaos
@pytest.mark.timeout(int(MINUTES * 60) + 600)
def test_kills_tail_cuts_and_flushes_lose_nothing_and_double_nothing(
    own_site: Site, tell: Callable[[str], None]
) -> None:
    own_site.add_tiers()
    trial = Trial(own_site, "chaos", heal_s=HEAL_S)
    tell(f"chaos: {MINUTES:g} minutes, seed {SEED}")
    try:
        for rank in range(3):
            trial.add_source(rank, world_size=3)
        trial.await_stored()

        plan = Plan(SEED, tail_cuts=0.6, most_cut=5_000_000, flushes=0.04)
        chaos = Chaos(own_site, plan, sources=trial.sources)
        tally = chaos.run(seconds=MINUTES * 60)
        own_site.heal()
        healed = trial.fresh()
        report = trial.settle(DRAIN_S)
        report.verdicts += [trial.asked(), healed, never_held_up(trial.folder, p99_us=HELD_UP_US)]
        report.verdicts.append(within_memory(kinds(own_site, trial), MEMORY))
    finally:
        trial.stop()

    tell(f"{tally.details}; {report.rows} rows\n{tally}, {report.outcome}")
    assert report.is_clean, f"seed {SEED}: {tally.details}\n{report}"
    assert not report.declared.total(), report
