"""Typed conditions as a query writes them, so that random ones go the whole way from text."""

import json
from collections.abc import Callable
from typing import Any

from rankscope.tql import typed
from rankscope.tql.fields import Field, Type
from rankscope_query_api.answers import iso_time


def written(node: typed.Condition | typed.Value) -> str:
    """The text that is read as this condition, if the checker takes it."""
    return _WRITERS[type(node)](node)


def _joined(word: str) -> Callable[[Any], str]:
    return lambda node: f"({word.join(map(written, node.operands))})"


def _between_two(node: Any) -> str:
    return f"({written(node.left)} {node.operator} {_beside(node.left, node.right)})"


def _one_of(node: typed.OneOf) -> str:
    return f"{written(node.value)} in [{', '.join(_beside(node.value, choice) for choice in node.choices)}]"


def _matches(node: typed.Matches) -> str:
    return f"{written(node.value)} {'!~' if node.is_opposite else '=~'} {_quoted(node.pattern)}"


def _history(node: typed.History) -> str:
    return f"{node.function}({written(node.value)}{f', {node.count}' if node.count else ''})"


def _beside(value: typed.Value, other: typed.Value) -> str:
    """A constant beside a field of words is one of them."""
    if isinstance(value, Field) and value.type is Type.WORD and isinstance(other, typed.Constant):
        return _quoted(value.vocabulary.of(int(other.value)))
    return written(other)


def _constant(node: typed.Constant) -> str:
    match node.type:
        case Type.STRING | Type.ID:
            return _quoted(str(node.value))
        case Type.DURATION:
            return f"{node.value}ns"
        case Type.TIME:
            return _quoted(iso_time(int(node.value)))
        case _:
            return repr(node.value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_WRITERS: dict[type, Callable[[Any], str]] = {
    typed.AllOf: _joined(" and "),
    typed.AnyOf: _joined(" or "),
    typed.Opposite: lambda node: f"not ({written(node.operand)})",
    typed.Compare: _between_two,
    typed.Arithmetic: _between_two,
    typed.Between: lambda node: f"{written(node.value)} in {written(node.low)}..{written(node.high)}",
    typed.OneOf: _one_of,
    typed.Matches: _matches,
    typed.Contains: lambda node: f"{written(node.value)} contains {written(node.part)}",
    typed.Exists: lambda node: f"exists({written(node.value)})",
    typed.FloatTest: lambda node: f"{node.question}({written(node.value)})",
    Field: lambda node: node.name,
    typed.Key: lambda node: f"{node.scope}.{_quoted(node.key)}",
    typed.Apply: lambda node: f"{node.function}({', '.join(map(written, node.arguments))})",
    typed.History: _history,
    typed.Constant: _constant,
}
