"""No statement reads beyond its project, and the check that says so does not depend on the compiler."""

import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.tql_sql.guard import UnguardedStatementError, check_statement
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.corpus import VALID
from tests.query_api.tql.rows import spans

OURS = "project = {project:String}"
READ = f"SELECT name FROM spans PREWHERE {OURS}"
IDS = f"SELECT span_id FROM spans PREWHERE {OURS}"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM spans",
        f"SELECT name FROM spans WHERE {OURS}",
        "SELECT name FROM spans PREWHERE project = {p0:String}",
        f"SELECT name FROM spans PREWHERE {OURS} OR rank = 1",
        f"SELECT name FROM spans PREWHERE (rank = 1 OR {OURS}) AND rank = 2",
        f"SELECT name FROM spans PREWHERE NOT ({OURS})",
        "SELECT name FROM spans PREWHERE project != {project:String}",
        "SELECT name FROM spans PREWHERE run_id = {project:String}",
        "SELECT name FROM spans PREWHERE project = {project:String} + 1",
        f"{READ} WHERE rank IN (SELECT rank FROM tensor_stats)",
        f"{READ} WHERE rank IN tensor_stats",
        f"{READ} WHERE rank IN (tensor_stats)",
        f'{READ} WHERE rank IN ("tensor_stats")',
        f"{READ} WHERE rank IN (default.tensor_stats)",
        f"{READ} WHERE rank IN ((tensor_stats))",
        f"{READ} WHERE rank IN (FROM tensor_stats SELECT rank)",
        f"{READ} WHERE rank IN (select rank from tensor_stats)",
        f"{READ} WHERE rank = (from tensor_stats select rank)",
        f"{READ} WHERE rank = (select * from tensor_stats)",
        f"{READ} WHERE rank = [SELECT rank FROM tensor_stats]",
        f"{READ} WHERE 1 = 1 union all select name from tensor_stats",
        f"{READ} WHERE 1 = 1 settings readonly = 0",
        f"{READ} WHERE in(rank, tensor_stats)",
        f"{READ} WHERE (SELECT max(rank) FROM tensor_stats) = rank",
        f"SELECT a FROM (SELECT name AS a FROM spans) AS s PREWHERE {OURS}",
        f"{READ} UNION ALL SELECT name FROM spans",
        f"SELECT name FROM spans, tensor_stats PREWHERE {OURS}",
        f"SELECT name FROM spans AS project PREWHERE {OURS}",
        f"SELECT name FROM spans JOIN tensor_stats ON 1 PREWHERE {OURS}",
        f"{READ}; SELECT 1",
        f"SELECT name FROM system.tables PREWHERE {OURS}",
        f"SELECT name FROM other.spans PREWHERE {OURS}",
        f"SELECT name FROM schema_migrations PREWHERE {OURS}",
        f"{READ} AND name = 'text'",
        f"{READ} SETTINGS readonly = 0",
        f"{READ} INTO OUTFILE name",
        f"{READ} FORMAT Null",
        f"{READ} -- remark",
        f"{READ} /* remark */",
        f"{READ} AND `rank` = 1",
        f"{READ} AND dictGet(name, rank)",
        f"{READ} AND file(name) = name",
        f"SELECT {{p0:String}} AS project, name FROM spans PREWHERE {OURS}",
        f'SELECT {{p0:String}} AS "project", name FROM spans PREWHERE {OURS}',
        f"WITH spans AS (SELECT 1) SELECT name FROM spans PREWHERE {OURS}",
        f"WITH RECURSIVE spans AS ({READ}) SELECT name FROM spans",
        "WITH RECURSIVE walk_0 AS (SELECT span_id FROM spans) SELECT span_id FROM walk_0",
        "SELECT name FROM walk_0",
        "SELECT * FROM url('http://example.org', CSV)",
        "SELECT * FROM numbers(5)",
        "SHOW TABLES",
        "(SELECT name FROM spans",
        "SELECT 1",
        "",
    ],
)
def test_an_unguarded_statement_is_refused(sql: str) -> None:
    with pytest.raises(UnguardedStatementError):
        check_statement(sql, with_run=False)


@pytest.mark.parametrize(
    "sql",
    [
        READ,
        f"{READ} AND rank = 1 WHERE rank = 2 OR rank = 3 ORDER BY name LIMIT {{limit:UInt64}}",
        f"SELECT count() AS total FROM ({READ}) AS rows_0 WHERE name = ''",
        f"{READ} WHERE span_id IN ({IDS}) AND rank IN (1, 2) AND rank IN {{p0:Array(Int32)}}",
        f"WITH RECURSIVE walk_0 AS ({IDS} UNION ALL SELECT span_id FROM walk_0) SELECT span_id FROM walk_0",
        f"{READ} WHERE arrayExists((k, v) -> k = v, rank)".replace("arrayExists", "arrayMap"),
    ],
)
def test_what_the_compiler_writes_passes(sql: str) -> None:
    check_statement(sql, with_run=False)


def test_each_of_several_statements_is_gone_through_and_none_passes_for_another() -> None:
    page, walk = f"SELECT name FROM ({READ}) AS rows_0", "WITH RECURSIVE walk_0 AS ({0}) {1}"
    over = "SELECT span_id FROM walk_0"
    check_statement(page, f"SELECT count() AS total FROM ({READ}) AS rows_0", with_run=False)

    for unguarded in ("SELECT count() AS total FROM spans", f"SELECT count() FROM ({over}) AS rows_0", over):
        with pytest.raises(UnguardedStatementError):
            check_statement(page, walk.format(f"{IDS} UNION ALL {over}", over), unguarded, with_run=False)


def test_a_run_that_was_asked_for_has_to_be_compared() -> None:
    check_statement(READ, with_run=False)
    check_statement(f"{READ} AND run_id = {{run:String}}", with_run=True)
    with pytest.raises(UnguardedStatementError, match="spans is read without run_id"):
        check_statement(READ, with_run=True)


@pytest.mark.parametrize("text", VALID)
def test_rows_of_another_project_or_run_are_in_no_answer(ask: Asked, text: str) -> None:
    query = tql.check(tql.parse(text))
    elsewhere = compile_query(query, project="no-such-project")
    of_no_run = compile_query(query, project="default", run="no-such-run")

    for compiled in (elsewhere, of_no_run):
        found = ask.client.query(compiled.sql, parameters=compiled.parameters).result_rows
        assert all(not any(compiled.items([row])[0].values()) for row in found)  # one group of no rows


def test_the_same_rows_of_another_project_are_not_counted(ask: Asked) -> None:
    in_both = ask.client.query("SELECT count() FROM spans").result_rows[0][0]

    assert ask.page("exists(span.span_id)").total == in_both - len(spans(0))
