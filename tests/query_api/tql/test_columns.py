"""A column that passes through stages keeps its name and its words, and none has another's key in an item."""

from collections.abc import Iterator

import pytest

from rankscope_query_api.answers import iso_time
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.tql import training
from tests.query_api.tql.conftest import Asked


@pytest.fixture(scope="module")
def trained(front_process: FrontProcess) -> Iterator[Asked]:
    """The training in a database of its own."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *training.batches())
    yield Asked(store.client)
    store.drop()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (
            'tensor.role == "grad" and step == 98 | max(tensor.l2) by tensor.role | select tensor.role, max',
            {"role": "grad", "max": 200.0},
        ),
        (
            "exists(tensor.name) | select tensor.role, tensor.l2 | select tensor.role | limit 1",
            {"role": "activation"},
        ),
        (
            'tensor.role == "grad" and step == 98 | select tensor.role, rank | count() by tensor.role',
            {"role": "grad", "count": 8},
        ),
        (
            'tensor.role == "grad" | count() by tensor.role, rank | max(count) by tensor.role',
            {"role": "grad", "max": 12},
        ),
        (
            'tensor.role == "grad" | count() by tensor.role, step, rank | across rank: median(count) by tensor.role',
            {"role": "grad", "median": 2.0},
        ),
        (
            (
                'span.name == "step" and step == 98 and rank == 0 | count() by span.span_id, span.trace_id '
                "| select span.trace_id, span.span_id"
            ),
            {"trace_id": f"{9:016x}{98:016x}", "span_id": f"{training.span_id(98, 0, 0):016x}"},
        ),
        (
            (
                'span.name == "step" and step == 98 and rank == 0 | count() by span.parent_id, span.kind '
                "| select coalesce(span.kind, span.kind), span.parent_id"
            ),
            {"coalesce(span.kind, span.kind)": "custom", "parent_span_id": None},
        ),
        (
            'span.name == "step" and step == 98 and rank == 0 | select span.start | max(span.start) | select max',
            {"max": iso_time(training.start_of(98)), "max_ns": training.start_of(98)},
        ),
    ],
)
def test_a_column_is_written_behind_a_stage_as_before_it(trained: Asked, query: str, wanted: dict[str, object]) -> None:
    assert trained.page(query).items[:1] == [wanted]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("exists(gap.cause) | count() by gap.count", ["gap.count", "count"]),
        ("exists(gap.cause) | count() by gap.count | select count, gap.count", ["count", "gap.count"]),
        ("exists(gap.cause) | sum(gap.count) by gap.count", ["count", "sum"]),
        ("exists(gap.cause) | select gap.count | count() by gap.count", ["gap.count", "count"]),
        ("exists(tensor.name) | max(tensor.l2) by tensor.max", ["tensor.max", "max"]),
        ("exists(tensor.name) | min(tensor.l2) by tensor.min, rank", ["tensor.min", "rank", "min"]),
        ("exists(span.name) | first(span.name) by span.duration", ["duration_ns", "first"]),
    ],
)
def test_no_two_values_of_an_item_have_one_key(trained: Asked, query: str, keys: list[str]) -> None:
    answer = trained.page(query)

    assert answer.compiled.keys == keys
    assert [list(item) for item in answer.items] == [keys] * len(answer.rows)
    assert answer.rows
