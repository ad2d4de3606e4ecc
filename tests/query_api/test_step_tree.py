"""The tree of a step across ranks: merged by path, ordered as the clocks allow, with reasons for who is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from rankscope_query_api.ranks.missing import MOST_ABSENT, Hearsay, MissingRank, absent_of, reasons
from rankscope_query_api.ranks.step_groups import MOST_GROUPS, grouped
from rankscope_query_api.ranks.step_order import RankClock
from rankscope_query_api.ranks.step_places import settled
from rankscope_query_api.ranks.step_tree import Given, MergedTree, chosen, merge_step
from rankscope_query_api.step_rows import EdgeFaults, HeardRank, PathTotals, StepCharges, StepProcess
from rankscope_query_api.values import SILENT_NS


def totals(path: str, durations: Mapping[int, int], *, start: int = 0, microbatch: int | None = None) -> PathTotals:
    """What ranks did at one path: one span each, of these durations, begun together."""
    ranks = list(durations)
    ones = [1] * len(ranks)
    return PathTotals(
        path=path,
        name=path.rpartition("/")[2],
        microbatch=microbatch,
        kind=13,
        phase=0,
        ranks=ranks,
        processes=ranks,
        counts=ones,
        copies=ones,
        errors=[0] * len(ranks),
        durations_ns=list(durations.values()),
        starts_ns=[start] * len(ranks),
    )


def merged(*rows: PathTotals, given: Given | None = None) -> MergedTree:
    """Their tree."""
    return merge_step(rows, given or Given())


def process(rank: int, *, incarnation: str = "", spans: int = 10) -> StepProcess:
    """A trainer that has the step."""
    name = incarnation or f"{rank:032x}"
    return StepProcess(name, int(name, 16), rank, f"node-{rank // 2}", spans, rows=spans, roots=1, start_ns=0)


def test_ranks_are_merged_by_path_with_the_slowest_named() -> None:
    tree = merged(totals("step", {0: 10, 1: 30, 2: 11}))

    [node] = tree.nodes
    spread = node.spread
    assert (spread.min_ns, spread.median_ns, spread.max_ns, spread.slowest_rank) == (10, 11, 30, 1)


def test_ranks_without_a_path_are_told_with_the_reason_that_is_known() -> None:
    given = Given(gap_causes={1: "lost: ring_full"})

    tree = merged(totals("step", {0: 10, 1: 9, 2: 10}), totals("step/checkpoint", {2: 3}, start=1), given=given)

    assert [(one.rank, one.reason) for one in tree.nodes[1].missing_ranks] == [(0, "no_span"), (1, "gap")]
    assert not tree.nodes[0].missing_ranks


def test_a_path_whose_parents_are_not_stored_gets_places_for_them() -> None:
    tree = merged(totals("step/forward/a%2Fb", {0: 5}))

    assert [(node.path, node.name, node.depth, node.count) for node in tree.nodes[:2]] == [
        ("step", "step", 0, 0),
        ("step/forward", "forward", 1, 0),
    ]
    assert (tree.nodes[0].spread.slowest_rank, tree.depth) == (None, 2)


def test_siblings_come_by_their_earliest_start_and_say_where_that_order_is_not_known() -> None:
    rows = [totals("step", {0: 9}), totals("step/b", {0: 1}, start=1), totals("step/a", {1: 1}, start=2)]

    tree = merged(*rows)

    assert [(node.path, node.order_known) for node in tree.nodes] == [
        *(("step", True), ("step/b", True), ("step/a", False))
    ]
    assert "1 places begin closer to the one before" in tree.warnings[-1]


@pytest.mark.parametrize(("error", "known"), [(40, True), (60, False), (None, False)])
def test_places_of_two_clocks_are_ordered_where_they_are_farther_apart_than_the_errors(
    error: int | None, known: bool
) -> None:
    clocks = {0: RankClock("a", 50), 1: RankClock("b", error)}

    tree = merged(totals("a", {0: 1}, start=0), totals("b", {1: 1}, start=100), given=Given(clocks=clocks))

    assert tree.nodes[1].order_known is known


def test_places_of_one_clock_are_ordered_however_little_is_known_of_it() -> None:
    clocks = {rank: RankClock("node", None) for rank in range(2)}

    tree = merged(totals("a", {0: 1}, start=0), totals("b", {1: 1}, start=1), given=Given(clocks=clocks))

    assert tree.nodes[1].order_known


def test_a_rank_that_has_both_places_orders_them() -> None:
    tree = merged(totals("a", {0: 1, 1: 1}, start=0), totals("b", {1: 1}, start=1))

    assert tree.nodes[1].order_known


def test_a_clock_hours_off_that_was_not_measured_stretches_no_place() -> None:
    hours = 5 * 3_600 * 10**9
    row = PathTotals("step", "step", None, 1, 0, [0, 1], [0, 1], [1, 1], [1, 1], [0, 0], [10, 11], [100, hours])
    clocks = {0: RankClock("a", 1), 1: RankClock("b", None)}

    tree = merged(row, given=Given(clocks=clocks))

    assert (tree.nodes[0].first_start_ns, tree.nodes[0].last_start_ns) == (100, 100)
    assert tree.nodes[0].spread.max_ns == 11


def test_a_wait_is_the_backward_time_over_the_least_of_all_ranks() -> None:
    times = dict(enumerate((90, 20, 95)))

    tree = merged(totals("step", times), totals("step/backward", times))

    assert [(rank.rank, rank.wait_ns, rank.charged_ns) for rank in tree.ranks] == [
        *((0, 70, None), (1, 0, None), (2, 75, None))
    ]


def test_charges_are_shown_at_ranks_and_at_the_places_that_caused_them() -> None:
    charges = StepCharges({1: 50}, {"step/input": {1: 45}})
    rows = [totals("step", {0: 9, 1: 9}), totals("step/input", {0: 1, 1: 8}), totals("step/forward", {0: 1, 1: 1})]

    tree = merged(*rows, given=Given(charges=charges))

    assert [(node.path, node.spread.charged_wait_ns) for node in tree.nodes] == [
        *(("step", 50), ("step/forward", 0), ("step/input", 45))
    ]
    assert [rank.charged_ns for rank in tree.ranks] == [0, 50]


def test_microbatches_are_kept_apart_below_their_phase_which_has_their_sum() -> None:
    rows = [totals("step", {0: 9})]
    for number in range(2):
        rows += [totals("step/forward", {0: 3 + number}, start=number, microbatch=number)]
        rows += [totals("step/forward/layers.0", {0: 2}, start=number, microbatch=number)]

    tree = merged(*rows)

    assert [(node.path, node.microbatch, node.count, node.spread.max_ns) for node in tree.nodes] == [
        ("step", None, 1, 9),
        ("step/forward", None, 2, 7),
        ("step/forward/microbatch 0", 0, 1, 3),
        ("step/forward/microbatch 0/layers.0", 0, 1, 2),
        ("step/forward/microbatch 1", 1, 1, 4),
        ("step/forward/microbatch 1/layers.0", 1, 1, 2),
    ]
    assert (tree.nodes[2].name, tree.ranks[0].forward_ns) == ("microbatch 0", 7)


def test_copies_late_spans_and_orphans_are_reported() -> None:
    row = PathTotals("step", "step", None, 1, 0, [0], [0], [1], [3], [0], [10], [0])

    tree = merged(row, given=Given(edges=[EdgeFaults("step", None, orphans=2, late=4)]))

    assert (tree.copies, tree.nodes[0].orphans, tree.nodes[0].late) == (2, 2, 4)
    assert [warning.split()[0] for warning in tree.warnings] == ["2", "2", "4"]


def test_of_two_processes_that_are_one_rank_the_one_with_more_spans_is_shown() -> None:
    trainer, other, twin = process(0), process(1), process(1, incarnation="f" * 32, spans=11)
    worker = replace(process(1, incarnation="a" * 32, spans=99), roots=0)

    kept, left_out = chosen([trainer, other, twin, worker])
    tree = merged(totals("step", {0: 1, 1: 1}), given=Given(processes=[trainer, other, twin, worker]))

    assert (kept, left_out) == ([trainer, twin, worker], [other])
    assert "more than one process has this step as rank 1" in tree.warnings[0]


def test_starts_are_put_on_one_clock_and_processes_that_do_not_count_are_left_out() -> None:
    both = PathTotals(
        "step", "step", None, 1, 0, [0, 0, 1], [5, 6, 7], [1, 2, 3], [1, 2, 3], [0] * 3, [9, 8, 7], [100] * 3
    )

    kept = settled(both, {6: 30, 7: -30}, left_out=frozenset({5}))

    assert (kept.ranks, kept.counts, kept.durations_ns, kept.starts_ns) == ([0, 1], [2, 3], [8, 7], [130, 70])


def test_what_a_ranks_worker_did_is_added_to_its_own() -> None:
    row = PathTotals(
        "step", "step", None, 1, 0, [0, 0, 1], [5, 6, 7], [1, 2, 3], [1, 2, 3], [0] * 3, [9, 8, 7], [5, 4, 3]
    )

    tree = merged(row)

    assert (tree.nodes[0].count, tree.nodes[0].first_start_ns, tree.nodes[0].spread.max_ns) == (6, 3, 17)


def test_negative_durations_are_kept_as_they_are() -> None:
    # SigNoz collector 814: one nanosecond backwards became 213,503 days.
    spread = merged(totals("step", {0: -1, 1: 5})).nodes[0].spread

    assert (spread.min_ns, spread.max_ns) == (-1, 5)


def test_a_path_1_000_names_deep_is_merged() -> None:
    tree = merged(totals("/".join(["a"] * 1000), {0: 5}))

    assert (len(tree.nodes), tree.depth) == (1000, 999)


def test_places_are_grouped_by_what_ranks_share_the_slowest_group_first() -> None:
    place = merged(totals("step", {0: 4, 1: 6, 2: 10, 3: 2})).places["step"]

    groups = grouped(place, {0: 0, 1: 0, 2: 1}, charged={2: 7})

    assert [(one.name, one.spread.ranks, one.spread.min_ns, one.spread.max_ns) for one in groups.shown] == [
        *((1, 1, 10, 10), (0, 2, 4, 6), (None, 1, 2, 2))
    ]
    assert [one.spread.charged_wait_ns for one in groups.shown] == [7, 0, 0]


def test_the_slowest_groups_are_shown_and_all_are_counted() -> None:
    place = merged(totals("step", {rank: rank for rank in range(1000)})).places["step"]

    groups = grouped(place, {rank: rank for rank in range(1000)}, charged=None)

    assert (len(groups.shown), groups.total, groups.shown[0].name) == (MOST_GROUPS, 1000, 999)


def test_of_absent_ranks_the_first_are_named_and_all_are_counted() -> None:
    absent, total = absent_of(2**31 - 1, {-1, 0, 2})

    assert (absent[:2], len(absent), total) == ([1, 3], MOST_ABSENT, 2**31 - 3)


HERE, THERE = "b" * 32, "a" * 32


def heard(launch: str = HERE, *, silent_ns: int = 0, ended: bool = False, is_gone: bool = False) -> Sequence[HeardRank]:
    """Rank 3, as it was heard."""
    return [HeardRank(launch, 3, "c" * 32, silent_ns, ended, is_gone)]


@pytest.mark.parametrize(
    ("known", "causes", "later", "reason"),
    [
        ([], {}, (), "never_attached"),
        (heard(THERE), {3: "lost: ring_full"}, (), "other_launch"),
        (heard(), {3: "lost: ring_full"}, (3,), "gap"),
        (heard(ended=True), {}, (3,), "unexplained"),
        (heard(ended=True, silent_ns=2 * SILENT_NS), {}, (), "ended"),
        (heard(is_gone=True), {}, (), "dead"),
        (heard(silent_ns=2 * SILENT_NS), {}, (), "silent"),
        (heard(silent_ns=SILENT_NS // 2), {}, (), "behind"),
        ([*heard(is_gone=True, silent_ns=9), *heard(silent_ns=1)], {}, (), "behind"),
    ],
)
def test_a_missing_rank_has_the_reason_that_rows_give(
    known: Sequence[HeardRank], causes: Mapping[int, str], later: Sequence[int], reason: str
) -> None:
    attempts = {THERE: 0, HERE: 1}

    [found] = reasons([3], Hearsay(HERE, known, attempts, causes, frozenset(later)))

    assert (found.rank, found.reason) == (3, reason)
    assert isinstance(found, MissingRank)
    assert found.detail
