"""kill -9 of every process at random moments while sources write: nothing is lost, nothing is there twice."""

import secrets
from collections.abc import Callable

import pytest

from tests.system.chaos import Chaos, Plan
from tests.system.oracles import MIB, within_memory
from tests.system.site import Site
from tests.system.trial import Trial

KILLS = 105
MEMORY = {"agent": 150 * MIB, "gateway": 400 * MIB, "writer": 600 * MIB, "source": 150 * MIB}


@pytest.mark.timeout(300)
def test_a_hundred_kills_of_all_processes_lose_nothing_and_double_nothing(
    own_site: Site, tell: Callable[[str], None]
) -> None:
    seed = secrets.randbelow(10**6)
    own_site.add_tiers()
    trial = Trial(own_site, "kills")
    try:
        for rank in range(2):
            trial.add_source(rank, world_size=2)
        trial.await_stored()

        chaos = Chaos(own_site, Plan(seed, gap_s=(0.2, 0.8)), sources=trial.sources)
        tally = chaos.run(kills=KILLS)
        own_site.heal()
        healed = trial.fresh()
        report = trial.settle()
        report.verdicts += [trial.asked(), healed, trial.held_up()]
        report.verdicts.append(within_memory(kinds(own_site, trial), MEMORY))
    finally:
        trial.stop()

    tell(f"seed {seed}: {tally.details}; {report.rows} rows\n{tally}, {report.outcome}")
    assert report.is_clean, f"seed {seed}: {tally.details}\n{report}"
    assert not report.declared.total(), report
    assert set(tally.kills) == {"agent", "broker", "gateway", "source", "store", "writer"}, tally.details


def kinds(site: Site, trial: Trial) -> dict[str, int]:
    """The most memory of each kind of process, of the tiers and of the sources."""
    return {**site.peaks(), "source": max(part.peak for part in trial.sources.values())}
