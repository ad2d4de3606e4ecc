"""Every value that a query can order by gives a total order, whose pages put together are the whole."""

import math
from collections.abc import Iterator, Sequence

import pytest

from rankscope.tql import typed
from rankscope.tql.fields import Entity, Type
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.tql_sql.cursor import decode, encode
from rankscope_query_api.tql_sql.expressions import column
from rankscope_query_api.tql_sql.order import SortKey, beyond, order_by, row_order, value_order
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.sources import source
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.tql.rows import batches
from tests.query_api.tql.typed_rows import TypedRows, field, integer, real, written

TENSOR, SPAN = Entity.TENSOR, Entity.SPAN
L2, COUNT = field("tensor.l2", TENSOR), field("tensor.nan_count", TENSOR)
VALUES: dict[str, tuple[Entity, typed.Value]] = {
    "a float": (TENSOR, L2),
    "a narrow float": (TENSOR, field("tensor.absmax", TENSOR)),
    "an integer": (TENSOR, COUNT),
    "a word that may be nothing": (TENSOR, field("layer.type", TENSOR)),
    "a step": (TENSOR, field("step", TENSOR)),
    "a product": (TENSOR, typed.Arithmetic("*", L2, real(1e10), Type.FLOAT)),
    "a sum of integers": (TENSOR, typed.Arithmetic("+", COUNT, integer(1), Type.INTEGER)),
    "the greatest of mixed integers": (
        TENSOR,
        typed.Apply("max", (COUNT, typed.Apply("abs", (field("rank", TENSOR),), Type.INTEGER)), Type.INTEGER),
    ),
    "a root": (TENSOR, typed.Apply("sqrt", (L2,), Type.FLOAT)),
    "the first there is": (TENSOR, typed.Apply("coalesce", (COUNT, field("layer.index", TENSOR)), Type.INTEGER)),
    "the value before": (TENSOR, typed.History("prev", L2, Type.FLOAT)),
    "a mean": (TENSOR, typed.History("ema", field("tensor.mean", TENSOR), Type.FLOAT, 3)),
    "an end": (SPAN, field("span.end", SPAN)),
    "a trace id": (SPAN, field("span.trace_id", SPAN)),
    "a launch": (SPAN, field("launch", SPAN)),
    "an attribute": (SPAN, typed.Key("attr", "x", Type.ATTRIBUTE)),
    "a text attribute": (SPAN, typed.Key("attr", "device", Type.STRING)),
    "a metric": (SPAN, typed.Key("metric", "reward", Type.FLOAT)),
    "a run's name": (SPAN, field("run.name", SPAN)),
    "a count of children": (SPAN, field("span.child_count", SPAN)),
    "a trace's duration": (Entity.TRACE, field("trace.duration", Entity.TRACE)),
    "a run's start": (Entity.RUN, field("time", Entity.RUN)),
}


@pytest.fixture(scope="module")
def rows(front_process: FrontProcess) -> Iterator[TypedRows]:
    """The awkward rows."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *batches())
    yield TypedRows(store.client)
    store.drop()


def page(
    rows: TypedRows, entity: Entity, value: typed.Value, /, *, descending: bool, limit: int, after: str | None = None
) -> tuple[list[Sequence[object]], str]:
    """Rows of (value, sort keys) and the cursor behind the last of them."""
    scope = Scope(entity, "default", None)
    side = source(value, scope)
    keys = [*value_order(side, is_descending=descending), *row_order(entity)]
    shown = [side.or_null.as_("c0"), *(key.value.as_(f"k{at}") for at, key in enumerate(keys))]
    select = scope.rows().select(*shown)
    if after is not None:
        select = select.where(beyond(keys, decode(after, "mark", keys=keys).row, parameters=scope.parameters))
    text = written(select.order_by(*order_by(keys)).limit(limit))
    found = rows.client.query(text, parameters=scope.parameters.values).result_rows
    return list(found), encode("mark", 1, row=found[-1][1:] if found else ())


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_pages_are_the_whole_with_what_is_missing_last(rows: TypedRows, name: str, descending: bool) -> None:
    entity, value = VALUES[name]

    whole, _ = page(rows, entity, value, descending=descending, limit=10**6)
    paged: list[Sequence[object]] = []
    after = None
    while (found := page(rows, entity, value, descending=descending, limit=13, after=after))[0]:
        paged, after = [*paged, *found[0]], found[1]

    assert [repr(row) for row in paged] == [repr(row) for row in whole]
    assert len({repr(row[1:]) for row in whole}) == len(whole) > 0
    shown = [row[0] for row in whole]
    there = [one for one in shown if one is not None and one == one]
    assert there == sorted(there, reverse=descending)  # pyright: ignore[reportArgumentType]
    assert all(one is None or one != one for one in shown[len(there) :])
    assert all(one is None for one in shown[len(there) + sum(one is not None and one != one for one in shown) :])


KEYS = [SortKey(column("a"), "Int64"), SortKey(column("b"), "Float64"), SortKey(column("c"), "String")]


@pytest.mark.parametrize("row", [(2**63 - 1, math.inf, "λ"), (-(2**63), -0.0, "")])
def test_a_cursor_brings_back_what_it_was_made_of(row: tuple[int, float, str]) -> None:
    assert decode(encode("mark", 7, row=row), "mark", keys=KEYS).row == list(row)
    assert decode(encode("mark", 7, row=row), "mark", keys=KEYS).returned == 7


@pytest.mark.parametrize(
    "row",
    [(2**63, 1.0, ""), (True, 1.0, ""), (0, math.nan, ""), (0, 1, ""), (0, 1.0, "\ud800"), (0, 1.0, 3), (0, 1.0)],
)
def test_a_cursor_that_no_page_gave_is_refused(row: Sequence[int | float | str]) -> None:
    with pytest.raises(InvalidRequestError, match="no cursor of this query"):
        decode(encode("mark", 7, row=row), "mark", keys=KEYS)


@pytest.mark.parametrize("text", ["", "x", "bm9wZQ", "A" * 5000, "Ww", encode("other", 1, row=(1, 1.0, ""))])
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="no cursor of this query"):
        decode(text, "mark", keys=KEYS)
