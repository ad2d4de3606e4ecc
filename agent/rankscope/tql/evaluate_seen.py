"""What a condition saw in a row, for whoever tells of a hit: the values that it names, by their names in a query."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rankscope.tql.evaluate_plain import Plain
from rankscope.tql.fields import Field, Type
from rankscope.tql.literals import name_of
from rankscope.tql.typed import Apply, Arithmetic, Condition, Constant, History, Key, Value

Subject = Field | Key | History
"""A value that differs from row to row and is no result of others of the same row."""


def nodes_in(node: object) -> Iterator[object]:
    """Everything in a condition, the parts before the whole."""
    if isinstance(node, tuple):
        for part in cast("tuple[object, ...]", node):
            yield from nodes_in(part)
    elif dataclasses.is_dataclass(node):
        for field in () if isinstance(node, Field) else dataclasses.fields(node):
            yield from nodes_in(getattr(node, field.name))
        yield node


def subjects(condition: Condition) -> dict[str, Subject]:
    """What a condition asks of a row, by name, in the order of the text."""
    return {written(node): node for node in nodes_in(condition) if isinstance(node, Subject)}


def seen(plain: Plain, asked: Mapping[str, Subject], *, place: int) -> dict[str, Any]:
    """The values of a row.

    Args:
        plain: Evaluates the batch.
        asked: What is wanted, by name.
        place: Which row, 0-based.
    """
    return {name: _shown(node, plain.values(node)[place]) for name, node in asked.items()}


def _shown(node: Subject, value: Any) -> Any:
    """A value as an answer shows it: words as words, ids as hexadecimal digits."""
    if value is None or isinstance(node, Key):
        return value
    field = node if isinstance(node, Field) else node.value
    if isinstance(field, Field) and field.type is Type.WORD:
        return field.vocabulary.of(value)
    return f"{value:0{field.id_digits}x}" if isinstance(field, Field) and field.type is Type.ID else value


def written(value: Value) -> str:
    """A value as a query writes it."""
    match value:
        case Constant():
            return str(value.value)
        case Field() | Key():
            return name_of(value)
        case Arithmetic():
            return f"({written(value.left)} {value.operator} {written(value.right)})"
        case Apply():
            return f"{value.function}({', '.join(map(written, value.arguments))})"
        case History():
            return f"{value.function}({written(value.value)}{f', {value.count}' if value.count else ''})"
        case _:
            return value.name
