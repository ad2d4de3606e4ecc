"""To read and to check a text costs little, whatever the text: no limit of the store's is about it."""

import contextlib
import time

import pytest

from rankscope_query_api.errors import QueryError
from rankscope_query_api.sql.compile import compile_statement
from rankscope_query_api.sql.reading import MAX_BYTES, MAX_NESTING

PLAIN = "SELECT name, count() AS n FROM spans WHERE rank = 0 GROUP BY name"

MOST = 250
"""Times what the plain statement takes. The worst that was found of 6,000 random texts takes 80 times as much, what
grows with the square of its length 1,000 times."""

HEADS = ("SELECT name", "SELECT 1 FROM spans")
REPEATED = [
    *("[1]", "[[1]]", "[1:2]", ".a", ".1", "::Int8", "(1)", " IS NULL", " IN (1)", " BETWEEN 1 AND 1", " LIKE 'a'"),
    *(" ? 1 : 1", " -> 1", "+1", "||1", "=1", " AND 1", ",1e1", ",now()", ",max(1) OVER (ORDER BY 1)", ",{'a':1}"),
    *(",CASE WHEN 1 THEN 1 END", ",(SELECT 1)", " UNION ALL SELECT 1", ", spans", " JOIN spans USING (rank)", "/**/"),
    *(
        ",arrayMap(x -> x, [1])",
        ",DATE '2020-01-01'",
        ",INTERVAL 1 DAY",
        " COLLATE a",
        "--\n",
        ";",
        "'",
        "`",
        "{",
        "\\",
    ),
]
NESTED = ["(", "[", "abs(", "(1,", "(SELECT ", "CASE ", "1 IN (", "CAST(", "x -> (", "{", "NOT (", "EXISTS(", "a["]


def taken(text: str) -> float:
    """Seconds of this thread's processor."""
    started = time.thread_time()
    with contextlib.suppress(QueryError):
        compile_statement(text, project="default")
    return time.thread_time() - started


def is_cheap(text: str, most: float) -> bool:
    """Whether a text takes no more, once in three times: what else runs here takes from its caches."""
    return any(taken(text) < most for _ in range(3))


@pytest.fixture(scope="module")
def most() -> float:
    """What a text may take."""
    return MOST * min(taken(PLAIN) for _ in range(20))


@pytest.mark.parametrize("unit", REPEATED)
def test_no_long_text_takes_much_longer_to_read_than_a_statement(unit: str, most: float) -> None:
    for head in HEADS:
        assert is_cheap((head + unit * MAX_BYTES)[: MAX_BYTES - 1], most), head


@pytest.mark.parametrize("unit", NESTED)
def test_no_nested_text_takes_much_longer_to_read_than_a_statement(unit: str, most: float) -> None:
    deep = unit * (MAX_NESTING - 1) + "1"
    closed = deep + ("]" if unit.endswith("[") else ")") * (MAX_NESTING - 1)

    for text in (deep, closed, ",".join([closed] * 60)):
        assert is_cheap(f"SELECT {text}"[: MAX_BYTES - 1], most), text
