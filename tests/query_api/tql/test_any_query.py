"""Whatever passes the check is compiled, passes the guard, and is answered by the engine."""

from hypothesis import HealthCheck, assume, given, settings

from rankscope import tql
from rankscope.tql import nodes
from tests.query_api.tql.conftest import Asked
from tests.tql.known_trees import queries


@given(queries)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
def test_a_query_that_passes_the_check_is_answered(ask: Asked, tree: nodes.Query) -> None:
    try:
        tql.check(tree)
        text = tql.format(tree)
        tql.parse(text)
    except tql.TqlError:
        assume(False)
        raise

    answer = ask.page(text, limit=10)

    assert len(answer.items) == len(answer.rows) <= max(answer.total, 0)
