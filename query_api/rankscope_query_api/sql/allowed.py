"""The closed list of what a statement may be made of: kinds of nodes, and which of their parts may be there.

What is not named here is refused, whatever a later version of sqlglot learns to read.
"""

import re

from sqlglot import exp
from sqlglot.expressions.core import Expr

_TWO = frozenset({"this", "expression"})
_ONE = frozenset({"this"})
_MANY = frozenset({"expressions"})

NODES: dict[type[Expr], frozenset[str]] = {
    exp.Select: frozenset(
        {"expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "with_"}
    ),
    exp.Union: frozenset({"this", "expression", "distinct", "with_"}),
    exp.Except: frozenset({"this", "expression", "distinct", "with_"}),
    exp.Intersect: frozenset({"this", "expression", "distinct", "with_"}),
    exp.Subquery: frozenset({"this", "alias", "with_"}),
    exp.With: _MANY,
    exp.CTE: frozenset({"this", "alias"}),
    exp.From: _ONE,
    exp.Table: frozenset({"this", "alias"}),
    exp.TableAlias: _ONE,
    exp.Join: frozenset({"this", "on", "using", "side", "kind"}),
    exp.Where: _ONE,
    exp.Group: frozenset({"expressions", "all"}),
    exp.Having: _ONE,
    exp.Order: _MANY,
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression", "expressions"}),
    exp.Offset: frozenset({"expression"}),
    exp.Distinct: _MANY,
    exp.Alias: frozenset({"this", "alias"}),
    exp.Column: frozenset({"this", "table"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Star: frozenset({"except_"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Boolean: _ONE,
    exp.Null: frozenset(),
    exp.Placeholder: frozenset({"this", "kind"}),
    exp.Var: _ONE,
    exp.DataType: frozenset({"this", "expressions", "nested", "nullable"}),
    exp.DataTypeParam: _ONE,
    exp.Paren: _ONE,
    exp.Tuple: _MANY,
    exp.Array: _MANY,
    exp.Bracket: frozenset({"this", "expressions"}),
    exp.Neg: _ONE,
    exp.Not: _ONE,
    exp.In: frozenset({"this", "expressions", "query", "field"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Is: _TWO,
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.ILike: frozenset({"this", "expression", "negate"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true", "false"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.Interval: frozenset({"this", "unit"}),
    exp.Exists: _ONE,
    exp.Lambda: frozenset({"this", "expressions"}),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "over"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.AnonymousAggFunc: frozenset({"this", "expressions"}),
    exp.CombinedAggFunc: frozenset({"this", "expressions"}),
    exp.ParameterizedAgg: frozenset({"this", "expressions", "params"}),
    exp.CombinedParameterizedAgg: frozenset({"this", "expressions", "params"}),
    **dict.fromkeys(
        (
            *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
            *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod),
        ),
        _TWO,
    ),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
}
"""Parts that may be there, by kind of node."""

FUNCTION_NODES = (
    exp.Anonymous,
    exp.AnonymousAggFunc,
    exp.CombinedAggFunc,
    exp.ParameterizedAgg,
    exp.CombinedParameterizedAgg,
)

WORDS: dict[tuple[type[Expr], str], frozenset[str]] = {
    (exp.Join, "side"): frozenset({"", "LEFT", "RIGHT", "FULL"}),
    (exp.Join, "kind"): frozenset({"", "INNER", "OUTER", "CROSS", "ANY", "SEMI", "ANTI", "ASOF", "ALL"}),
    (exp.Window, "over"): frozenset({"OVER"}),
    (exp.WindowSpec, "kind"): frozenset({"ROWS", "RANGE"}),
    (exp.WindowSpec, "start"): frozenset({"UNBOUNDED", "CURRENT ROW"}),
    (exp.WindowSpec, "start_side"): frozenset({"PRECEDING", "FOLLOWING"}),
    (exp.WindowSpec, "end"): frozenset({"UNBOUNDED", "CURRENT ROW"}),
    (exp.WindowSpec, "end_side"): frozenset({"PRECEDING", "FOLLOWING"}),
}
"""What a part that is a word, and no node, may be."""

UNITS = frozenset({"NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH"})
"""Of an INTERVAL."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
"""Of a column, an alias, a parameter."""

_SCALAR = r"(?:U?Int(?:8|16|32|64)|Float(?:32|64)|String|Bool)"

BOUND_TYPE = re.compile(rf"(?:Nullable\({_SCALAR}\)|{_SCALAR}|Array\({_SCALAR}\))")
"""Type of a parameter."""

_CASTABLE = rf"(?:{_SCALAR}|Date|DATE|DateTime|DateTime64\([0-9]\))"

CAST_TYPE = re.compile(
    rf"(?:Nullable\({_CASTABLE}\)|{_CASTABLE}|Array\({_CASTABLE}\)|Array\(Nullable\({_CASTABLE}\)\))"
)
"""Type of a cast, as the generator writes it."""
