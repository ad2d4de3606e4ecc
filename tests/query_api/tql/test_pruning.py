"""A condition on the step reads that step's rows, not the run."""

import re
from collections.abc import Iterator

import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import SEALED, batch, insert, migrate, with_rows
from tests.query_api.tql.conftest import Asked

STEPS = 20
ROWS_OF_A_STEP = 8192


@pytest.fixture(scope="module")
def long_run(front_process: FrontProcess) -> Iterator[Asked]:
    """A run with a granule of rows per step."""
    store = Store(front_process.url)
    migrate(store.client)
    count = STEPS * ROWS_OF_A_STEP
    made = batch(strings=["", "layers.0"])
    steps = [number // ROWS_OF_A_STEP for number in range(count)]
    with_rows(made, "tensor_stats", name=[1] * count, step=steps, time=[SEALED] * count, l2=[1.0] * count)
    insert(store.client, made)
    yield Asked(store.client)
    store.drop()


def granules(asked: Asked, text: str, *, after: str | None = None) -> int:
    """Granules that the page of a query reads after the sorting key was looked at."""
    compiled = compile_query(tql.check(tql.parse(text)), project="default", run="run-1", after=after, limit=10)
    plan = asked.client.query(f"EXPLAIN indexes = 1 {compiled.sql}", parameters=compiled.parameters).result_rows
    return min(int(found[1]) for line in plan if (found := re.search(r"Granules: (\d+)/\d+", line[0])))


@pytest.mark.parametrize(
    "text",
    [
        "step == 7 and tensor.l2 > 0",
        "step in [7, 8] and tensor.l2 > 0",
        "step in 7..8 and tensor.l2 > 0 | top 5 by tensor.l2",
        "step >= 18 and tensor.l2 > 0 | count() by rank",
        "not (step < 18 or missing(step)) and tensor.l2 > 0",
        "tensor.l2 > 0 and (step == 3 or step == 4)",
    ],
)
def test_a_condition_on_the_step_uses_the_sorting_key(long_run: Asked, text: str) -> None:
    assert granules(long_run, "tensor.l2 > 0") >= STEPS
    assert granules(long_run, text) <= 4


def test_a_later_page_does_not_read_what_lies_before(long_run: Asked) -> None:
    query = "tensor.l2 > 0 and step in 3..19"
    late = long_run.page("step == 18 and tensor.l2 > 0", limit=1)

    # The same query's cursor, with the row of a late step.
    early = compile_query(tql.check(tql.parse(query)), project="default", run="run-1", limit=10)
    rows = long_run.client.query(early.sql, parameters=early.parameters).result_rows
    beyond = early.next([(*rows[-1][: len(early.columns)], *late.rows[0][len(late.compiled.columns) :])], count=10**6)

    assert granules(long_run, query, after=beyond) <= 4
    assert granules(long_run, query) >= STEPS - 4
