"""Fields and map keys as SQL expressions, with NULL kept out of the way.

A row is without a value in one of three ways: a NULL, a key that its map lacks, or the word
that the wire sends for "nothing" ("", code 0, rank -1). `Source` says of an operand both what
its value is and when it is there, so that conditions can be two-valued: in SQL's own logic
`NOT (x = 1)` would leave out the rows without x.
"""

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.checked import Key, Operand
from rankscope.tql.fields import MAPS, Field, Type
from rankscope_query_api.tql_sql.parameters import Parameters


def call(function: str, *arguments: Expr) -> Expr:
    """A ClickHouse function by its own name."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def number(value: int) -> Expr:
    """A small constant of the compiler's own; what a query says is bound instead."""
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def constant(value: int | str) -> Expr:
    """An absent word as SQL: a number, or the empty string."""
    return number(value) if isinstance(value, int) else exp.Literal.string(value)


def column(name: str) -> Expr:
    """A column; names come from the field table only."""
    return exp.column(exp.to_identifier(name, quoted=True))


def all_of(parts: list[Expr]) -> Expr:
    """The conjunction; of none, true."""
    return exp.and_(*parts) if parts else number(1)


def one_spelling(value: Expr) -> Expr:
    """A float as a key of groups: GROUP BY compares bits, so -0.0 and the many NaN would be groups of their own."""
    nan = exp.Div(this=number(0), expression=number(0))
    return call("if", call("isNaN", value.copy()), nan, exp.Add(this=value.copy(), expression=number(0)))


def step() -> Expr:
    """The step, -1 where there is none, such that the tables' sorting key `ifNull(step, -1)` prunes.

    Without `toInt64` it does not on 26.9: `allow_key_condition_coalesce_rewrite` takes a compared
    `ifNull` apart before the key is looked at, and every granule of the run is read (measured:
    245 of 245 for `ifNull(step, -1) = 300`, 1 of 245 so).
    """
    return call("toInt64", call("ifNull", column("step"), number(-1)))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from.

    Attributes:
        value: The value; NULL or meaningless where `present` is false.
        present: True where the row has it; None: always.
        nullable: Whether `value` itself can be NULL.
        absent: The value that stands for "nothing", None if none does.
        is_float: Whether it can be NaN.
        table: ClickHouse type, without Nullable.
    """

    value: Expr
    present: Expr | None
    nullable: bool
    absent: int | str | None
    is_float: bool
    table: str

    @property
    def or_null(self) -> Expr:
        """The value, NULL where the row has none."""
        if self.absent is not None:
            return call("nullIf", self.value.copy(), constant(self.absent))
        if self.present is None or self.nullable:
            return self.value.copy()
        return call("if", self.present.copy(), self.value.copy(), exp.null())


def source(operand: Operand, parameters: Parameters) -> Source:
    """How an operand is read."""
    if isinstance(operand, Key):
        return _of_key(operand, parameters)
    return _of_field(operand)


def _of_field(field: Field) -> Source:
    is_float = field.type is Type.FLOAT
    if field.name == "step":
        present = exp.NEQ(this=step(), expression=number(-1))
        return Source(step(), present, nullable=False, absent=-1, is_float=False, table="Int64")
    if field.name == "span.end":
        end = exp.Paren(this=exp.Add(this=column("start"), expression=column("duration")))
        return Source(end, None, nullable=False, absent=None, is_float=False, table="Int64")
    if field.name == "span.trace_id":
        return Source(_trace_id(), None, nullable=False, absent=None, is_float=False, table="UInt128")
    value = column(field.column[0])
    if field.table.startswith("FixedString"):
        return Source(
            call("lower", call("hex", value)), None, nullable=False, absent=None, is_float=False, table="String"
        )
    if field.nullable:
        present = call("isNotNull", value.copy())
        return Source(value, present, nullable=True, absent=None, is_float=is_float, table=field.table)
    present = None
    if field.absent is not None:
        present = exp.NEQ(this=value.copy(), expression=constant(field.absent))
    return Source(value, present, nullable=False, absent=field.absent, is_float=is_float, table=_plain(field.table))


def _plain(table: str) -> str:
    """LowCardinality is how a column is stored; its values are plain."""
    return "String" if "String" in table else table


def _trace_id() -> Expr:
    high = call("bitShiftLeft", call("toUInt128", column("trace_hi")), number(64))
    return call("bitOr", high, call("toUInt128", column("trace_lo")))


def _of_key(key: Key, parameters: Parameters) -> Source:
    """A key of a map; one that may be text or number is read as text."""
    name = parameters.bind(key.key, "String")
    texts, numbers = MAPS[key.scope][0], MAPS[key.scope][-1]
    if key.type is Type.ATTRIBUTE:
        in_numbers = call("if", has_key(numbers, name), call("toString", at_key(numbers, name)), exp.null())
        either = call("if", has_key(texts, name), at_key(texts, name), in_numbers)
        present = exp.Paren(this=exp.or_(has_key(texts, name), has_key(numbers, name)))
        return Source(either, present, nullable=True, absent=None, is_float=False, table="String")
    is_float = key.type is Type.FLOAT
    one = numbers if is_float else texts
    table = "Float64" if is_float else "String"
    return Source(at_key(one, name), has_key(one, name), nullable=False, absent=None, is_float=is_float, table=table)


def has_key(name: str, key: Expr) -> Expr:
    """Whether the map column has the key."""
    return call("mapContains", column(name), key.copy())


def at_key(name: str, key: Expr) -> Expr:
    """The value under the key."""
    return exp.Bracket(this=column(name), expressions=[key.copy()])
