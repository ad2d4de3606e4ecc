"""Labels and numbers of a span as they are kept: copied and plain, the moment they are given.

Whatever is not text or a number becomes text in the caller's thread: the sealing thread must not
run code of the training (a tensor's `str` waits for its device).
"""

import math
from collections.abc import Callable, Mapping

Label = str | int | float
"""Text or a number; numbers land in the numeric map."""

_PLAIN = frozenset((str, int, float))


def labels(given: Mapping[str, object]) -> dict[str, Label]:
    """A copy of the labels with every value plain."""
    kept: dict[str, object] = dict(given)
    for key, value in kept.items():
        if type(value) not in _PLAIN or type(key) is not str:
            return {str(key): _plain(value) for key, value in kept.items()}
    return kept  # pyright: ignore[reportReturnType]  # every value was just seen to be a Label


def numbers(given: Mapping[str, float], note_fault: Callable[[str], None]) -> dict[str, float]:
    """A copy with every value a float; what has no number is left out and noted."""
    kept: dict[str, float] = {}
    for name, value in given.items():
        try:
            kept[str(name)] = float(value)
        except Exception as error:  # noqa: BLE001  # a foreign type's __float__ may raise anything
            note_fault(f"the metric {name!r} has no number: {error}")
    return kept


def _plain(value: object) -> Label:
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) in _PLAIN:
        return value  # pyright: ignore[reportReturnType]  # a member of _PLAIN
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  # a foreign type's __str__ may raise anything
        return f"<{type(value).__qualname__} without text: {type(error).__qualname__}>"


def number_of(value: Label) -> float | None:
    """The value as a double, None for text and for whole numbers a double cannot hold."""
    if isinstance(value, str):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
