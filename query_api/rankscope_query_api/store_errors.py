"""What the store says against a statement, by its code, as an error of this service.

A limit is named with its value and with who set it, so that whoever reads the answer knows what to change.
"""

import re

from rankscope_query_api.errors import (
    InvalidQueryError,
    LimitExceededError,
    QueryError,
    RefusedStatementError,
    StoreUnavailableError,
)
from rankscope_query_api.limits import Limit, Limits

_ROWS_READ_CODE = 158
_SLOW_CODES = frozenset({159, 160})
"""It ran too long, or the store saw early that it would."""
_MEMORY_CODE = 241
_ENDED_CODE = 394
_RESULT_CODES = frozenset({307, 396})

_MISSING_CODES = frozenset({60, 81})
"""Unknown table, unknown database."""

_DENIED_CODE = 497

_BAD_PATTERN_CODE = 427

_OUR_FAULT_CODES = frozenset({49, 74, 75, 76, 202, 209, 210, 243, 439, 516, 999, 1000, 1001, 1002})
"""A fault in the store, a file, a connection or a disk of it, too many queries or threads, a password that is no longer
right: no statement is to blame."""

_OF_ALL = re.compile(r"\((?:total|for user)\)|\b(?:Total|User) memory limit", re.IGNORECASE)
"""Memory that this query did not take alone."""

_CODE = re.compile(r"^.*?DB::Exception: ", re.DOTALL)

_LESS = "ask for fewer steps, ranks or rows"


def mapped(code: int, text: str, *, limits: Limits) -> QueryError:
    """The error for a statement that failed.

    Args:
        code: ClickHouse's.
        text: What it said, in one line.
        limits: Under which the statement ran.
    """
    if beyond := _beyond(code, text, limits=limits):
        return beyond
    if code == _BAD_PATTERN_CODE:
        return InvalidQueryError(f"a regular expression is not usable: {text}", hint="RE2 syntax is understood")
    if code in _MISSING_CODES:
        return StoreUnavailableError(
            f"the database has not the tables of rankscope: {text}", hint="run `rankscope migrate` once"
        )
    if code == _DENIED_CODE:
        return StoreUnavailableError(
            f"the store denies this service what it needs: {text}",
            hint="grant it to the user that RANKSCOPE_CLICKHOUSE_URL names",
        )
    if code in _OUR_FAULT_CODES:
        return QueryError(f"the store failed at a query: {text}", hint="its log holds the details")
    return RefusedStatementError(text)


def _beyond(code: int, text: str, *, limits: Limits) -> QueryError | None:
    """The error for a limit; None: it was none."""
    if code in _SLOW_CODES:
        return _more(
            f"the query ran longer than {limits.seconds.value:g} s and was stopped in the store",
            limits.seconds,
            code="timed_out",
        )
    if code == _ENDED_CODE:
        return LimitExceededError(
            "the query was stopped in the store by someone else", hint=f"ask again, or {_LESS}", code="ended"
        )
    if code == _ROWS_READ_CODE:
        return _more(f"the query would read more than {limits.rows_read.value:,} rows", limits.rows_read)
    if code == _MEMORY_CODE:
        return _memory(text, limits.memory_bytes)
    return _result(text, limits) if code in _RESULT_CODES else None


def _result(text: str, limits: Limits) -> LimitExceededError:
    if "max bytes" in text:
        return _more(f"the answer would have more than {_size(limits.result_bytes.value)}", limits.result_bytes)
    return _more(f"the answer would have more than {limits.result_rows.value:,} rows", limits.result_rows)


def _memory(text: str, limit: Limit) -> QueryError:
    text = _CODE.sub("", text)
    if _OF_ALL.search(text):
        return StoreUnavailableError(
            f"the store has not the memory for this query now: {text}", hint=f"ask again later, or {_LESS}"
        )
    return _more(f"the query needs more than {_size(limit.value)} of memory in the store", limit)


def _more(what: str, limit: Limit, *, code: str | None = None) -> LimitExceededError:
    return LimitExceededError(f"{what}: {limit.whose}", hint=f"{_LESS}, or {limit.raised_by}", code=code)


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.10g} MiB"
