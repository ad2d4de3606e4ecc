"""Clocks held against each other by collectives: surer than a far gateway, never surer than what was seen."""

import random

import pytest

from rankscope_query_api.clock_reading import ClockReading, Passage
from rankscope_query_api.ranks.bounds import Refined, refined
from rankscope_query_api.ranks.clocks import Correction, order
from tests.query_api.batches import MS, START, S

HOUR = 3600 * S
NODES = ("a1", "b1", "c1", "d1")


class Clocks:
    """Four nodes with wrong clocks, a gateway that is 40 ms away, and collectives of a millisecond.

    Args:
        seed: Decides how wrong.
        ppm: Most that a clock runs too fast or slow.
    """

    def __init__(self, seed: int = 1, *, ppm: int = 50) -> None:
        self._chance = random.Random(seed)
        self._ahead = {node: self._chance.randrange(-HOUR, HOUR) for node in NODES}
        self._ppm = {node: self._chance.randint(-ppm, ppm) for node in NODES}

    def wall(self, node: str, true_ns: int) -> int:
        """What a node's clock shows."""
        return true_ns + self._ahead[node] + (true_ns - START) * self._ppm[node] // 10**6

    def readings(self, *nodes: str, error_ns: int = 20 * MS) -> list[ClockReading]:
        """What the nodes' agents measured, each 10 s for a minute: all of it equally wrong, as a slow way back is."""
        made: list[ClockReading] = []
        for node in nodes:
            wrong_ns = self._chance.randrange(-error_ns, error_ns)
            for place in range(7):
                true_ns = START + place * 10 * S
                wall_ns = self.wall(node, true_ns)
                drift = -self._ppm[node] * 1000 if place > 2 else None
                offset_ns = true_ns - wall_ns + wrong_ns
                made.append(
                    ClockReading(
                        node, node, "gate boot", at_ns=wall_ns, offset_ns=offset_ns, error_ns=error_ns, drift=drift
                    )
                )
        return made

    def meetings(self, count: int = 40, *, nodes: tuple[str, ...] = NODES) -> list[list[Passage]]:
        """Collectives from the 30th second on; all leave within a millisecond after the last one came."""
        made: list[list[Passage]] = []
        for place in range(count):
            true_ns = START + 30 * S + place * S // 4
            came = {node: true_ns + self._chance.randrange(5 * MS) for node in nodes}
            left = {node: max(came.values()) + self._chance.randrange(MS) for node in nodes}
            made.append([Passage(node, self.wall(node, came[node]), self.wall(node, left[node])) for node in nodes])
        return made


def placed(found: Refined, clocks: Clocks, node: str, true_ns: int) -> tuple[int, int]:
    """A true time of a node as it is corrected, and the bound of its error."""
    wall_ns = clocks.wall(node, true_ns)
    at = found.correction.at(node, wall_ns)
    assert at is not None
    return wall_ns + at[0], at[1]


@pytest.mark.parametrize("seed", range(10))
def test_ranks_that_meet_are_ordered_more_surely_than_a_far_gateway_allows(seed: int) -> None:
    clocks = Clocks(seed)
    found = refined(Correction(clocks.readings(*NODES)), clocks.meetings())

    true_ns = START + 35 * S
    times = [placed(found, clocks, node, true_ns) for node in NODES]
    for at_ns, error_ns in times:
        assert error_ns < 5 * MS
        for other_ns, other_error_ns in times:
            assert abs(at_ns - other_ns) <= error_ns + other_error_ns
    assert found.contradicting == ()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_refined_is_less_sure_beside_what_is(seed: int) -> None:
    clocks = Clocks(seed)
    found = refined(Correction(clocks.readings(*NODES)), clocks.meetings(nodes=("a1", "b1")))

    true_ns = START + 35 * S
    times = {node: placed(found, clocks, node, true_ns) for node in NODES}
    assert times["a1"][1] < 5 * MS
    assert times["c1"][1] >= 20 * MS
    for at_ns, error_ns in times.values():
        for other_ns, other_error_ns in times.values():
            assert abs(at_ns - other_ns) <= error_ns + other_error_ns


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_nobody_measured_has_its_place_by_the_collectives(seed: int) -> None:
    clocks = Clocks(seed)
    plain = Correction(clocks.readings("a1", "b1", "c1"))
    found = refined(plain, clocks.meetings())

    true_ns = START + 35 * S
    at_ns, error_ns = placed(found, clocks, "d1", true_ns)
    frame_ns, frame_error_ns = placed(found, clocks, "a1", true_ns)

    assert plain.at("d1", clocks.wall("d1", true_ns)) is None
    assert found.correction.is_measured("d1")
    assert error_ns < 20 * MS
    assert abs(at_ns - frame_ns) <= error_ns + frame_error_ns


def test_what_does_not_fit_together_makes_errors_greater_and_is_said() -> None:
    clocks = Clocks()
    readings = clocks.readings(*NODES, error_ns=MS)
    lying = [
        ClockReading(one.incarnation, one.agent, one.server, one.at_ns, one.offset_ns + 50 * MS, MS, one.drift)
        if one.incarnation == "c1"
        else one
        for one in readings
    ]
    found = refined(Correction(lying), clocks.meetings())

    true_ns = START + 35 * S
    first, second = (
        found.correction.moment(node, clocks.wall(node, true_ns + after)) for node, after in (("c1", 0), ("a1", 9 * MS))
    )
    assert "c1" in found.contradicting
    assert order(first, second) == "unknown"


@pytest.mark.parametrize("measured", [(), ("a1",)])
def test_without_meetings_or_without_any_measured_clock_nothing_changes(measured: tuple[str, ...]) -> None:
    clocks = Clocks()
    plain = Correction(clocks.readings(*measured))

    assert refined(plain, []).correction is plain
    if not measured:
        assert refined(plain, clocks.meetings()).correction is plain


def test_collectives_of_clocks_that_never_met_the_others_tell_nothing() -> None:
    clocks = Clocks()
    plain = Correction(clocks.readings(*NODES, error_ns=MS // 10))
    two_pairs = [*clocks.meetings(20, nodes=("a1", "d1")), *clocks.meetings(120, nodes=("b1", "c1"))[110:]]

    assert refined(plain, two_pairs).correction is plain


def test_a_near_gateway_is_not_made_less_sure() -> None:
    clocks = Clocks()
    plain = Correction(clocks.readings(*NODES, error_ns=MS // 10))

    assert refined(plain, clocks.meetings()).correction is plain
