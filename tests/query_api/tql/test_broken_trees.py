"""Relatives in trees that are not whole: orphans, cycles, spans that are stored twice."""

from collections.abc import Iterator

import pytest

from rankscope_proto import columns
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import SEALED, batch, insert, migrate
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.rows import fill

PARENTS = {
    1: 0,
    2: 1,
    3: 2,
    4: 3,  # a whole branch
    5: 999,
    6: 5,  # an orphan and its child
    7: 8,
    8: 7,
    9: 8,  # a cycle, and a span below it
    **{20 + level: 19 + level if level else 0 for level in range(140)},  # deeper than is looked
}


@pytest.fixture(scope="module")
def broken(front_process: FrontProcess) -> Iterator[Asked]:
    """One trace of such trees, every row twice."""
    store = Store(front_process.url)
    migrate(store.client)
    made = batch(strings=[""])
    index = {"": 0}
    rows = [
        {"span_id": span, "trace_hi": 1, "trace_lo": 1, "parent_span_id": parent, "name": f"s{span}", "start": SEALED}
        for span, parent in PARENTS.items()
    ]
    fill(made, columns.SPANS, [*rows, *rows], index)
    del made.strings[:]
    made.strings.extend(index)
    insert(store.client, made)
    yield Asked(store.client)
    store.drop()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("span.name == 's1' >> exists(span.name)", {2, 3, 4}),
        ("span.name == 's1' > exists(span.name)", {2}),
        ("span.name == 's4' << exists(span.name)", {1, 2, 3}),
        ("span.name == 's5' >> exists(span.name)", {6}),
        ("span.name == 's999' >> exists(span.name)", set[int]()),
        ("span.name == 's7' >> exists(span.name)", {7, 8, 9}),
        ("span.name == 's9' << exists(span.name)", {7, 8}),
        ("span.name == 's1' ~ exists(span.name)", set[int]()),
        ("span.name == 's7' ~ exists(span.name)", {9}),
        ("span.name == 's9' ~ exists(span.name)", {7}),
        ("span.name == 's1' !>> span.name in ['s1', 's4', 's5', 's6', 's7', 's9', 's20', 's21']", {1, 20, 21}),
        ("span.name == 's1' !> span.name in ['s1', 's2', 's3', 's5', 's6', 's9']", {1, 3, 6, 9}),
        ("span.name == 's20' >> span.name in ['s21', 's148', 's159']", {21, 148}),
    ],
)
def test_relatives_are_found_where_the_tree_says_so(broken: Asked, query: str, found: set[int]) -> None:
    for run in (None, "run-1"):
        items = broken.page(query, run=run).items

        assert sorted(int(item["span_id"], 16) for item in items) == sorted([*found, *found])
