"""What happens to the processes of a node: trainers, their agent, their clock."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.agent.disks import fill, small_disk
from tests.ground.processes import alive, python, wait_until
from tests.system import clocks
from tests.system.site import Site
from tests.system.trial import Trial

HOUR_S, DAY_S = 3_600, 86_400


def test_a_killed_trainer_loses_only_what_was_not_sealed_and_its_end_is_called_unknown(trial: Trial) -> None:
    source = trial.add_source()
    trial.await_stored(20)

    source.kill()
    trial.await_drained()

    report = trial.judge()
    report.verdicts.append(trial.asked())
    assert report.is_clean, report
    assert report.declared == {"tail_unknown": 0}
    assert "tail_unknown" in report.declared
    numbers = "SELECT count() = max(step) + 1 FROM scalars WHERE run_id = {run:String}"
    assert trial.site.store.client.query(numbers, parameters={"run": trial.run}).result_rows == [(1,)]
    dead = "SELECT count() FROM standings WHERE run_id = {run:String} AND state = 'dead'"
    wait_until(
        lambda: trial.site.store.client.query(dead, parameters={"run": trial.run}).result_rows == [(1,)],
        what="be told as dead by the agent",
    )


def test_an_agent_killed_at_its_own_points_loses_and_doubles_nothing(trial: Trial) -> None:
    agent = trial.site.parts["agent"]
    trial.add_source()
    trial.await_stored(5)

    for point in ("agent.adopt", "agent.after_send", "agent.after_ack", "agent.before_free"):
        agent.kill()
        agent.start(RANKSCOPE_FAILPOINT=f"{point}:kill@{1 if point == 'agent.adopt' else 3}")
        agent.child.wait(60)
    agent.start()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


def test_the_agent_outlives_a_group_that_is_told_to_end_and_drains(own_site: Site) -> None:
    own_site.add_writer()
    own_site.add_gateway()
    trial = Trial(own_site, "group")
    command = [*python("rankscope", "run", "--run-id", trial.run), "--"]
    command += python("tests.system.sources", "source-0", trial.folder)
    group = own_site.add("launcher", command, RANKSCOPE_RANK="0", RANKSCOPE_WORLD_SIZE="1")
    trial.await_stored(5)

    os.killpg(group.pid, signal.SIGTERM)
    group.child.wait(60)

    assert not alive(group.pid)
    trial.await_drained()
    report = trial.judge()
    assert report.is_clean, report
    ended = "SELECT count() FROM events WHERE run_id = {run:String} AND kind = 'end_of_stream'"
    assert own_site.store.client.query(ended, parameters={"run": trial.run}).result_rows[0][0] >= 1


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_a_frozen_agent_holds_no_step_up_and_goes_on_where_it_was(trial: Trial, seconds: int) -> None:
    trial.add_source()
    trial.await_stored(5)
    agent = trial.site.parts["agent"]

    agent.freeze()
    threading.Event().wait(seconds)
    turns = trial.costs()
    wait_until(lambda: trial.costs()["turns"] > turns["turns"], what="steps while the agent is frozen")
    agent.resume()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report
    assert not trial.held_up().findings


@pytest.mark.timeout(240)
def test_a_full_disk_under_the_spool_holds_no_step_up_and_what_it_costs_is_declared(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", mebibytes=48) as disk:
        site = Site(tmp_path / "site", spool=disk / "spool")
        trial = Trial(site, "full")
        try:
            site.add_tiers()
            trial.add_source(SOURCE_PAUSE_S="0.005")
            trial.await_stored(5)

            site.black_hole("gateway")
            ballast = fill(disk)
            threading.Event().wait(9)  # what a full disk refuses is held for 5 s before it is given up
            turns = trial.costs()["turns"]
            wait_until(lambda: trial.costs()["turns"] > turns, what="steps on a full disk")
            ballast.unlink()
            site.links["gateway"].heal()

            assert not trial.fresh().findings
            report = trial.settle(may_declare={"spool_full"})
            assert report.is_clean, report
            assert report.declared["spool_full"] > 0
            assert not trial.held_up().findings
        finally:
            trial.stop()
            site.stop()


@pytest.mark.timeout(240)
def test_a_wall_clock_that_jumps_changes_no_order_and_sticks_no_lease(own_site: Site, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clocks.move(clock, 0)
    own_site.launcher = python("tests.system.clocks", clock)
    own_site.source_program = python("tests.system.clocks", clock, "source")
    own_site.add_tiers()
    trial = Trial(own_site, "jumps")
    trial.add_source()
    try:
        seen = trial.await_stored(5)
        for seconds in (HOUR_S, -HOUR_S, DAY_S, -DAY_S, 0):
            clocks.move(clock, seconds)
            seen = trial.await_stored(seen + 100, timeout_s=30)
        report = trial.settle()
    finally:
        trial.stop()

    assert report.is_clean, report
    spans = "SELECT max(duration) FROM spans WHERE run_id = {run:String} AND name = 'work'"
    longest_ns = own_site.store.client.query(spans, parameters={"run": trial.run}).result_rows[0][0]
    assert longest_ns < 60 * 10**9
    order = """
        SELECT count() FROM (
            SELECT step, lagInFrame(step) OVER (ORDER BY seq, idx) AS before
            FROM scalars WHERE run_id = {run:String}
        ) WHERE step < before"""
    assert own_site.store.client.query(order, parameters={"run": trial.run}).result_rows == [(0,)]
