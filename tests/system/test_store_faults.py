"""The writer may end at any point, and the store may fail, stall, answer too late or be short of space."""

import threading
from pathlib import Path

import pytest

from rankscope_proto.columns import SECTIONS
from tests.agent.disks import fill, small_disk
from tests.ground.processes import wait_until
from tests.ground.proxy import Cut
from tests.system.site import Site
from tests.system.trial import Trial
from tests.system.views import broken_view

POINTS = (
    *("writer.after_read", "writer.before_manifest", "writer.after_manifest", "writer.during_insert"),
    *("writer.after_insert", "writer.after_commit", "writer.after_forget"),
)
INSERT_BYTES = 2_000
"""More than a query has: cuts meet inserts."""
TOO_MANY_PARTS, MEMORY, NO_SPACE, NETWORK = 252, 241, 243, 210
LEASE_S = 10.0


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.timeout(1_200)
def test_a_writer_killed_at_each_commit_point_loses_and_doubles_nothing(trial: Trial, times: int) -> None:
    writer = trial.site.parts["writer"]
    trial.add_source()
    trial.await_stored(5)

    for number in range(times):
        for point in POINTS:
            writer.kill()
            writer.start(RANKSCOPE_FAILPOINT=f"{point}:kill@{1 + (number + 1) % 3}")
            writer.child.wait(60)
    writer.start()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.timeout(240)
def test_a_frozen_writer_that_wakes_after_another_took_over_doubles_nothing(trial: Trial) -> None:
    writer = trial.site.parts["writer"]
    trial.add_source()
    trial.await_stored(5)
    successor = trial.site.add_writer(name="writer-2")
    try:
        writer.freeze()
        seen = trial.stored()
        trial.await_stored(seen + 50, timeout_s=LEASE_S * 4)
        writer.resume()
        assert not trial.fresh().findings
        report = trial.settle()
        assert report.is_clean, report
    finally:
        if writer.is_running:
            writer.resume()
        trial.site.remove(successor.name)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_store_that_refuses_for_a_while_is_waited_for(trial: Trial, times: int) -> None:
    trial.add_source()
    trial.await_stored(5)

    for code in (TOO_MANY_PARTS, MEMORY, NO_SPACE, NETWORK):
        trial.site.front.answer_inserts(code, times=times)
        trial.await_stored(trial.stored() + 50)

    report = trial.settle()
    assert report.is_clean, report


def test_an_insert_that_happened_and_was_answered_with_an_error_is_not_doubled(trial: Trial) -> None:
    trial.add_source()
    trial.await_stored(5)

    trial.site.front.answer_inserts(NETWORK, times=3, is_after=True)

    trial.await_stored(trial.stored() + 50)
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_an_insert_whose_connection_is_cut_is_neither_lost_nor_doubled(trial: Trial, rounds: int) -> None:
    link = trial.site.links["store"]
    trial.add_source()
    trial.await_stored(5)

    for cut in (Cut.BEFORE_REQUEST, Cut.MID_REQUEST, Cut.AFTER_REQUEST) * rounds:
        before = link.cuts
        link.cut(cut, at_least=INSERT_BYTES)
        wait_until(lambda before=before: link.cuts > before, what=f"a cut {cut}")

    trial.await_stored(trial.stored() + 20)
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.timeout(240)
def test_a_store_that_stalls_is_waited_for(trial: Trial, seconds: int) -> None:
    trial.add_source()
    trial.await_stored(5)

    trial.site.black_hole("store")
    threading.Event().wait(seconds)
    trial.site.links["store"].heal()

    trial.await_stored(trial.stored() + 50)
    report = trial.settle()
    assert report.is_clean, report


TABLES = [section.table for section in SECTIONS if not section.expires]
TRIED_EACH_TIME = {"scalars"}
"""The others are tried by the slow tests."""


@pytest.mark.parametrize(
    "table", [table if table in TRIED_EACH_TIME else pytest.param(table, marks=pytest.mark.slow) for table in TABLES]
)
def test_a_view_that_throws_holds_its_batches_back_and_doubles_nothing_when_mended(trial: Trial, table: str) -> None:
    trial.add_source()
    trial.await_stored(5)

    with broken_view(trial.site.store.client, table):
        wait_until(lambda: trial.site.entries() > 20, what="entries that wait for the view")

    trial.await_stored(trial.stored() + 20)
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_killed_store_keeps_what_it_answered_for(trial: Trial, times: int) -> None:
    trial.add_source()

    for _ in range(times):
        trial.await_stored(trial.stored())
        trial.site.front.kill()
        trial.site.front.start()
        trial.site.front.await_ready()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.timeout(240)
def test_a_store_without_space_is_waited_for_and_goes_on_when_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", mebibytes=64) as disk:
        site = Site(tmp_path / "site", data=disk / "data")
        trial = Trial(site, "space")
        try:
            site.add_tiers()
            trial.add_source()
            trial.await_stored(5)

            ballast = fill(disk)
            seen = trial.stored()
            wait_until(lambda: site.entries() > 20, what="entries that wait for space")
            ballast.unlink()

            trial.await_stored(seen + 20, timeout_s=90)
            report = trial.settle()
            assert report.is_clean, report
        finally:
            trial.stop()
            site.stop()
