"""What a network does to the way from the agent to the gateway: cuts, silence, slowness, spoilt bytes."""

import threading

import pytest

from tests.ground.processes import free_port, wait_until
from tests.ground.proxy import Cut, Fault, Proxy
from tests.system.oracles import HEAL_S, PATIENCE_S
from tests.system.site import Site
from tests.system.trial import Trial

BATCH_BYTES = 400
"""More than gRPC's own frames have, less than a batch: cuts meet batches."""
NOTICED_S = 5.0
"""The promise, by the agent's own clock."""
LOAD_S = 3.0
"""The test sees only the other gateway's first connection: on two busy cores the agent's thread may be woken, and the
connection made and seen, so much later. Nothing of it is the agent's patience."""


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_connections_cut_at_a_batch_lose_nothing_and_double_nothing(trial: Trial, rounds: int) -> None:
    link = trial.site.links["gateway"]
    trial.add_source()
    trial.await_stored(5)

    for cut in list(Cut) * rounds:
        before = link.cuts
        link.cut(cut, at_least=1 if cut is Cut.MID_REPLY else BATCH_BYTES)
        wait_until(lambda before=before: link.cuts > before, what=f"a cut {cut}")

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.timeout(200)
@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_a_black_hole_fills_the_spool_and_is_made_up_for(trial: Trial, seconds: int) -> None:
    trial.add_source()
    trial.await_stored(5)

    trial.site.black_hole("gateway")
    threading.Event().wait(seconds)
    kept = trial.stored()
    trial.site.links["gateway"].heal()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report
    assert trial.stored() - kept > 20 * seconds
    assert not trial.held_up().findings


@pytest.mark.parametrize(
    ("within_s", "heal_s"),
    [(PATIENCE_S, PATIENCE_S), pytest.param(NOTICED_S + LOAD_S, HEAL_S, marks=pytest.mark.slow)],
)
def test_a_frozen_gateway_is_noticed_and_another_one_is_used(own_site: Site, within_s: float, heal_s: float) -> None:
    other = free_port()
    own_site.add_writer()
    own_site.add_gateway()
    own_site.add_gateway(name="gateway-2", listen=f"127.0.0.1:{other}")
    way = Proxy(f"127.0.0.1:{other}")
    trial = Trial(own_site, "frozen", heal_s=heal_s)
    try:
        first = own_site.links["gateway"].address
        own_site.add_agent(RANKSCOPE_ENDPOINT=f"{first},{way.address}")
        trial.add_source(RANKSCOPE_ENDPOINT=f"{first},{way.address}")
        trial.await_stored(5)
        wait_until(lambda: way.connections > 0, what="the other gateway's clock is asked")
        asked = way.connections

        own_site.parts["gateway"].freeze()
        wait_until(lambda: way.connections > asked, timeout_s=within_s, what="the other gateway's turn")
        healed = trial.fresh()
        own_site.parts["gateway"].resume()
        report = trial.settle()
    finally:
        trial.stop()
        way.stop()

    assert not healed.findings
    assert report.is_clean, report


def test_a_slow_line_is_used_and_not_stormed(trial: Trial) -> None:
    link = trial.site.links["gateway"]
    trial.add_source(SOURCE_SEAL_S="1", SOURCE_PAUSE_S="0.1")
    trial.await_stored(5)
    before = link.connections

    link.set(Fault(delay_s=0.4, bytes_per_s=8_000))
    trial.await_stored(trial.stored() + 20)
    link.heal()

    report = trial.settle()
    assert report.is_clean, report
    assert link.connections - before <= 3


def test_bytes_spoilt_on_the_way_are_sent_again(trial: Trial) -> None:
    link = trial.site.links["gateway"]
    trial.add_source()
    trial.await_stored(5)

    link.set(Fault(xor_every=701))
    threading.Event().wait(4)
    link.heal()
    link.cut_all()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_gateway_is_replaced_and_nothing_is_lost(trial: Trial, times: int) -> None:
    trial.add_source()
    gateway = trial.site.parts["gateway"]

    for _ in range(times):
        seen = trial.await_stored(trial.stored())
        gateway.kill()
        gateway.start()
        trial.await_stored(seen)

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_gateway_killed_around_accept_loses_and_doubles_nothing(trial: Trial, times: int) -> None:
    gateway = trial.site.parts["gateway"]
    trial.add_source()
    trial.await_stored(5)

    for point in ("gateway.before_accept", "gateway.after_accept") * times:
        gateway.kill()
        gateway.start(RANKSCOPE_FAILPOINT=f"{point}:kill@3")
        gateway.child.wait(60)
    gateway.start()

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report
