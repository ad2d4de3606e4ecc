"""What a condition means, said again row by row in the plainest Python, to hold both executions against."""

import functools
import math
import operator
import re
import statistics
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from rankscope.tql import typed
from rankscope.tql.fields import FIELDS, MAPS, Entity, Field, Type
from rankscope.tql.series import SERIES
from tests.query_api.tql.events import Process
from tests.query_api.tql.rows import Row

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TESTS = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}


@dataclass(frozen=True)
class Placed:
    """A row and where it comes from.

    Attributes:
        row: Its fields.
        process: Who sent it.
        seq: Number of its batch.
        index: Its place in the batch.
        entity: What it is.
        earlier: The rows of its series that come before it, in order.
    """

    row: Row
    process: Process
    seq: int
    index: int
    entity: Entity
    earlier: list["Placed"] = field(default_factory=list["Placed"], compare=False, repr=False)

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place in TQL's total order."""
        step = -1 if self.row["step"] is None else self.row["step"]
        time = self.row.get("time", self.row.get("start"))
        inner = (self.row.get("microstep", 0), self.row.get("phase", 0)) if self.entity is not Entity.SCALAR else ()
        end = (self.seq, self.index, self.process.rank, self.process.incarnation.hex())
        return (step, time if step < 0 else 0, *inner, *end)

    @property
    def series(self) -> tuple[Any, ...]:
        """Which series it belongs to."""
        known = [FIELDS[name][self.entity] for name in SERIES[self.entity]]
        values = [(self.row.get(each.column[0]), each.bit) for each in known]
        return (self.process.incarnation, *(value & bit if bit and value else value for value, bit in values))


def placed(processes: list[Process], entity: Entity) -> list[Placed]:
    """All rows of an entity in TQL's total order."""
    rows = [
        Placed(row, process, seq, index, entity)
        for process in processes
        for seq, batch in enumerate(process.batches)
        for index, row in enumerate(batch[entity])
    ]
    rows.sort(key=lambda known: known.order)
    series: dict[tuple[Any, ...], list[Placed]] = {}
    for known in rows:
        before = series.setdefault(known.series, [])
        known.earlier.extend(before)
        before.append(known)
    return rows


def holds(condition: typed.Condition, row: Placed) -> bool:
    """Whether the condition is true of the row."""
    match condition:
        case typed.AllOf():
            return all(holds(operand, row) for operand in condition.operands)
        case typed.AnyOf():
            return any(holds(operand, row) for operand in condition.operands)
        case typed.Opposite():
            return not holds(condition.operand, row)
        case typed.Compare():
            return _compares(value_of(condition.left, row), condition.operator, value_of(condition.right, row))
        case typed.Between():
            value, low, high = (value_of(part, row) for part in (condition.value, condition.low, condition.high))
            return _compares(low, "<=", value) and _compares(value, "<=", high)
        case _:
            return _answers(condition, value_of(condition.value, row), row)


def _answers(condition: Any, value: Any, row: Placed) -> bool:
    if value is None:
        return False
    match condition:
        case typed.OneOf():
            return any(_compares(value, "==", value_of(choice, row)) for choice in condition.choices)
        case typed.Matches():
            whole = re.search(rf"\A(?:{condition.pattern})\Z", value, re.DOTALL | re.ASCII)
            return (whole is None) is condition.is_opposite
        case typed.Contains():
            part = value_of(condition.part, row)
            return part is not None and value.find(part) >= 0
        case typed.FloatTest():
            return TESTS[condition.question](value)
        case _:
            return isinstance(condition, typed.Exists) or value is True


def _compares(left: Any, symbol: str, right: Any) -> bool:
    for side in (left, right):
        if side is None or (isinstance(side, float) and math.isnan(side)):
            return False
    return OPERATORS[symbol](left, right)


def value_of(value: typed.Value, row: Placed) -> Any:
    """The value in the row, None where it is missing."""
    match value:
        case typed.Constant():
            return value.value
        case Field():
            return _stored(value, row)
        case typed.Key():
            return _under_key(value, row.row)
        case typed.Arithmetic():
            sides = (value_of(value.left, row), value_of(value.right, row))
            return None if None in sides else _computed(value, *sides)
        case typed.Apply():
            return _applied(value, [value_of(argument, row) for argument in value.arguments])
        case typed.History():
            return _history(value, row)
        case _:
            raise AssertionError(value)


def _stored(known: Field, row: Placed) -> Any:
    if known.name in {"rank", "local_rank"}:
        return row.process.rank if row.process.rank >= 0 else None
    if known.name == "span.trace_id":
        return f"{row.row['trace_hi']:016x}{row.row['trace_lo']:016x}"
    if known.name == "span.end":
        return _within(row.row["start"] + row.row["duration"])
    found = row.row[known.column[0]]
    if found is None or found == known.absent:
        return None
    if known.table == "Float32":
        return struct.unpack("<f", struct.pack("<f", found))[0]
    found = bool(found & known.bit) if known.bit else found
    return f"{found:016x}" if known.type is Type.ID else found


def _under_key(key: typed.Key, row: Mapping[str, Any]) -> Any:
    texts, numbers = row[MAPS[key.scope][0]], row[MAPS[key.scope][-1]]
    if key.type is Type.FLOAT:
        return numbers.get(key.key)
    return texts.get(key.key, None if key.type is Type.STRING else numbers.get(key.key))


def _within(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def _computed(node: typed.Arithmetic, left: Any, right: Any) -> Any:
    if node.operator in "/%" and right == 0:
        return None
    if node.operator != "/" and isinstance(left, int) and isinstance(right, int):
        return _within(_of_integers(node.operator, left, right))
    left, right = float(left), float(right)
    result = _of_floats(node.operator, left, right)
    if math.isinf(result) and math.isfinite(left) and math.isfinite(right):
        return None
    return _as(node.type, result)


def _of_integers(symbol: str, left: int, right: int) -> int:
    if symbol == "%":
        return left - right * int(Fraction(left, right))
    return {"+": left + right, "-": left - right, "*": left * right}[symbol]


def _of_floats(symbol: str, left: float, right: float) -> float:
    if symbol == "%":
        if math.isinf(right) and math.isfinite(left):
            return left
        whole = left / right
        if not math.isfinite(whole):
            return whole if math.isfinite(left) and math.isfinite(right) else math.nan
        return left - math.copysign(math.floor(abs(whole)), whole) * right
    if symbol == "/":
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[symbol]


def _as(kind: Type, value: float) -> Any:
    """A computed float as a value of a type."""
    if kind is Type.FLOAT:
        return value
    if not math.isfinite(value):
        return None
    whole = math.floor(value)
    rest = Fraction(value) - whole
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    return _within(whole + up)


def _applied(node: typed.Apply, values: list[Any]) -> Any:
    if node.function == "coalesce":
        there = [value for value in values if value is not None]
        return (float(there[0]) if node.type is Type.FLOAT else there[0]) if there else None
    return None if None in values else _APPLIED[node.function](node, values)


def _magnitude(node: typed.Apply, values: list[Any]) -> Any:
    return None if node.type is not Type.FLOAT and values[0] == -(2**63) else abs(values[0])


def _root(node: typed.Apply, values: list[Any]) -> Any:
    return None if values[0] < 0 else math.sqrt(values[0])


def _logarithm(node: typed.Apply, values: list[Any]) -> Any:
    function = math.log2 if node.function == "log2" else math.log10
    return None if values[0] <= 0 else function(float(values[0]))


def _ratio(node: typed.Apply, values: list[Any]) -> Any:
    return _computed(typed.Arithmetic("/", node.arguments[0], node.arguments[1], Type.FLOAT), *values)


def _extreme(node: typed.Apply, values: list[Any]) -> Any:
    if node.type is Type.FLOAT:
        values = [float(value) for value in values]
        if any(map(math.isnan, values)):
            return math.nan
    return sorted(values)[0 if node.function == "min" else -1]


_APPLIED: dict[str, Callable[[typed.Apply, list[Any]], Any]] = {
    "abs": _magnitude,
    "sqrt": _root,
    "log2": _logarithm,
    "log10": _logarithm,
    "ratio": _ratio,
    "min": _extreme,
    "max": _extreme,
}


def _history(node: typed.History, row: Placed) -> Any:
    value = value_of(node.value, row)
    past = [known for known in (value_of(node.value, before) for before in row.earlier) if _is_number(known)]
    match node.function:
        case "prev":
            return past[-1] if past else None
        case "delta":
            if value is None or not past:
                return None
            return _computed(typed.Arithmetic("-", node.value, node.value, node.type), value, past[-1])
        case "ema":
            return _mean(node, [*past, *([value] if _is_number(value) else [])])
        case "robust_z":
            return None if value is None else _robust(float(value), [float(known) for known in past[-node.count :]])


def _is_number(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _mean(node: typed.History, values: list[Any]) -> Any:
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        return None
    if node.count == 1:
        return _as(node.type, finite[-1])
    fading = 2.0 ** (-1 / (-1 / math.log2(1 - 2 / (node.count + 1))))
    change = functools.reduce(lambda known, pair: known * fading + (pair[1] - pair[0]), pairwise(finite), 0.0)
    mean = finite[-1] - change / (1 / (1 - fading)) * ((node.count - 1) / 2)
    return _as(node.type, mean) if math.isfinite(mean) else None


def _robust(value: float, past: list[float]) -> float | None:
    if len(past) < 8:
        return None
    median = statistics.median(past)
    if not math.isfinite(median):
        return None
    spread = statistics.median([abs(known - median) for known in past])
    if not math.isfinite(spread) or spread == 0:
        return None
    result = (value - median) / (1.4826 * spread)
    return None if math.isinf(result) and math.isfinite(value) else result
