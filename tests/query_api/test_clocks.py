"""Times of several clocks put on one: never surer than the measurements, never an order within the error."""

from dataclasses import replace
from itertools import product

import pytest

from rankscope_query_api.clock_reading import ClockReading
from rankscope_query_api.ranks.clocks import Correction, Moment, order
from tests.query_api.batches import MS, START, S

HOUR = 3600 * S
GATEWAY, OTHER_GATEWAY = "gateway-0 boot-0", "gateway-1 boot-1"


def reading(incarnation: str, at_ns: int, offset_ns: int, *, error_ns: int = MS // 4, **more: object) -> ClockReading:
    """A reading of a process by an agent that is named like its node: `b1` and `b2` are of node `b`."""
    made = ClockReading(
        incarnation, incarnation[0], GATEWAY, at_ns=at_ns, offset_ns=offset_ns, error_ns=error_ns, drift=0
    )
    return replace(made, **more)


def steady(
    incarnation: str, *, ahead_ns: int, ppm: int, rounds: int = 12, error_ns: int = MS // 4
) -> list[ClockReading]:
    """Readings each 10 s of a clock that is ahead of the server's and runs too fast."""
    made: list[ClockReading] = []
    for place in range(rounds):
        true_ns = START + place * 10 * S
        wall_ns = true_wall(true_ns, ahead_ns=ahead_ns, ppm=ppm)
        noise = error_ns * (-1) ** place * 3 // 4
        made.append(
            reading(
                incarnation,
                wall_ns,
                true_ns - wall_ns + noise,
                error_ns=error_ns,
                drift=-ppm * 1000 if place > 3 else None,
            )
        )
    return made


def true_wall(true_ns: int, *, ahead_ns: int, ppm: int) -> int:
    """What a clock shows that is ahead and runs too fast."""
    return true_ns + ahead_ns + (true_ns - START) * ppm // 10**6


@pytest.mark.parametrize(("ahead_ns", "ppm"), list(product([-HOUR, -250 * MS, 250 * MS, HOUR], [-50, 0, 50])))
def test_a_corrected_time_is_within_its_error_of_the_true_one(ahead_ns: int, ppm: int) -> None:
    correction = Correction(steady("b1", ahead_ns=ahead_ns, ppm=ppm))

    for tenth in range(-20, 1200):
        true_ns = START + tenth * S // 10
        wall_ns = true_wall(true_ns, ahead_ns=ahead_ns, ppm=ppm)
        found = correction.at("b1", wall_ns)
        assert found is not None
        off_by = abs(wall_ns + found[0] - true_ns)
        assert off_by <= found[1]
        assert off_by < MS


def test_no_order_is_claimed_within_the_error_and_none_that_is_wrong() -> None:
    correction = Correction([*steady("a1", ahead_ns=250 * MS, ppm=50), *steady("b1", ahead_ns=-250 * MS, ppm=-50)])
    known = 0
    for apart_ns in range(-3 * MS, 3 * MS, MS // 8):
        true_ns = START + 61 * S
        first = correction.moment("a1", true_wall(true_ns, ahead_ns=250 * MS, ppm=50))
        second = correction.moment("b1", true_wall(true_ns + apart_ns, ahead_ns=-250 * MS, ppm=-50))

        said = order(first, second)

        assert first.error_ns is not None
        assert second.error_ns is not None
        if abs(second.at_ns - first.at_ns) <= first.error_ns + second.error_ns:
            assert said == "unknown"
        else:
            assert said == ("before" if apart_ns > 0 else "after")
            known += 1
    assert known > 0


def test_a_clock_without_readings_has_no_place_and_no_order() -> None:
    correction = Correction(steady("a1", ahead_ns=0, ppm=0))
    measured, other = correction.moment("a1", START), correction.moment("z1", START + HOUR)

    assert correction.at("z1", START) is None
    assert not correction.is_measured("z1")
    assert other == Moment(START + HOUR, None, "z1", START + HOUR)
    assert order(measured, other) == order(other, measured) == "unknown"
    assert order(other, correction.moment("z1", START)) == "after"


def test_no_readings_at_all_leave_every_time_as_it_is_and_say_so() -> None:
    correction = Correction([])

    assert correction.server == ""
    assert correction.at("a1", START) is None


def test_processes_of_one_node_are_ordered_exactly_however_unsure_the_server_is() -> None:
    # The second process was started after its wall clock had been set back by an hour.
    rounds: list[ClockReading] = []
    for place, noise in enumerate([0, 3 * MS, -3 * MS]):
        for of, behind in (("b1", 0), ("b2", HOUR)):
            wall_ns = START + place * 10 * S - behind
            rounds.append(reading(of, wall_ns, behind + noise, error_ns=5 * MS))
    correction = Correction(rounds)

    first, second = correction.moment("b1", START + 15 * S), correction.moment("b2", START + 15 * S - HOUR + 1000)

    assert abs(second.at_ns - first.at_ns - 1000) <= 1
    assert first.clock == second.clock
    assert order(first, second) == "before"


def test_an_agent_that_was_started_again_still_measures_the_same_clock() -> None:
    rounds = [
        *(reading(of, START, 0) for of in ("b1", "b2")),
        *(reading(of, START + 30 * S, 0, agent="again") for of in ("b2", "b3")),
    ]
    correction = Correction(rounds)

    assert len({correction.clock_of(of) for of in ("b1", "b2", "b3")}) == 1


def test_two_gateways_that_one_agent_was_held_against_make_one_clock() -> None:
    # The other gateway's clock is an hour ahead; node a reaches both, node b the first, node c the other one.
    rounds = [
        reading("a1", START, 10 * MS),
        reading("a1", START + S, HOUR + 10 * MS, server=OTHER_GATEWAY),
        reading("b1", START, 20 * MS),
        reading("c1", START, HOUR + 30 * MS, server=OTHER_GATEWAY),
    ]
    correction = Correction(rounds)

    found = {of: correction.at(of, START) for of in ("a1", "b1", "c1")}

    assert correction.server == GATEWAY
    assert found["a1"] == (10 * MS, MS // 4)
    assert found["b1"] == (20 * MS, MS // 4)
    assert found["c1"] is not None
    assert found["c1"][0] == 30 * MS
    assert 3 * MS // 4 <= found["c1"][1] < MS


def test_a_gateway_that_nothing_connects_with_the_others_corrects_nothing() -> None:
    rounds = [reading("a1", START, 0), reading("b1", START, 0), reading("c1", START, HOUR, server=OTHER_GATEWAY)]
    correction = Correction(rounds)

    assert correction.at("c1", START) is None
    assert correction.is_foreign("c1")
    assert order(correction.moment("a1", START), correction.moment("c1", START + 2 * HOUR)) == "unknown"


def test_a_servers_clock_that_was_set_between_two_readings_is_in_the_error() -> None:
    correction = Correction(
        [reading("a1", START, 0), reading("a1", START + 10 * S, S), reading("a1", START + 20 * S, S)]
    )

    found = [correction.at("a1", START + second * S) for second in (9, 15)]

    assert found[0] is not None
    assert found[0][1] > 9 * S // 10
    assert found[1] == (S, MS // 4)


def test_an_error_grows_where_nobody_measured() -> None:
    rounds = [reading("a1", START, 0), reading("a1", START + HOUR, 0)]
    correction = Correction(rounds)

    inside, behind = correction.at("a1", START + HOUR // 2), correction.at("a1", START + 2 * HOUR)

    assert inside is not None
    assert inside[1] >= 15 * MS
    assert behind is not None
    assert behind[1] >= 36 * MS
