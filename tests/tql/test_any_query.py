"""Whatever is written is typed, or refused with a place and a hint; nothing else ever happens."""

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rankscope import tql
from rankscope.tql import nodes
from rankscope.tql.fields import FIELDS
from rankscope.tql.typed import Typed
from tests.tql.known_trees import queries

WORDS = [
    *("==", "!=", "<", ">=", "=~", "contains", "in", "and", "or", "not", "(", ")", "[", "]", "{", "}", ",", "..", "|"),
    *("+", "-", "*", "/", "%", ">>", "!>", "~", "without", "where", "select", "count()", "by", "every", "steps", ":"),
    *("across", "rank", "order", "top", "first", "limit", "exists", "prev", "spread", "5ms", "1", "0.5", '"a"', "true"),
    *("step", "attr.x", "metric.y", "run.config.lr", "mesh.dp", "tensor.l2", "span.name", "span.duration"),
]


def outcome(text: str) -> Typed | tql.TqlError:
    try:
        return tql.check(tql.parse(text))
    except tql.TqlError as error:
        return error


def assert_it_points_into(text: str, error: tql.TqlError) -> None:
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert error.hint
    assert "^" in error.render(text)


@given(queries)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_a_query_of_known_names_is_typed_or_refused_where_it_is_wrong(tree: nodes.Query) -> None:
    text = tql.format(tree)
    found = outcome(text)

    if isinstance(found, tql.TqlError):
        assume(not isinstance(found, tql.TqlSyntaxError))
        assert_it_points_into(text, found)
    else:
        assert tql.check(tree) == found


@given(st.lists(st.sampled_from([*WORDS, *FIELDS]), max_size=14).map(" ".join))
@settings(max_examples=200, deadline=None)
def test_any_words_are_typed_or_refused_where_they_are_wrong(text: str) -> None:
    found = outcome(text)

    if isinstance(found, tql.TqlError):
        assert_it_points_into(text, found)
    else:
        assert tql.check(tql.parse(tql.format(tql.parse(text)))) == found
