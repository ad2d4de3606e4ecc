"""What is no statement is refused with its place, and with words that it can be mended from."""

import httpx
import pytest

from rankscope_query_api.errors import InvalidQueryError, InvalidRequestError
from rankscope_query_api.sql.compile import compile_statement
from rankscope_query_api.sql.functions import aggregates, plain_functions
from tests.query_api.sql.sending import refused

REFUSED = {
    "SELECT durration_ns FROM spans": ("unknown_column", (1, 8, 12), "'duration_ns'"),
    "SELECT s.rank FROM spans AS x": ("unknown_view", (1, 8, 1), "FROM or JOIN"),
    "SELECT rank\nFROM span": ("unknown_view", (2, 6, 4), "'spans'"),
    "SELECT countt() FROM spans": ("unknown_function", (1, 8, 6), "count"),
    "SELECT file('/etc/passwd')": ("unknown_function", (1, 8, 4), "nearest"),
    "SELECT * FROM file('/etc/passwd')": ("unknown_view", (1, 15, 4), "the views are"),
    "SELECT * FROM system.tables": ("not_allowed", (1, 15, 6), "VIEWS.md"),
    "SELECT * FROM spans FINAL": ("not_allowed", (1, 15, 5), "leave FINAL out"),
    "SELECT p99(duration_ns) FROM spans": ("unknown_function", (1, 8, 3), "quantile(0.99)(x)"),
    "SELECT date_trunc('hour', start) FROM spans": ("unknown_function", (1, 8, 10), "toStartOfHour"),
    "SELECT attributes.device FROM spans": ("unknown_column", (1, 8, 10), "attributes['device']"),
    'SELECT name FROM spans WHERE name = "x"': ("unknown_column", (1, 37, 3), "single quotes"),
    "SELECT * FROM spans SETTINGS readonly = 0": ("not_allowed", (1, 30, 8), "VIEWS.md"),
    "SELECT * FROM spans FORMAT Native": ("not_allowed", (1, 28, 6), "VIEWS.md"),
    "SELECT * FROM spans PREWHERE rank = 1": ("not_allowed", (1, 30, 4), "VIEWS.md"),
    "SELECT * FROM spans INTO OUTFILE 'x'": ("syntax", (1, 21, 4), "leave INTO out"),
    "SELECT 1; SELECT 2": ("syntax", (1, 9, 1), "one by one"),
    "DROP TABLE spans": ("syntax", (1, 1, 4), "SELECT"),
    "": ("syntax", None, "SELECT"),
    "SELECT rank FROM metrics WHERE rank IN spans": ("not_allowed", (1, 32, 4), "has(list, x)"),
    "SELECT rank FROM metrics WHERE rank IN (spans)": ("not_allowed", (1, 32, 4), "has(list, x)"),
    "WITH 'other' AS project SELECT * FROM spans": ("not_allowed", None, "VIEWS.md"),
    "WITH spans AS (SELECT 1) SELECT * FROM spans": ("not_allowed", (1, 6, 5), "another name"),
    "WITH a AS (SELECT * FROM a) SELECT * FROM a": ("unknown_view", (1, 26, 1), "WITH name AS"),
    "SELECT 1 AS rs_x": ("bad_name", (1, 13, 4), "rs_"),
    "SELECT 1 AS `a b`": ("bad_name", (1, 13, 5), "letters"),
    "(SELECT rank FROM spans) UNION ALL (SELECT rank FROM gaps) ORDER BY rank": (
        "not_allowed",
        (1, 69, 4),
        "last SELECT",
    ),
    "SELECT 18446744073709551616": ("out_of_range", (1, 8, 20), "2^64"),
    "SELECT -9223372036854775809": ("out_of_range", (1, 9, 19), "2^63"),
    "SELECT 1e999": ("out_of_range", (1, 8, 5), "2^64"),
    "SELECT {x:Identifier} FROM spans": ("bad_parameter", None, "{name:Type}"),
    "SELECT {x:Map(String, String)}": ("bad_parameter", None, "Array"),
    "SELECT CAST(rank AS Decimal(76, 2)) FROM spans": ("not_allowed", (1, 13, 4), "Int8 to UInt64"),
    "SELECT rank FROM spans LIMIT rank": ("syntax", (1, 30, 4), "VIEWS.md"),
    "SELECT": ("syntax", None, "VIEWS.md"),
    "SELECT rank FROM spans GROUP BY": ("syntax", None, "VIEWS.md"),
    'SELECT rank FROM spans WHERE name = "rollout"': ("unknown_column", (1, 37, 9), "single quotes, as in 'rollout'"),
    "SELECT 'open": ("syntax", None, "SELECT"),
    "SELECT (1": ("syntax", (1, 9, 1), "SELECT"),
    "SELECT * FROM a b c d": ("syntax", (1, 19, 1), "SELECT"),
    "SELECT 1 \x00": ("syntax", (1, 10, 1), "parameter"),
}
"""Code, (line, column, length) and a word of the hint, by statement."""


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_no_statement_is_refused_with_its_place_and_a_hint(query: str) -> None:
    code, place, word = REFUSED[query]

    with pytest.raises(InvalidQueryError) as found:
        compile_statement(query, project="default")

    position = found.value.position
    shown = None if position is None else (position.line, position.column, position.length)
    assert (found.value.code, shown) == (code, place), str(found.value)
    assert word in (found.value.hint or "")


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("SELECT rank + name FROM spans", "Int32 and String"),
        ("SELECT rank, count() FROM spans", "spans.rank"),
        ("SELECT toInt64('x') AS n", "Cannot parse string 'x'"),
        ("SELECT quantile(name) FROM spans", "quantile"),
        ("SELECT rank FROM spans WHERE match(name, '(')", "("),
    ],
)
async def test_what_the_store_cannot_answer_is_told_in_its_words_and_the_users_names(
    api: httpx.AsyncClient, query: str, word: str
) -> None:
    error = await refused(api, query)

    assert word in error["message"]
    assert not {"rs_", "u_spans", "PREWHERE", "Stack trace"} & set(error["message"].split())


def test_every_function_on_the_list_is_written_as_it_was_read() -> None:
    for name in {*plain_functions(), *aggregates()} - {"not"}:
        over = " OVER ()" if name in ("rank", "row_number") else ""

        written = compile_statement(f"SELECT {name}(rank, 1, step){over} AS x FROM spans", project="default").sql

        assert f'SELECT {name}("rank", 1, "step")' in written


async def test_two_columns_of_one_name_are_refused(client: httpx.AsyncClient) -> None:
    error = await refused(client, "SELECT rank, rank FROM spans")

    assert (error["code"], "AS spans" in error["hint"]) == ("same_name", True)


async def test_a_field_that_the_body_has_not_is_refused_with_the_ones_it_has(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/sql", json={"query": "SELECT 1", "parameter": {}})

    assert answer.status_code == 422
    assert answer.json()["expected"] == ["format", "limit", "parameters", "query", "run"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT 1 WHERE " + " OR ".join(["1"] * 10_000), "too_long"),
        ("SELECT 1 WHERE " + " OR ".join(["1"] * 1_500), "too_many_nodes"),
        ("SELECT '" + "x" * 9_000 + "'", "too_long"),
        ("SELECT " + "(" * 4_000, "too_deep"),
        ("SELECT " + "(" * 40 + "1" + ")" * 40, "too_deep"),
        ("SELECT " + "NOT " * 2_000 + "1", "too_deep"),
        ("SELECT " + "- " * 4_000 + "1", "too_deep"),
        ("SELECT " + "[" * 4_000, "too_deep"),
        ("SELECT shape" + "[1]" * 2_600 + " FROM tensor_stats", "too_deep"),
        ("SELECT 1" + " BETWEEN 1 AND 1" * 340, "too_deep"),
        ("SELECT 1 FROM spans JOIN metrics", "syntax"),
        ("SELECT rank FROM spans WHERE rank IN ((SELECT rank FROM spans))", "not_allowed"),
        ("SELECT rank IN ((SELECT rank FROM spans) UNION ALL SELECT rank FROM spans) FROM spans", "not_allowed"),
        ("SELECT 1 FROM spans ANY LEFT JOIN metrics USING", "syntax"),
        ("SELECT abs((shape" + "[1]" * 31 + ")) FROM tensor_stats", "too_deep"),
        ("SELECT " + "CASE WHEN " * 700, "too_deep"),
        ("SELECT " + "x -> " * 1_500 + "1", None),
        ("SELECT * FROM " + "(SELECT * FROM " * 500, "too_deep"),
        ("SELECT " + "1 ? 1 : " * 900 + "1", "too_many_nodes"),
        ("SELECT " + "+".join(["1"] * 4_000), "too_many_nodes"),
        ("SELECT 1" + " UNION ALL SELECT 1" * 420, None),
        ("SELECT 1 WHERE " + " OR ".join(["1"] * 600), None),
        ("SELECT 1" + "::Int8" * 1_000, "too_many_nodes"),
        ("SELECT 1" + " IS NULL" * 900, None),
        ("SELECT a" + ".a" * 3_000, None),
        ("WITH " + ", ".join(f"a{n} AS (SELECT 1 AS x)" for n in range(300)) + " SELECT 1", None),
    ],
)
def test_long_and_deep_statements_are_refused_or_written_and_never_end_the_stack(query: str, code: str | None) -> None:
    try:
        compile_statement(query, project="default")
        found = None
    except (InvalidQueryError, InvalidRequestError) as error:
        found = error.code

    assert code is None or found == code
