"""What is shown of values that JSON does not know: tensors and arrays described, objects by their fields or names.

Promises: no call here waits for a device, copies a tensor, consumes an iterator or reads a file; a few values are
shown only of plain arrays that lie in this process's memory. What a foreign type raises becomes its description.
"""

import dataclasses
import enum
import math
import sys
import types
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

KEY_CHARACTERS = 256
"""Characters of a key that are shown."""

VALUES = 8
"""Values of a tensor or an array that are shown, from its beginning."""

_PLAIN_NUMBERS = "biuf"
"""Kinds of numpy's types whose values are shown."""

_BINARY: tuple[type, ...] = (bytes, bytearray, memoryview)
_REPR_CHARACTERS = 512

_DIMENSIONS = 64


def described(value: object) -> object:
    """The value as something nearer to JSON: a mapping, a sequence, a text or a number.

    A tensor or an array becomes a mapping of type, shape, dtype, device and a few values; a dataclass, a named tuple,
    a namespace or a model its fields; bytes their size; an exception its type and message; anything else its text.
    """
    try:
        return _described(value)
    except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
        return f"<{_type_name(value)}: {type(error).__qualname__} when asked for its text>"


def _described(value: object) -> object:
    if isinstance(value, _BINARY):
        return {"size": memoryview(cast("bytes", value)).nbytes, "type": type(value).__name__}
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, BaseException):
        return {"message": str(value)[:_REPR_CHARACTERS], "type": _type_name(value)}
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return f"<{value.__module__}.{value.__qualname__}>"
    shape = getattr(value, "shape", None)
    if shape is not None and getattr(value, "dtype", getattr(value, "dtypes", None)) is not None:
        return _array(value, shape)
    fields = _fields(value)
    return _text(value) if fields is None else fields


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _array(value: object, shape: object) -> object:
    """Shape and type of a tensor or an array; a number where it is one of numpy's own."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return cast("Any", value).item()
    summary: dict[str, object] = {"type": _type_name(value), "shape": _sizes(shape)}
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        summary["dtype"] = str(dtype).removeprefix("torch.")
    device = getattr(value, "device", None)
    if device is not None and not callable(device):
        summary["device"] = str(device)
    values = _values(value)
    if values is not None:
        summary["values"] = values
    return summary


def _sizes(shape: object) -> list[object]:
    return [size if type(size) is int else str(size) for size in islice(cast("list[object]", shape), _DIMENSIONS)]


def _values(value: Any) -> list[object] | None:
    """The first values along the last axis, where they lie in plain memory of this process."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    row: Any = value
    # Only the very types: a subclass may be anything behind (shards on other ranks, a file, a trace being recorded).
    if torch is not None and (type(row) is torch.Tensor or type(row) is torch.nn.Parameter):
        if row.device.type != "cpu" or row.layout is not torch.strided or row.is_complex():
            return None
        row = row.detach()
    elif numpy is None or type(row) is not numpy.ndarray or row.dtype.kind not in _PLAIN_NUMBERS:
        return None
    while row.ndim > 1:
        if row.shape[0] == 0:
            return []
        row = row[0]
    shown: Any = (row if row.ndim == 0 else row[:VALUES]).tolist()
    return [_rounded(number) for number in (cast("list[object]", shown) if isinstance(shown, list) else [shown])]


def _rounded(number: object) -> object:
    """Six digits: a float32 has no more, and `0.10000000149011612` is longer than what it says."""
    if type(number) is float and math.isfinite(number):
        return float(f"{number:.6g}")
    return number


def _fields(value: object) -> Mapping[object, object] | None:
    """Names and values of an object that is nothing but its fields; None for other objects."""
    if isinstance(value, types.SimpleNamespace) or _type_name(value) == "argparse.Namespace":
        return cast("Mapping[object, object]", vars(value))  # not copied: it may have any number of them
    names = _field_names(value)
    return None if names is None else {name: getattr(value, name, None) for name in names}


def _field_names(value: object) -> Sequence[str] | None:
    kind: Any = type(value)
    if dataclasses.is_dataclass(kind):
        # A field that its author keeps out of `repr` is kept out here.
        return [field.name for field in dataclasses.fields(kind) if field.repr]
    for names in (getattr(kind, "_fields", None), getattr(kind, "model_fields", None)):
        if isinstance(names, (tuple, dict)):  # a named tuple; a pydantic model
            return list(cast("Sequence[str]", names))
    attributes = getattr(kind, "__attrs_attrs__", None)
    if isinstance(attributes, tuple):
        return [attribute.name for attribute in cast("tuple[Any, ...]", attributes) if attribute.repr]
    return None


def _text(value: object) -> str:
    """The object's own text where its type has one; never an address, which differs from run to run."""
    kind = type(value)
    torch = sys.modules.get("torch")
    is_model = torch is not None and isinstance(value, torch.nn.Module)  # whose text has a line for each module
    if is_model or (kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__):
        return f"<{_type_name(value)}>"
    if kind.__module__ in ("builtins", "types"):
        return (
            f"<{_type_name(value)}>" if kind is not range and kind is not slice and kind is not complex else repr(value)
        )
    return str.__getitem__(str(value), slice(_REPR_CHARACTERS))


def basic(value: object) -> object:
    """A value of a subclass of a basic type as that type; of any other type as it is described."""
    if isinstance(value, enum.Enum):
        return described(value)
    if isinstance(value, str):
        return str.__getitem__(value, slice(None))
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else described(value)


def number_name(number: float) -> str:
    """The name of a number that JSON has none for."""
    return "NaN" if number != number else ("Infinity" if number > 0 else "-Infinity")


def key_text(key: object) -> str:
    """The text of a key that is none, a character above `KEY_CHARACTERS` at most."""
    try:
        return str.__getitem__(str(key), slice(KEY_CHARACTERS + 1))
    except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
        return f"<{type(key).__qualname__}: {type(error).__qualname__} when asked for its text>"
