"""What comes back of a statement: its rows under the names that were asked for, or what the store said against it."""

import re
from collections import Counter

from rankscope_query_api.errors import InvalidQueryError
from rankscope_query_api.sql.compile import Statement
from rankscope_query_api.values import Table

_CODE = re.compile(r"^.*?Code: \d+\. (?:DB::Exception: )?|^.*?DB::Exception: ", re.DOTALL)
_DETAILS = re.compile(
    r"(?::|\.)? ?(?:In scope|In query|While processing|while executing|While executing|Maybe you meant|Stack trace).*"
    r"|\([A-Z_0-9]{4,}\).*$",
    re.DOTALL,
)
_PREFIX = re.compile(r"\b(?:rs_t\.|rs_|u_)(?=[A-Za-z_])")


def refused(said: str) -> InvalidQueryError:
    """The error for a statement that may be asked and that the store cannot answer: types, groups, arguments."""
    text = _PREFIX.sub("", _DETAILS.sub("", _CODE.sub("", said))).strip().rstrip(":.")
    return InvalidQueryError(
        f"the statement cannot be answered: {text[:240] or 'the store gave no reason'}",
        hint="mend what it names; query_api/VIEWS.md says the type of each column",
        code="refused",
    )


def undescribed(described: Table) -> Table:
    """An answer without rows, from what DESCRIBE says of its statement."""
    names, kinds = described.columns[:2]
    return Table(names, [()] * len(names), kinds)


def titled(statement: Statement, table: Table) -> list[str]:
    """Names of the columns of an answer.

    Raises:
        InvalidQueryError: Two columns have one name.
    """
    names = [statement.title(name) for name in table.names]
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise InvalidQueryError(
            f"{times} columns of the answer are called {name!r}",
            hint="give each a name of its own, as in `count() AS spans`",
            code="same_name",
        )
    return names
