"""The words of the language that are no fields: operators, aggregates, units, and the limits on a query's size."""

from typing import Literal

Operator = Literal["+", "-", "*", "/", "%"]
"""Of arithmetic."""

Comparator = Literal["==", "!=", "<", "<=", ">", ">="]
"""Of a comparison."""

Function = Literal["abs", "min", "max", "sqrt", "log2", "log10", "ratio", "coalesce"]
"""Of one row's values."""

Question = Literal["isnan", "isinf", "isfinite"]
"""Asked of a float."""

RelationOperator = Literal[">", ">>", "<", "<<", "~", "!>", "!>>"]
"""Between a span and its relative."""

SetOperator = Literal["and", "or", "without"]
"""Between traces with one span and with another."""

AGGREGATES = (
    *("count", "sum", "avg", "min", "max", "p50", "p90", "p95", "p99", "quantile", "stddev", "first", "last"),
    *("distinct", "rate", "histogram"),
)
"""Every aggregate: one number of many rows."""

ACROSS = (
    *("spread", "skew", "zscore", "outliers", "slowest", "agree", "count_ranks", "missing_ranks", "slope", "median"),
)
"""Every comparison over ranks, layers or coordinates."""

MAX_BYTES = 8192
"""Length of a query, UTF-8."""

MAX_NODES = 256
"""Nodes of its tree."""

MAX_DEPTH = 32
"""Nodes on the way from the query to its deepest part."""

MAX_ITEMS = 64
"""Items of one list."""

MAX_STAGES = 16
"""Stages behind the selection: each may be a level of the SQL."""

MAX_RELATIONS = 8
"""Structural operators of a chain: each may be a walk through the trees."""

MAX_HISTORIES = 8
"""Different functions of a series: each is a sorting of all rows."""

MAX_OPERATORS = 48
"""Arithmetic operators: each names what it is about once more in the SQL, to say where the result is missing."""

MAX_OPERATORS_DEEP = 12
"""Arithmetic operators inside one another: the SQL grows with the square (29 times `%`: 109 kB and half a second)."""

DURATIONS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
"""Units of time, in ns."""

SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""Units of memory, in bytes."""

UNITS = (*DURATIONS, *SIZES)
"""Everything that may stand behind a number."""
