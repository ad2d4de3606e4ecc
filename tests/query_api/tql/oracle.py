"""What a condition of plain fields means, said a second time in plain Python, to hold the SQL against."""

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from rankscope.tql.fields import MAPS, Field, Type
from rankscope.tql.typed import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Condition,
    Constant,
    Exists,
    FloatTest,
    Key,
    OneOf,
    Opposite,
    Value,
)
from tests.query_api.tql.rows import Row

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FLOAT_TESTS = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}


def holds(condition: Condition, row: Row, *, rank: int) -> bool:
    """Whether the condition is true of the row."""
    match condition:
        case AllOf():
            return all(holds(operand, row, rank=rank) for operand in condition.operands)
        case AnyOf():
            return any(holds(operand, row, rank=rank) for operand in condition.operands)
        case Opposite():
            return not holds(condition.operand, row, rank=rank)
        case Exists():
            return value_of(condition.value, row, rank=rank) is not None
        case _:
            return _compares(condition, row, rank=rank)


def _compares(condition: Condition, row: Row, *, rank: int) -> bool:
    assert isinstance(condition, Compare | OneOf | Between | FloatTest)
    left = value_of(condition.left if isinstance(condition, Compare) else condition.value, row, rank=rank)
    if left is None:
        return False
    if isinstance(condition, FloatTest):
        return FLOAT_TESTS[condition.question](left)
    if isinstance(condition, OneOf):
        return any(left == choice.value for choice in condition.choices)
    if isinstance(condition, Between):
        low, high = (value_of(side, row, rank=rank) for side in (condition.low, condition.high))
        return low <= left <= high
    right = value_of(condition.right, row, rank=rank)
    if right is None or left != left or right != right:
        return False
    return OPERATORS[condition.operator](left, right)


def value_of(operand: Value, row: Row, *, rank: int) -> Any:
    """The operand's value in the row, None where it is missing."""
    if isinstance(operand, Constant):
        return operand.value
    if isinstance(operand, Key):
        return _under_key(operand, row)
    assert isinstance(operand, Field)
    if operand.name in {"rank", "local_rank"}:
        return rank if rank >= 0 else None
    if operand.name == "span.trace_id":
        return f"{row['trace_hi']:016x}{row['trace_lo']:016x}"
    if operand.name == "span.end":
        return row["start"] + row["duration"]
    return _as_stored(operand, row[operand.column[0]])


def _under_key(key: Key, row: Row) -> Any:
    texts, numbers = MAPS[key.scope][0], MAPS[key.scope][-1]
    if key.type is Type.FLOAT:
        return row[numbers].get(key.key)
    if key.type is Type.STRING:
        return row[texts].get(key.key)
    return row[texts].get(key.key, row[numbers].get(key.key))


def _as_stored(field: Field, value: Any) -> Any:
    if value is None or value == field.absent:
        return None
    if field.table == "Float32":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return f"{value:016x}" if field.type is Type.ID else value


def order_of(row: Row, index: int, *, rank: int) -> tuple[Any, ...]:
    """The total order of tensors and spans, as the language defines it."""
    step = -1 if row["step"] is None else row["step"]
    time = row["time"] if "time" in row else row["start"]
    return (
        step,
        row["microstep"],
        row["phase"],
        time if step < 0 else 0,
        0,
        index,
        rank,
        (bytes([rank + 2]) * 16).hex(),
    )
