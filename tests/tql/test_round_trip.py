"""What is parsed can be written, and what is written parses to the same tree."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rankscope import tql
from rankscope.tql import nodes
from tests.tql.trees import queries


@given(queries)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_a_formatted_tree_parses_to_itself(tree: nodes.Query) -> None:
    text = tql.format(tree)
    try:
        parsed = tql.parse(text)
    except tql.TqlSyntaxError as error:
        assume(error.code not in {"too_deep", "too_many_nodes", "text_too_long"})
        raise

    assert parsed == tree


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_query_or_an_error_that_points_into_it(text: str) -> None:
    outcome = parsed_or_refused(text)

    if isinstance(outcome, tql.TqlSyntaxError):
        lines = text.split("\n")
        assert 1 <= outcome.line <= len(lines)
        assert 1 <= outcome.column <= len(lines[outcome.line - 1]) + 1
        assert outcome.length >= 1
        assert "^" in outcome.render(text)
    else:
        assert tql.parse(tql.format(outcome)) == outcome


def parsed_or_refused(text: str) -> nodes.Query | tql.TqlSyntaxError:
    try:
        return tql.parse(text)
    except tql.TqlSyntaxError as error:
        return error


@pytest.mark.parametrize(
    ("written", "formatted"),
    [
        ("a.b==1&&c.d!=2||!e.f<3", "a.b == 1 and c.d != 2 or not e.f < 3"),
        ("(a.b == 1 or c.d == 2) and e.f == 3", "(a.b == 1 or c.d == 2) and e.f == 3"),
        ("((a.b == 1))", "a.b == 1"),
        ("not (a.b == 1 and c.d == 2)", "not (a.b == 1 and c.d == 2)"),
        ("a.b == 1 - (2 - 3) - 4", "a.b == 1 - (2 - 3) - 4"),
        ("a.b == -(1 + 2) * 3", "a.b == -(1 + 2) * 3"),
        ("""attr.'it"s' == "x\\ty" """, 'attr."it\\"s" == "x\ty"'),
        ("attr.gen_ai.model == 'm'", 'attr.gen_ai.model == "m"'),
        ("a.b == 1 # and nothing else\n| first", "a.b == 1 | first"),
        (
            "a.b in[1,2]|count()by c.d|order by count desc,c.d asc",
            "a.b in [1, 2] | count() by c.d | order by count desc, c.d",
        ),
        (
            "tensor.min < 1 and gap.count > 2 and span.first == 3",
            "tensor.min < 1 and gap.count > 2 and span.first == 3",
        ),
    ],
)
def test_one_spelling_stands_for_all(written: str, formatted: str) -> None:
    assert tql.format(tql.parse(written)) == formatted


def test_places_are_of_the_text_and_do_not_count_for_equality() -> None:
    wide, narrow = tql.parse("a.b  ==\n 'x'"), tql.parse("a.b == 'x'")

    assert wide == narrow
    assert isinstance(wide.selection, nodes.Comparison)
    right = wide.selection.right.place
    assert (right.start, right.end, right.line, right.column) == (9, 12, 2, 2)
