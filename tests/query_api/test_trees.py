"""Trees from rows that may not make one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_query_api.trees import build_forest


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
