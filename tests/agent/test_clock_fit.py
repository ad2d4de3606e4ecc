"""The difference of two clocks, from exchanges on ways that are slow, uneven and busy."""

import random
from collections.abc import Iterator

import pytest

from rankscope._clock_fit import ClockFit, Exchange, Fit

MS, S = 10**6, 10**9
BOOT = 40_000 * S
BASE = 1_796_000_000 * S


def exchanges(
    count: int, *, ppm: float = 0.0, seed: int = 1, every_ns: int = 2 * S, stepped_at: int = -1, step_ns: int = 0
) -> Iterator[tuple[Exchange, int]]:
    """Exchanges with a server whose clock runs away, and the true difference at the end of each."""
    chance = random.Random(seed)

    def base(mono_ns: float, place: int) -> int:
        stepped = step_ns if 0 <= stepped_at <= place else 0
        return BASE + stepped + int((mono_ns - BOOT) * ppm / 1e6)

    for place in range(count):
        sent = BOOT + place * every_ns
        # A loaded machine: mostly a third of a millisecond, at times tens of them, on one way only.
        out, back = (int(chance.expovariate(1 / (MS // 5))) + MS // 10 for _ in range(2))
        if chance.random() < 0.2:
            back += int(chance.expovariate(1 / (30 * MS)))
        arrived, left = sent + out, sent + out + MS // 10
        returned = left + back
        yield (
            Exchange(sent, arrived + base(arrived, place), left + base(left, place), returned),
            base(returned, place),
        )


def after(made: Iterator[tuple[Exchange, int]], fit: ClockFit) -> Iterator[tuple[Fit, int, int]]:
    """The fit behind each exchange, with the moment and the true difference then."""
    for exchange, truth in made:
        fit.add(exchange)
        found = fit.fit()
        assert found is not None
        yield found, exchange.back_ns, truth


@pytest.mark.parametrize("ppm", [-50.0, 0.0, 50.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_true_difference_is_within_the_error_and_that_below_a_millisecond(ppm: float, seed: int) -> None:
    for place, (fit, at_ns, truth) in enumerate(after(exchanges(120, ppm=ppm, seed=seed), ClockFit())):
        off_by = abs(fit.base_at(at_ns) - truth)
        assert off_by <= fit.error_at(at_ns) + 1
        assert place < 8 or fit.error_at(at_ns) < MS


@pytest.mark.parametrize("ppm", [-50.0, 50.0])
def test_a_drift_is_told_once_it_can_be_told_from_noise(ppm: float) -> None:
    fits = [fit for fit, _, _ in after(exchanges(64, ppm=ppm), ClockFit())]

    assert fits[0].drift is None
    assert fits[-1].drift is not None
    assert abs(fits[-1].drift - ppm * 1000) <= fits[-1].wander_ppm * 1000
    assert fits[-1].wander_ppm < 20


def test_more_exchanges_leave_a_narrower_band_than_a_usual_one() -> None:
    widths = sorted(exchange.rtt_ns for exchange, _ in exchanges(40, every_ns=2 * MS))

    *_, (fit, _, _) = after(exchanges(40, every_ns=2 * MS), ClockFit())

    assert fit.samples == 40
    assert fit.rtt_ns == widths[0]
    assert fit.error_ns < widths[10] // 2


@pytest.mark.parametrize(("step_ns", "seen_after"), [(-3600 * S, 1), (5 * MS, 4), (3600 * S, 1)])
def test_what_contradicts_the_latest_exchanges_is_of_before_a_clock_was_set(step_ns: int, seen_after: int) -> None:
    # A step that is smaller than an exchange takes is not seen before the next quick one.
    made = exchanges(60, stepped_at=40, step_ns=step_ns)

    for place, (fit, at_ns, truth) in enumerate(after(made, ClockFit())):
        if place < 40 or place >= 40 + seen_after:
            assert abs(fit.base_at(at_ns) - truth) <= fit.error_at(at_ns) + 1
            assert place < 40 or fit.samples <= place - 39


def test_an_exchange_in_which_a_clock_was_set_says_nothing() -> None:
    fit = ClockFit()

    assert not fit.add(Exchange(BOOT, BASE + S, BASE, BOOT + MS))
    assert not fit.add(Exchange(BOOT, BASE, BASE + S, BOOT + MS))
    assert fit.fit() is None
    assert fit.add(Exchange(BOOT, BASE, BASE + MS, BOOT + 2 * MS))
