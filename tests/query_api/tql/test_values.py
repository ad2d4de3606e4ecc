"""Arithmetic and functions of one row are what the typed tree says, at every edge of 64 bits and of floats."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import pytest
from clickhouse_connect.driver.client import Client
from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope.tql.fields import Entity, Type
from rankscope_query_api.tql_sql.expressions import call, column
from rankscope_query_api.tql_sql.predicates import condition
from rankscope_query_api.tql_sql.scope import Scope, Source
from rankscope_query_api.tql_sql.sources import source
from tests.ground.stores import FrontProcess, Store
from tests.query_api.tql.computing import COUNTS, FLOATS, INTEGERS, MIN, NARROW, Number, computed, same, whole, within

POOLS: dict[str, tuple[Sequence[Number], str]] = {
    "i": (INTEGERS, "Int64"),
    "u": (COUNTS, "UInt64"),
    "f": (FLOATS, "Float64"),
    "n": (NARROW, "Float32"),
}
PAIRS = list(itertools.product(POOLS, POOLS))


class Pairs:
    """Tables of every pair of numbers of two pools."""

    def __init__(self, client: Client) -> None:
        self._client = client
        for left, right in PAIRS:
            columns = f"n UInt32, a Nullable({POOLS[left][1]}), b Nullable({POOLS[right][1]})"
            client.command(f"CREATE TABLE pairs_{left}{right} ({columns}) ENGINE = MergeTree ORDER BY n")
            rows = [(number, *pair) for number, pair in enumerate(self.of(left, right))]
            client.insert(f"pairs_{left}{right}", rows, column_names=["n", "a", "b"])

    @staticmethod
    def of(left: str, right: str) -> list[tuple[Number, Number]]:
        """The rows of a table."""
        return list(itertools.product(POOLS[left][0], POOLS[right][0]))

    def ask(self, left: str, right: str, make: Callable[[Scope], Expr]) -> list[Any]:
        """The value of an expression in each row."""
        sides = {"a": left, "b": right}
        scope = Scope(Entity.SCALAR, "default", None)
        behind = scope.behind({name: _nullable(name, POOLS[pool][1]) for name, pool in sides.items()})
        asked = exp.select(exp.alias_(make(behind), "c0")).from_(f"pairs_{left}{right}").order_by("n")
        text = re.sub(r"\{(\w+): ", r"{\1:", asked.sql(dialect="clickhouse"))
        return [row[0] for row in self._client.query(text, parameters=scope.parameters.values).result_rows]


def _nullable(name: str, table: str) -> Source:
    present = call("isNotNull", column(name))
    return Source(column(name), present, True, None, table.startswith("Float"), table)


@pytest.fixture(scope="module")
def pairs(front_process: FrontProcess) -> Iterator[Pairs]:
    """All pairs, in a database of their own."""
    store = Store(front_process.url)
    yield Pairs(store.client)
    store.drop()


def kind_of(pool: str) -> Type:
    """The type of a pool's numbers."""
    return Type.INTEGER if pool in "iu" else Type.FLOAT


def output(name: str, pool: str) -> typed.Output:
    """A side of a pair."""
    return typed.Output(name, kind_of(pool))


def differing(found: Sequence[Any], wanted: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    """The rows whose values are not the same."""
    assert len(found) == len(wanted)
    return [trio for trio in zip(rows, found, wanted, strict=True) if not same(trio[1], trio[2])]


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "%"])
@pytest.mark.parametrize("pools", PAIRS)
def test_arithmetic_is_exact_and_missing_where_it_overflows(
    pairs: Pairs, sign: Literal["+", "-", "*", "/", "%"], pools: tuple[str, str]
) -> None:
    kind = Type.INTEGER if set(pools) <= set("iu") and sign != "/" else Type.FLOAT
    node = typed.Arithmetic(sign, output("a", pools[0]), output("b", pools[1]), kind)

    found = pairs.ask(*pools, lambda scope: source(node, scope).or_null)

    wanted = [computed(sign, *pair, kind=kind) for pair in pairs.of(*pools)]
    assert not differing(found, wanted, pairs.of(*pools))


@pytest.mark.parametrize("sign", ["*", "/"])
@pytest.mark.parametrize("pools", [("i", "f"), ("i", "i"), ("f", "f")])
def test_a_duration_computed_with_floats_is_a_whole_number_of_ns(
    pairs: Pairs, sign: Literal["*", "/"], pools: tuple[str, str]
) -> None:
    node = typed.Arithmetic(sign, output("a", pools[0]), output("b", pools[1]), Type.DURATION)

    found = pairs.ask(*pools, lambda scope: source(node, scope).or_null)

    wanted = [computed(sign, *pair, kind=Type.DURATION) for pair in pairs.of(*pools)]
    assert not differing(found, wanted, pairs.of(*pools))


def test_what_lies_inside_a_deeper_expression_decides_by_itself(pairs: Pairs) -> None:
    a, b = output("a", "i"), output("b", "i")
    inner = typed.Arithmetic("*", a, b, Type.INTEGER)
    node = typed.Arithmetic("-", typed.Arithmetic("+", inner, a, Type.INTEGER), inner, Type.INTEGER)

    found = pairs.ask("i", "i", lambda scope: source(node, scope).or_null)

    wanted: list[Number] = []
    for left, right in pairs.of("i", "i"):
        product = computed("*", left, right, kind=Type.INTEGER)
        total = computed("+", product, left, kind=Type.INTEGER)
        wanted.append(computed("-", total, product, kind=Type.INTEGER))
    assert not differing(found, wanted, pairs.of("i", "i"))


def test_a_long_sum_is_no_longer_than_it_must_be() -> None:
    node: typed.Value = output("a", "f")
    for _ in range(31):
        node = typed.Arithmetic("+", node, output("b", "f"), Type.FLOAT)
    scope = Scope(Entity.SCALAR, "default", None).behind({name: _nullable(name, "Float64") for name in "ab"})

    text = condition(typed.Compare("==", node, output("a", "f")), scope).sql(dialect="clickhouse")

    assert len(text) < 40_000


FUNCTIONS: dict[str, Callable[[Any], Number]] = {
    "abs": lambda x: within(abs(x)) if isinstance(x, int) and x < 0 else abs(x),
    "sqrt": lambda x: None if x < 0 else math.sqrt(x),
    "log2": lambda x: None if x <= 0 else math.log2(x),
    "log10": lambda x: None if x <= 0 else math.log10(x),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("pool", POOLS)
def test_a_function_of_one_value_is_missing_where_it_has_no_result(
    pairs: Pairs, function: Literal["abs", "sqrt", "log2", "log10"], pool: str
) -> None:
    kind = kind_of(pool) if function == "abs" else Type.FLOAT
    node = typed.Apply(function, (output("a", pool),), kind)

    found = pairs.ask(pool, "i", lambda scope: source(node, scope).or_null)

    for (value, _), result in zip(pairs.of(pool, "i"), found, strict=True):
        wanted = None if value is None else FUNCTIONS[function](value)
        assert same(result, wanted) or (wanted is not None and math.isclose(result, wanted, rel_tol=1e-15)), value


def greatest(left: Number, right: Number, *, sign: int) -> Number:
    """The greatest of two, or by its sign the least."""
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return max(left * sign, right * sign) * sign
    sides = float(left), float(right)
    return math.nan if any(math.isnan(side) for side in sides) else max(sides[0] * sign, sides[1] * sign) * sign


@pytest.mark.parametrize("function", ["min", "max"])
@pytest.mark.parametrize("pools", PAIRS)
def test_the_least_and_the_greatest_of_nan_are_nan(
    pairs: Pairs, function: Literal["min", "max"], pools: tuple[str, str]
) -> None:
    kind = Type.INTEGER if set(pools) <= set("iu") else Type.FLOAT
    node = typed.Apply(function, (output("a", pools[0]), output("b", pools[1])), kind)

    found = pairs.ask(*pools, lambda scope: source(node, scope).or_null)

    sign = 1 if function == "max" else -1
    wanted = [greatest(*pair, sign=sign) for pair in pairs.of(*pools)]
    assert not differing(found, wanted, pairs.of(*pools))


def test_coalesce_is_the_first_value_that_is_there(pairs: Pairs) -> None:
    node = typed.Apply("coalesce", (output("a", "i"), output("b", "u")), Type.INTEGER)

    found = pairs.ask("i", "u", lambda scope: source(node, scope).or_null)

    assert not differing(found, [a if a is not None else b for a, b in pairs.of("i", "u")], pairs.of("i", "u"))


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b and a == a and b == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("pools", PAIRS)
def test_an_integer_and_a_float_compare_exactly(
    pairs: Pairs, sign: Literal["==", "!=", "<", "<=", ">", ">="], pools: tuple[str, str]
) -> None:
    node = typed.Compare(sign, output("a", pools[0]), output("b", pools[1]))
    other = typed.Compare(sign, typed.Arithmetic("+", node.left, typed.Constant(0, Type.INTEGER, "Int64"), Type.FLOAT
                          if pools[0] in "fn" else Type.INTEGER), node.right)  # fmt: skip

    found = pairs.ask(*pools, lambda scope: condition(node, scope))
    of_computed = pairs.ask(*pools, lambda scope: condition(other, scope))

    holds = [None not in pair and OPERATORS[sign](*pair) for pair in pairs.of(*pools)]
    assert not differing([bool(value) for value in found], holds, pairs.of(*pools))
    small = [holding and (pair[0] or 0) <= 2**63 - 1 if pools[0] in "iu" else holding
             for holding, pair in zip(holds, pairs.of(*pools), strict=True)]  # fmt: skip
    assert not differing([bool(value) for value in of_computed], small, pairs.of(*pools))


@pytest.mark.parametrize("pool", POOLS)
def test_a_value_is_between_or_among_constants_as_numbers_are(pairs: Pairs, pool: str) -> None:
    numbers = [
        (0, "Int64"),
        (-1, "Int64"),
        (2**64 - 1, "UInt64"),
        (2.5, "Float64"),
        (0.1, "Float64"),
        (2.0**53, "Float64"),
    ]
    constants = tuple(
        typed.Constant(value, Type.FLOAT if isinstance(value, float) else Type.INTEGER, table)
        for value, table in numbers
    )
    among = typed.OneOf(output("a", pool), constants)
    between = typed.Between(output("a", pool), constants[1], output("b", "f"))

    found = pairs.ask(pool, "f", lambda scope: condition(among, scope))
    inside = pairs.ask(pool, "f", lambda scope: condition(between, scope))

    rows = pairs.of(pool, "f")
    assert [bool(value) for value in found] == [a is not None and any(a == b for b, _ in numbers) for a, _ in rows]
    assert [bool(value) for value in inside] == [a is not None and b is not None and -1 <= a <= b for a, b in rows]


def test_nothing_lies_between_a_constant_and_an_end_that_is_missing(pairs: Pairs) -> None:
    quotient = typed.Arithmetic("/", output("a", "i"), output("b", "i"), Type.FLOAT)
    lowest = typed.Constant(-(2.0**64), Type.FLOAT, "Float64")
    within_it = typed.Between(typed.Constant(-1, Type.INTEGER, "Int64"), lowest, quotient)

    found = pairs.ask("i", "i", lambda scope: condition(within_it, scope))

    values = [computed("/", *pair, kind=Type.FLOAT) for pair in pairs.of("i", "i")]
    assert [bool(value) for value in found] == [value is not None and value >= -1 for value in values]


def test_a_condition_of_missing_values_is_false_and_its_opposite_true(pairs: Pairs) -> None:
    quotient = typed.Arithmetic("/", output("a", "i"), output("b", "i"), Type.FLOAT)
    compared = typed.Compare("!=", quotient, typed.Constant(1.0, Type.FLOAT, "Float64"))

    found = pairs.ask("i", "i", lambda scope: condition(compared, scope))
    opposite = pairs.ask("i", "i", lambda scope: condition(typed.Opposite(compared), scope))
    there = pairs.ask("i", "i", lambda scope: condition(typed.Exists(quotient), scope))
    finite = pairs.ask("i", "i", lambda scope: condition(typed.FloatTest("isfinite", quotient), scope))

    values = [computed("/", *pair, kind=Type.FLOAT) for pair in pairs.of("i", "i")]
    assert [bool(value) for value in found] == [value is not None and value != 1 for value in values]
    assert [bool(value) for value in opposite] == [not value for value in found]
    assert [bool(value) for value in there] == [value is not None for value in values]
    assert there == finite


def test_no_integer_equals_a_fraction_and_a_missing_one_does_not_differ_from_it(pairs: Pairs) -> None:
    half = typed.Constant(0.5, Type.FLOAT, "Float64")

    equal = pairs.ask("i", "u", lambda scope: condition(typed.Compare("==", output("a", "i"), half), scope))
    unequal = pairs.ask("i", "u", lambda scope: condition(typed.Compare("!=", output("a", "i"), half), scope))

    assert not any(equal)
    assert [bool(value) for value in unequal] == [a is not None for a, _ in pairs.of("i", "u")]


def test_a_magnitude_of_mixed_integers_is_missing_only_for_the_least(pairs: Pairs) -> None:
    either = typed.Apply("coalesce", (output("a", "i"), output("b", "u")), Type.INTEGER)
    node = typed.Apply("abs", (either,), Type.INTEGER)

    found = pairs.ask("i", "u", lambda scope: source(node, scope).or_null)

    first = [a if a is not None else b for a, b in pairs.of("i", "u")]
    wanted = [None if value in {None, MIN} else abs(value or 0) for value in first]
    assert not differing(found, wanted, pairs.of("i", "u"))


def test_the_least_integer_is_an_ordinary_one(pairs: Pairs) -> None:
    node = typed.Compare("==", output("a", "i"), typed.Constant(MIN, Type.INTEGER, "Int64"))

    found = pairs.ask("i", "i", lambda scope: condition(node, scope))

    assert [bool(value) for value in found] == [a == MIN for a, _ in pairs.of("i", "i")]
    assert whole(2.5) == 2
