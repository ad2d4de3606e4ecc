"""The corpus is the language's specification by example."""

import pytest

from rankscope import tql
from rankscope.tql import nodes
from rankscope_query_api.tql_sql import Compiled, compile_query
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.corpus import EVERY, REFUSED, VALID

KINDS = {"syntax": tql.TqlSyntaxError, "check": tql.TqlTypeError, "unsupported": tql.TqlUnsupported}
CASES = [(kind, case) for kind, cases in REFUSED.items() for case in cases]


@pytest.mark.parametrize("text", VALID)
def test_a_valid_query_is_answered_by_the_engine(ask: Asked, text: str) -> None:
    answer = ask.page(text, run="run-1")

    assert len(answer.rows) <= answer.total
    assert len(answer.items) == len(answer.rows)


@pytest.mark.parametrize("text", VALID)
def test_a_valid_query_survives_formatting(text: str) -> None:
    assert tql.check(tql.parse(tql.format(tql.parse(text)))) == tql.check(tql.parse(text))


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[case["query"] for _, case in CASES])
def test_a_refused_query_says_what_is_wrong_and_where(kind: str, case: dict[str, str]) -> None:
    with pytest.raises(tql.TqlError) as caught:
        tql.check(tql.parse(case["query"]))

    error = caught.value
    found = (type(error), error.code, f"{error.line}:{error.column}+{error.length}")
    assert found == (KINDS[kind], case["code"], case["at"])
    assert error.hint not in {kind.advice for kind in KINDS.values()}
    assert error.hint != "write what is expected there"


def test_whatever_a_user_writes_travels_as_a_value(ask: Asked) -> None:
    # The SQL is that of a harmless word: no letter of the user's text is in it.
    harmless = compiled("harmless")

    for text in filter(None, EVERY):
        found = compiled(text)
        assert found.sql == harmless.sql
        assert text in found.parameters.values()
        assert ask.client.query(found.sql, parameters=found.parameters).result_rows == []


def compiled(text: str) -> Compiled:
    """A query with a text as a key, as a value, and in a list."""
    named = nodes.Comparison("==", nodes.FieldRef("attr", text), nodes.Text(text))
    listed = nodes.Membership(nodes.FieldRef("span", "name"), nodes.Choices((nodes.Text(text), nodes.Text("b"))))
    grouped = nodes.Aggregate((nodes.Call("count"),), (nodes.FieldRef("attr", text),))
    tree = nodes.Query(nodes.Or((named, listed)), (grouped,))
    return compile_query(tql.check(tql.parse(tql.format(tree))), project="default")
