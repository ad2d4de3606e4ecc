"""The last look at a text lets nothing through that reads more than it should, whoever wrote it."""

import pytest

from rankscope_query_api.sql.compile import compile_statement
from rankscope_query_api.sql.guard import UnguardedTextError, check_text

OURS = "WITH rs_spans AS (SELECT rs_t.rank AS `rank` FROM spans AS rs_t PREWHERE rs_t.project = {project:String})"
GOOD = f'{OURS} SELECT "rank" FROM rs_spans AS "u_spans" LIMIT 1001'

UNGUARDED = [
    GOOD.replace(" PREWHERE rs_t.project = {project:String}", ""),
    GOOD.replace("PREWHERE", "WHERE"),
    GOOD.replace("= {project:String}", "!= {project:String}"),
    GOOD.replace("= {project:String}", "= {u_project:String}"),
    GOOD.replace("= {project:String}", "= 'other'"),
    GOOD.replace("{project:String})", "{project:String} OR 1)"),
    GOOD.replace("FROM spans AS", "FROM batches AS"),
    GOOD.replace("FROM spans AS", "FROM system.tables AS"),
    GOOD.replace("FROM spans AS", "FROM (SELECT * FROM spans) AS"),
    GOOD.replace("rs_t.rank AS", "(SELECT 1 FROM spans) AS"),
    GOOD.replace("rs_t.rank AS", "rs_t.rank IN spans AS"),
    GOOD.replace("rs_t.rank AS `rank`", "{s0:String} AS `project`"),
    GOOD.replace("rs_t.rank AS `rank`", "rs_t.node AS run_id"),
    GOOD.replace('FROM rs_spans AS "u_spans"', "FROM spans"),
    GOOD.replace('FROM rs_spans AS "u_spans"', 'FROM "spans"'),
    GOOD.replace('FROM rs_spans AS "u_spans"', 'FROM "u_other"'),
    GOOD.replace('FROM rs_spans AS "u_spans"', "FROM file({s0:String})"),
    GOOD.replace('FROM rs_spans AS "u_spans"', "FROM numbers(10)"),
    GOOD.replace('FROM rs_spans AS "u_spans"', "FROM rs_metrics"),
    GOOD.replace('SELECT "rank" FROM rs', 'SELECT "rank" IN "spans" FROM rs'),
    GOOD.replace('SELECT "rank" FROM rs', 'SELECT "rank" IN ("spans") FROM rs'),
    GOOD.replace('SELECT "rank" FROM rs', 'SELECT "rank" IN (("spans")) FROM rs'),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT in(1, {s0:String}) FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT dictGet({s0:String}) FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT sleep(3) FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT 'text' FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT $$text$$ FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT rs_t.project FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', 'SELECT "rs_spans" FROM rs'),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT rank FROM rs"),
    GOOD.replace('SELECT "rank" FROM rs', 'SELECT "é" FROM rs'),
    GOOD.replace('SELECT "rank" FROM rs', "SELECT 0x41 FROM rs"),
    f"{GOOD} SETTINGS readonly = 0",
    f"{GOOD} FORMAT Native",
    f"{GOOD} INTO OUTFILE {{s0:String}}",
    f"{GOOD}; DROP TABLE spans",
    f"{GOOD} -- x",
    f"{GOOD} /* x */",
    f"{GOOD}\n",
    "DROP TABLE spans",
    "INSERT INTO spans SELECT 1",
    "",
]


def test_a_text_that_is_ours_passes() -> None:
    check_text(GOOD, of_run=False)


@pytest.mark.parametrize("text", UNGUARDED)
def test_a_text_that_could_read_more_is_not_sent(text: str) -> None:
    with pytest.raises(UnguardedTextError):
        check_text(text, of_run=False)


def test_a_run_that_was_asked_for_must_be_restricted_to() -> None:
    with pytest.raises(UnguardedTextError):
        check_text(GOOD, of_run=True)

    check_text(compile_statement("SELECT rank FROM spans", project="p", run="r").sql, of_run=True)


def test_neither_project_nor_run_nor_any_text_of_a_statement_stands_in_what_is_sent() -> None:
    text = "SELECT name, 'a secret text' AS t FROM spans WHERE name = {value:String} OR name LIKE '%another%'"

    statement = compile_statement(text, project="my project", run="my run", given={"value": "my value"})

    for word in ("secret", "another", "my project", "my run", "my value"):
        assert word not in statement.sql
        assert any(word in str(value) for value in statement.parameters.values())
