"""Negative controls: each defect that the design exists to exclude makes an oracle fail, and the design does not.

The same story is told twice, to the real tiers and to ones with the defect of `tests.system.mutants`.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope_ingest.clickhouse import TARGETS
from tests.ground.processes import wait_until
from tests.system.oracles import Report
from tests.system.site import Site
from tests.system.test_store_faults import NETWORK
from tests.system.trial import Trial
from tests.system.truth import truth_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

QUIET_S = 5.0
"""After nothing is on its way any more: what a defect doubles or leaves out has happened by then."""

Story = Callable[[Trial], None]


def the_broker_is_emptied_before_the_writer_read(trial: Trial) -> None:
    """All is accepted, the last of it is not durable, and then the broker forgets everything."""
    writer = trial.site.parts["writer"]
    trial.await_stored()
    writer.freeze()
    wait_until(lambda: trial.site.entries() > 5, what="entries that are not stored")
    trial.finish()
    wait_until(lambda: is_accepted(trial), what="all accepted")
    threading.Event().wait(QUIET_S)
    trial.site.flush()
    writer.resume()


def is_accepted(trial: Trial) -> bool:
    """Whether each batch that the spool took is in the broker or in the store."""
    query = "SELECT count() FROM batches WHERE run_id = {run:String}"
    ((stored,),) = trial.site.store.client.query(query, parameters={"run": trial.run}).result_rows
    return trial.site.entries() + stored >= len(truth_of(trial.folder).must)


def the_broker_is_emptied_after_an_insert(trial: Trial) -> None:
    """Rows are stored, the commit is missing, and the broker forgets the manifest, the entries and the watermarks."""
    writer = trial.site.parts["writer"]
    trial.await_stored()
    writer.kill()
    wait_until(lambda: trial.site.entries() > 10, what="entries for a large group")
    writer.start(RANKSCOPE_FAILPOINT="writer.after_insert:kill")
    writer.child.wait(60)
    trial.site.flush()
    wait_until(lambda: trial.site.entries() > 10, what="entries that come again")
    writer.start()
    trial.await_stored(trial.stored() + 20)
    trial.finish()


def an_insert_is_answered_with_an_error_after_it_happened(trial: Trial) -> None:
    """The writer repeats it, and only the token says that it is there."""
    trial.await_stored()
    trial.site.front.answer_inserts(NETWORK, times=3, is_after=True)
    trial.await_stored(trial.stored() + 50)
    trial.finish()


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[[str], Trial]]:
    """Begins a run at a site of its own, with a defect or without."""
    trials: list[Trial] = []

    def begin(mutant: str) -> Trial:
        site = Site(tmp_path / "site", mutant=mutant, settings={"RANKSCOPE_SPOOL_BYTES": str(2**23)})
        trials.append(Trial(site, "control"))
        site.add_tiers()
        trials[0].add_source()
        return trials[0]

    yield begin
    for trial in trials:
        trial.stop()
        trial.site.stop()


def judged(trial: Trial, *, has_defect: bool) -> Report:
    """The oracles' word once all has arrived, or once a site with a defect has become quiet."""
    if has_defect:
        wait_until(lambda: trial.site.entries() == 0, timeout_s=60, what="a broker that holds nothing")
        threading.Event().wait(QUIET_S)
    else:
        trial.await_drained()
    return trial.judge()


STORIES: dict[str, Story] = {
    "free_at_accept": the_broker_is_emptied_before_the_writer_read,
    "no_presence_check": the_broker_is_emptied_after_an_insert,
    "bisect_after_an_error": an_insert_is_answered_with_an_error_after_it_happened,
}


@pytest.mark.parametrize(("mutant", "story"), STORIES.items(), ids=STORIES)
def test_a_defect_is_found_and_the_design_has_none(
    mutant: str, story: Story, begun: Callable[[str], Trial], tell: Callable[[str], None]
) -> None:
    trial = begun(mutant)
    story(trial)

    report = judged(trial, has_defect=True)

    tell(f"control {mutant}: {', '.join(report.failed)} failed, {report.outcome}")
    assert report.lost or report.duplicated, report


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_the_same_story_without_the_defect_is_clean(story: Story, begun: Callable[[str], Trial]) -> None:
    trial = begun("")
    story(trial)

    report = judged(trial, has_defect=False)

    assert report.is_clean, report


@pytest.mark.parametrize("has_window", [False, True])
def test_without_a_deduplication_window_a_repeated_insert_doubles_rows(
    has_window: bool, begun: Callable[[str], Trial], tell: Callable[[str], None]
) -> None:
    trial = begun("")
    trial.await_stored()
    if not has_window:
        for table in TARGETS:
            trial.site.store.client.command(
                f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 0"
            )
    an_insert_is_answered_with_an_error_after_it_happened(trial)

    report = judged(trial, has_defect=not has_window)

    if has_window:
        assert report.is_clean, report
        return
    tell(f"control window 0: {', '.join(report.failed)} failed, {report.outcome}")
    assert report.duplicated, report
