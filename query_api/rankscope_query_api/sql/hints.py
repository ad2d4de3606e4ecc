"""What to write instead, for what statements of other databases have: the nearest name would mislead there."""

import re
from collections.abc import Iterable

from rankscope_query_api.errors import nearest_hint
from rankscope_query_api.sql.functions import BY_LOWER_CASE

_FUNCTIONS_HINT = "query_api/VIEWS.md lists the functions"

_PERCENTILE = re.compile(r"p(\d\d?)")

_INSTEAD = {
    "date_trunc": "write toStartOfHour(time) or toStartOfInterval(time, INTERVAL 5 MINUTE)",
    "mean": "write avg(x)",
    "percentile": "write quantile(0.99)(x)",
    "percentile_cont": "write quantile(0.99)(x)",
}


def of_function(name: str) -> str:
    """The hint for a function that there is not."""
    if found := _PERCENTILE.fullmatch(name.lower()):
        return f"write quantile({int(found[1]) / 100:g})(x)"
    return _INSTEAD.get(name.lower()) or nearest_hint(name, BY_LOWER_CASE.values(), otherwise=_FUNCTIONS_HINT)


def of_column(name: str, before: str, *, known: Iterable[str], text: str) -> str:
    """The hint for a column that there is not.

    Args:
        name: What it is called.
        before: The name before its dot; "": none.
        known: Columns that there are.
        text: The statement.
    """
    if f'"{name}"' in text:
        return f"a text stands in single quotes, as in '{name}'"
    if before in known:
        return f"a key of a map stands in brackets: {before}['{name}']"
    return nearest_hint(name, known, otherwise="query_api/VIEWS.md lists the columns of each view")


def of_source(name: str) -> str | None:
    """The hint for what cannot be read from; None: nothing special is known of it."""
    return "leave FINAL out: a statement reads the rows as they are stored" if name == "FINAL" else None
