"""A statement that could read another project's rows, or that holds a user's text, is never sent."""

import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.tql_sql.guard import UnguardedStatementError, check_statement
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.rows import spans

OURS = "project = {project:String}"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM spans",
        "SELECT name FROM spans WHERE project = {p0:String}",
        "SELECT name FROM spans WHERE project = {project:String} OR rank = 1",
        "SELECT name FROM spans WHERE NOT (project = {project:String})",
        "SELECT name FROM spans WHERE project != {project:String}",
        "SELECT name FROM spans WHERE run_id = {project:String}",
        f"SELECT name FROM spans WHERE {OURS} AND rank IN (SELECT rank FROM tensor_stats)",
        f"SELECT a FROM (SELECT name AS a FROM spans) AS s WHERE {OURS}",
        f"SELECT name FROM spans WHERE {OURS} UNION ALL SELECT name FROM spans",
        f"SELECT name FROM spans, tensor_stats WHERE {OURS}; SELECT 1",
        f"SELECT name FROM system.tables WHERE {OURS}",
        f"SELECT name FROM other.spans WHERE {OURS}",
        f"SELECT name FROM batches WHERE {OURS}",
        f"SELECT name FROM spans WHERE {OURS} AND name = 'text'",
        "SELECT * FROM url('http://example.org', CSV)",
    ],
)
def test_an_unguarded_statement_is_refused(sql: str) -> None:
    with pytest.raises((UnguardedStatementError, ValueError)):
        check_statement(sql, with_run=False)


def test_a_run_that_was_asked_for_has_to_be_compared() -> None:
    sql = f"SELECT name FROM spans WHERE {OURS}"

    check_statement(sql, with_run=False)
    with pytest.raises(UnguardedStatementError, match="spans is read without run_id"):
        check_statement(sql, with_run=True)


@pytest.mark.parametrize(
    "text", ["exists(tensor.name)", "exists(span.name) and tensor.numel < 9", "exists(span.name) | count() by rank"]
)
def test_rows_of_another_project_or_run_are_in_no_answer(ask: Asked, text: str) -> None:
    elsewhere = compile_query(tql.check(tql.parse(text)), project="no-such-project")

    assert ask.page(text).total > 0
    assert ask.page(text, run="no-such-run").rows == []
    assert ask.client.query(elsewhere.sql, parameters=elsewhere.parameters).result_rows == []


def test_the_same_rows_of_another_project_are_not_counted(ask: Asked) -> None:
    in_both = ask.client.query("SELECT count() FROM spans").result_rows[0][0]

    assert ask.page("exists(span.span_id)").total == in_both - len(spans(0))
