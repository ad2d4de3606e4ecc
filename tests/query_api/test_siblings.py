"""Pages of siblings, and where cycles of parents are cut, without a tree."""

import random

from hypothesis import given
from hypothesis import strategies as st

from rankscope_query_api.places import SpanPlace
from rankscope_query_api.siblings import cycle_cuts, page_of
from rankscope_query_api.trees import build_forest


def places(*starts: int, parent: int = 0) -> list[SpanPlace]:
    """Spans whose ids are their starts."""
    return [SpanPlace(start, start, parent) for start in starts]


def test_a_page_is_filled_from_the_stored_and_the_other_siblings_in_order() -> None:
    page = page_of(places(1, 4, 5), places(3, 2), limit=3, after=None)

    assert [one.start_ns for one in page.shown] == [1, 2, 3]
    assert page.next == (3, 3)


def test_the_page_after_a_key_begins_behind_it_and_the_last_one_has_no_next() -> None:
    page = page_of(places(4, 5), places(3, 2, 6), limit=3, after=(3, 3))

    assert [one.start_ns for one in page.shown] == [4, 5, 6]
    assert page.next is None


def test_a_sibling_that_is_stored_meanwhile_is_shown_once() -> None:
    page = page_of(places(1, 2), places(2), limit=9, after=None)

    assert [one.start_ns for one in page.shown] == [1, 2]


def test_copies_make_a_page_shorter_and_lose_no_sibling() -> None:
    first = page_of(places(1, 1, 1), places(2, 5), limit=2, after=None)
    second = page_of(places(3, 4), places(2, 5), limit=2, after=first.next)

    assert [one.start_ns for one in (*first.shown, *second.shown)] == [1, 2, 3]
    assert (first.next, second.next) == ((1, 1), (3, 3))


def test_a_span_that_is_its_own_parent_is_cut_from_itself() -> None:
    assert cycle_cuts([7], [7], starts=[1]) == {7: SpanPlace(1, 7, 7)}


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 14)), max_size=40))
def test_cycles_are_cut_where_a_forest_of_all_spans_is_cut(rows: list[tuple[int, int]]) -> None:
    ids, parents = [row[0] for row in rows], [row[1] for row in rows]
    forest = build_forest(ids, parents)

    # Spans that are not there, or have no children, are in no cycle: leaving them out changes nothing.
    inner = [row for row in range(len(rows)) if ids[row] in parents]
    cuts = cycle_cuts([ids[row] for row in inner], [parents[row] for row in inner], starts=inner)

    assert {forest.position[span_id] for span_id in cuts} == set(forest.cycles_cut)


def test_a_cycle_of_100_000_spans_is_cut_once() -> None:
    count = 100_000
    parents = [*range(2, count + 1), 1]
    starts = random.Random(7).sample(range(count), count)

    (cut,) = cycle_cuts(range(1, count + 1), parents, starts=starts).values()

    assert cut.start_ns == 0
