"""Where a NaN came from: the first one whose inputs were finite, ordered by collectives and never by clocks."""

from collections.abc import Sequence
from dataclasses import replace

from rankscope_proto.names import Phase, Role
from rankscope_query_api.nonfinite import FirstNonfinite, Passage, Passing
from rankscope_query_api.ranks.provenance import Provenance, origins

HOUR = 3600 * 10**9


def first(rank: int, at: int, *, step: int = 4, role: Role = Role.ACTIVATION, reduced: bool = False) -> FirstNonfinite:
    """What a rank saw first; each rank's clock is an hour ahead of the one before."""
    return FirstNonfinite(
        rank=rank,
        incarnation=f"{rank:032x}",
        step=step,
        microstep=0,
        phase=(Phase.BACKWARD if reduced else Phase.FORWARD).code,
        role=role.code,
        name=f"layers.{rank}",
        module=f"layers.{rank}",
        layer_index=rank,
        time_ns=rank * HOUR + at,
        is_reduced=reduced,
        nonfinite=1,
    )


def passage(cseq: int, at: int, ranks: Sequence[int] = (0, 1, 2), *, lasts: int | None = 5) -> Passage:
    """A collective that these ranks enter at a time of their own clocks."""
    passings = [
        Passing(rank, f"{rank:032x}", rank * HOUR + at, None if lasts is None else rank * HOUR + at + lasts)
        for rank in ranks
    ]
    return Passage("0", cseq, "all_reduce", 4, passings)


def told(found: Provenance) -> tuple[int | None, list[tuple[int, int, int | None]], list[int]]:
    """(rank of the origin, (rank, from, number of the collective) of the others, undecided ranks)."""
    return (
        found.origin and found.origin.rank,
        [(one.first.rank, one.of, one.via and one.via.cseq) for one in found.received],
        [one.rank for one in found.undecided],
    )


def test_what_came_through_a_collective_is_received_whatever_the_clocks_say() -> None:
    found = origins([first(0, 150), first(1, 90), first(2, 120)], [passage(7, 50), passage(8, 100), passage(9, 200)])

    assert told(found) == (1, [(0, 1, 8), (2, 1, 8)], [])
    assert found.basis == "collectives"


def test_what_a_rank_saw_before_it_left_the_collective_is_its_own() -> None:
    found = origins([first(0, 103), first(1, 90)], [passage(8, 100)])

    assert told(found) == (None, [], [0, 1])


def test_two_origins_without_a_collective_between_them_are_undecided_however_far_apart_their_steps() -> None:
    found = origins([first(0, 10), first(1, 20, step=5)], [passage(8, 100)])

    assert told(found) == (None, [], [0, 1])


def test_a_collective_whose_end_is_not_known_counts_from_its_entry() -> None:
    found = origins([first(0, 101), first(1, 90)], [passage(8, 100, lasts=None)])

    assert told(found) == (1, [(0, 1, 8)], [])


def test_a_value_goes_from_rank_to_rank_over_groups_that_share_one() -> None:
    between = [passage(3, 100, (0, 1)), replace(passage(4, 200, (1, 2)), group="1")]

    found = origins([first(0, 50), first(1, 150), first(2, 250)], between)

    assert told(found) == (0, [(1, 0, 3), (2, 1, 4)], [])


def test_a_reduced_gradient_is_received_though_no_collective_was_recorded() -> None:
    reduced = [first(rank, 200, role=Role.GRAD, reduced=True) for rank in (0, 2)]

    found = origins([*reduced, first(1, 90)], [])

    assert told(found) == (1, [(0, 1, None), (2, 1, None)], [])
    assert found.basis == "reduction"


def test_without_collectives_the_least_step_decides_and_that_is_said() -> None:
    found = origins([first(0, 10, step=6), first(1, 20, step=4)], [])

    assert (told(found), found.basis) == ((1, [(0, 1, None)], []), "step")
    assert told(origins([first(0, 10), first(1, 20)], [])) == (None, [], [0, 1])


def test_one_rank_or_none_needs_no_order() -> None:
    assert told(origins([first(3, 10)], [])) == (3, [], [])
    assert told(origins([], [passage(1, 1)])) == (None, [], [])
