"""Trees from rows that may not make one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_query_api.trees import build_forest, merge_step
from rankscope_query_api.values import PathTotal


def test_children_follow_their_parents_in_row_order() -> None:
    forest = build_forest([1, 2, 3, 4], [0, 1, 1, 2])

    assert list(forest.preorder()) == [(0, 0), (1, 1), (3, 2), (2, 1)]
    assert not forest.warnings()


def test_a_span_that_is_its_own_parent_is_a_root_that_says_so() -> None:
    # jaeger-ui 821: the page looped for ever.
    forest = build_forest([1, 2], [1, 1])

    assert forest.roots == [0]
    assert forest.cycles_cut == {0}
    assert list(forest.preorder()) == [(0, 0), (1, 1)]


def test_a_cycle_without_a_root_is_cut_at_its_earliest_span() -> None:
    # jaeger-ui 4320: a blank page, since no root existed.
    forest = build_forest([1, 2, 3, 4], [3, 1, 2, 2])

    assert forest.roots == [0]
    assert forest.cycles_cut == {0}
    assert sorted(row for row, _ in forest.preorder()) == [0, 1, 2, 3]


def test_what_hangs_on_a_cycle_stays_below_it() -> None:
    forest = build_forest([9, 1, 2, 3], [3, 2, 1, 1])

    assert forest.roots == [1]
    assert [(row, depth) for row, depth in forest.preorder()] == [(1, 0), (2, 1), (3, 1), (0, 2)]


def test_a_tree_150_deep_is_whole() -> None:
    # SigNoz 2523: a waterfall of more than 100 levels was garbled.
    forest = build_forest(range(1, 151), range(150))

    assert list(forest.preorder()) == [(row, row) for row in range(150)]


def test_a_span_whose_parent_never_came_is_an_orphan_and_no_sibling_of_roots() -> None:
    # tempo 2658: spans without their parent were matched as children of others.
    forest = build_forest([1, 2, 3], [0, 77, 2])

    assert forest.roots == [0, 1]
    assert forest.orphans == {1}
    assert "1 spans name a parent that is not stored" in forest.warnings()[0]


def test_a_span_stored_three_times_is_shown_once_and_counted() -> None:
    # SigNoz 7281.
    forest = build_forest([1, 2, 2, 2, 3], [0, 1, 1, 1, 2])

    assert forest.size == 3
    assert forest.copies == 2
    assert len(list(forest.preorder())) == 3


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 14)), max_size=40))
def test_every_span_is_in_the_forest_once_whatever_the_rows(rows: list[tuple[int, int]]) -> None:
    ids, parents = [row[0] for row in rows], [row[1] for row in rows]

    forest = build_forest(ids, parents)

    shown = [ids[row] for row, _ in forest.preorder()]
    assert sorted(shown) == sorted(set(ids))
    assert forest.copies == len(ids) - len(set(ids))


@pytest.mark.parametrize("shape", ["chain", "star", "random", "cycle"])
def test_a_forest_of_100_000_spans_is_walked_whole(shape: str) -> None:
    count = 100_000
    choose = random.Random(7)
    parents = {
        "chain": range(count),
        "star": [0] + [1] * (count - 1),
        "random": [choose.randrange(max(1, row)) for row in range(count)],
        "cycle": [count, *range(1, count)],
    }[shape]

    forest = build_forest(range(1, count + 1), parents)

    assert sum(1 for _ in forest.preorder()) == count


def total(rank: int, path: str, duration: int, *, start: int = 0, count: int = 1, copies: int = 1) -> PathTotal:
    """One rank's time at one path."""
    return PathTotal(
        rank=rank,
        path=path,
        name=path.rpartition("/")[2],
        kind=13,
        phase=0,
        count=count,
        copies=copies,
        errors=0,
        duration_ns=duration,
        start_ns=start,
        node="node-0",
        processes=1,
    )


def test_ranks_are_merged_by_path_with_the_slowest_named() -> None:
    tree = merge_step([total(0, "step", 10), total(1, "step", 30), total(2, "step", 11)], world_size=3)

    [node] = tree.nodes
    assert (node.min_ns, node.median_ns, node.max_ns, node.slowest_rank) == (10, 11, 30, 1)


def test_ranks_without_the_step_and_ranks_without_a_path_are_told_apart() -> None:
    rows = [total(0, "step", 10), total(2, "step", 10), total(2, "step/checkpoint", 3, start=1)]

    tree = merge_step(rows, world_size=4)

    assert tree.missing_ranks == [1, 3]
    assert [(node.path, node.missing_ranks) for node in tree.nodes] == [("step", []), ("step/checkpoint", [0])]


def test_a_path_whose_parents_are_not_stored_gets_places_for_them() -> None:
    tree = merge_step([total(0, "step/forward/a%2Fb", 5)], world_size=1)

    assert [(node.path, node.depth, node.count) for node in tree.nodes] == [
        ("step", 0, 0),
        ("step/forward", 1, 0),
        ("step/forward/a%2Fb", 2, 1),
    ]
    assert tree.nodes[0].slowest_rank is None


def test_siblings_come_by_their_earliest_start() -> None:
    rows = [total(0, "step", 9), total(0, "step/b", 1, start=1), total(1, "step/a", 1, start=2)]

    tree = merge_step(rows, world_size=2)

    assert [node.path for node in tree.nodes] == ["step", "step/b", "step/a"]


def test_a_wait_is_the_backward_time_over_the_least_of_all_ranks() -> None:
    rows = [total(rank, path, time) for rank, time in enumerate((90, 20, 95)) for path in ("step", "step/backward")]

    tree = merge_step(rows, world_size=3)

    assert [(rank.rank, rank.wait_ns) for rank in tree.ranks] == [(0, 70), (1, 0), (2, 75)]


def test_copies_and_a_shared_rank_are_reported() -> None:
    rows = [total(0, "step", 10, count=1, copies=3)]
    shared = PathTotal(0, "step", "step", 13, 0, 2, 2, 0, 20, 0, "node-0", processes=2)

    assert "2 rows repeat a span" in merge_step(rows, world_size=1).warnings[0]
    assert "two processes wrote this step for rank 0" in merge_step([shared], world_size=1).warnings[0]


def test_negative_durations_are_kept_as_they_are() -> None:
    # SigNoz collector 814: one nanosecond backwards became 213,503 days.
    tree = merge_step([total(0, "step", -1), total(1, "step", 5)], world_size=2)

    assert (tree.nodes[0].min_ns, tree.nodes[0].max_ns) == (-1, 5)


def test_a_path_1_000_names_deep_is_merged() -> None:
    tree = merge_step([total(0, "/".join(["a"] * 1000), 5)], world_size=1)

    assert len(tree.nodes) == 1000
    assert tree.nodes[-1].depth == 999
