"""From JSON back to values: whole numbers of ns, NaN and the infinities, which JSON carries as text.

A SELECT's answer states the types of its columns. That of a TQL query does not: there, the three words stand for
floats except in the fields that hold text, by their names.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from rankscope.tql.fields import FIELDS, Type
from rankscope.up import UpError
from rankscope_proto.non_finite import NON_FINITE

_TEXTS = frozenset(
    column
    for by_entity in FIELDS.values()
    for field in by_entity.values()
    if field.type is Type.STRING
    for column in (field.name, field.name.rpartition(".")[2], *field.column)
) | {"attributes"}
"""Keys under which a text is a text, "NaN" too."""


class MissingPackageError(UpError):
    """A result was asked for in the form of a package that is not installed."""

    code = "missing_package"


def decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a TQL answer."""
    return {name: _decoded(name, value) for name, value in row.items()}


def decoded_as(row: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """A row of a SELECT's answer, by the types of its columns."""
    return {name: _decoded_as(value, types.get(name, ""), name=name) for name, value in row.items()}


def _decoded(name: str, value: Any) -> Any:
    if isinstance(value, str):
        if name.endswith("_ns"):
            return int(value) if value.lstrip("-").isdecimal() else value
        return value if name in _TEXTS else NON_FINITE.get(value, value)
    if isinstance(value, dict) and name not in _TEXTS:
        return decoded(cast("dict[str, Any]", value))
    return cast("Any", value)


def _decoded_as(value: Any, kind: str, *, name: str) -> Any:
    if isinstance(value, str):
        if "Float" in kind:
            return NON_FINITE.get(value, value)
        return int(value) if "Int" in kind and name.endswith("_ns") else value
    if isinstance(value, list):
        return [_decoded_as(one, kind, name=name) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        inner = kind.rpartition(",")[2]
        return {key: _decoded_as(one, inner, name=key) for key, one in cast("dict[str, Any]", value).items()}
    return value


def package(name: str, *, wanted: str) -> Any:
    """A package that the base install does not bring, untyped.

    Raises:
        MissingPackageError: It is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{wanted} needs the package {name!r}: pip install {name}") from error


def arrow_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """Rows as a `pyarrow.Table`; maps, and columns of values of several types, as JSON text."""
    pa = package("pyarrow", wanted="to_arrow()")
    return pa.table({name: _array(pa, [row.get(name) for row in rows]) for name in columns})


def _array(pa: Any, values: list[Any]) -> Any:
    if not any(isinstance(value, dict) for value in values):
        for kind in (None, pa.uint64()):
            try:
                return pa.array(values, type=kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                continue
    return pa.array([value if value is None or isinstance(value, str) else json.dumps(value) for value in values])


def arrow_stream(content: bytes) -> Any:
    """The table that an Arrow stream holds."""
    pa = package("pyarrow", wanted="to_arrow()")
    return pa.ipc.open_stream(content).read_all()
