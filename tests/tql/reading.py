"""What a query's text becomes, for tests of the checker."""

from rankscope import tql
from rankscope.tql.typed import Column, Condition, Rows, Select, Stage, Typed


def typed(text: str) -> Typed:
    """The typed tree of a query."""
    return tql.check(tql.parse(text))


def condition(text: str) -> Condition:
    """What a query of single rows asks of them."""
    source = typed(text).source
    assert isinstance(source, Rows)
    return source.condition


def stages(text: str) -> tuple[Stage, ...]:
    """What becomes of the rows."""
    return typed(text).stages


def column(value: str, *, of: str = "exists(span.name)") -> Column:
    """A value that is selected."""
    selected = stages(f"{of} | select {value}")[0]
    assert isinstance(selected, Select)
    return selected.columns[0]


def refusal(text: str) -> tql.TqlError:
    """The error of a query."""
    try:
        typed(text)
    except tql.TqlError as error:
        return error
    raise AssertionError(f"{text} passed the check")
