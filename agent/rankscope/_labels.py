"""Labels and numbers of a span as they are kept: copied, plain and cut, the moment they are given.

Whatever is not text or a number becomes bounded JSON in the caller's thread: the sealing thread must not
run code of the training (a tensor's `str` waits for its device). Text that is far too long is cut here
too, or the rows that wait would hold it: 12,000 spans with 500 kB each took 5.4 GB. A little more than
the bound is left, so that the exact cut (`_span_columns`) sees it, flags the row, and finds a secret
that lies across the edge whole enough to mask it.

Promises: nothing here raises, whatever it is given.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from rankscope._bounds import ATTRIBUTES, METRICS, NAME, NUMBER_BYTES, bytes_of
from rankscope._dropped import MOST_OF_FIELD

Label = str | int | float
"""Text or a number; numbers land in the numeric map."""

SHORT = 64
"""Characters of a text that the budget of rows covers; a longer one counts in the budget of text."""

MARGIN = 512
"""Characters kept beyond a bound, for a secret that lies across the edge."""

_FEW = 8
"""Entries of a map that the budget of rows covers."""

_PLAIN = frozenset((str, int, float))


_Value = TypeVar("_Value", Label, float)


class Labelled(Protocol):
    """What has labels: a span."""

    def hold(self, text_bytes: int, /) -> None:
        """Count memory of long text."""
        ...

    def note_dropped(self, name: str, why: str, /, more: int = 0) -> None:
        """Count something that could not be kept, and name it on the span; with so many more of its field."""
        ...

    def preview(self, value: object, name: str, /) -> str:
        """Bounded JSON of a value that is neither text nor a number, for the label of this name."""
        ...


def text_of(value: object, most: int = ATTRIBUTES + MARGIN) -> str:
    """The value's text, at most so many characters; says what is wrong where it has none."""
    try:
        if getattr(type(value), "__dlpack__", None) is not None:  # a tensor, an array: its text may wait for a device
            return f"<{type(value).__qualname__}>"
        return str.__getitem__(str(value), slice(most))
    except Exception as error:  # noqa: BLE001  # a foreign type's __str__ may raise anything
        return f"<{type(value).__qualname__} without text: {type(error).__qualname__}>"[:NAME]


def name_of(value: object, owner: Labelled, *, field: str) -> str:
    """The text of a name or an id, a little above its bound at most; `field` says what was cut."""
    text = text_of(value if type(value) is str else _plain(value, owner, field), NAME + MARGIN)
    if len(text) > SHORT:
        owner.hold(sys.getsizeof(text))
        if bytes_of(text) > NAME:
            owner.note_dropped(field, f"more than {NAME} bytes")
    return text


def labels(given: Mapping[str, object], owner: Labelled) -> dict[str, Label]:
    """A copy of the labels with every value plain, about as much of them as a span may have."""
    try:
        kept: dict[str, object] = {**given}  # a third faster than `dict` is
    except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
        owner.note_dropped("attributes", f"a {type(given).__qualname__} is no mapping: {text_of(error, NAME)}")
        return {}
    for key, value in kept.items():
        kind = type(value)
        if kind is str:
            if len(value) > SHORT:  # pyright: ignore[reportArgumentType]  # a text
                return _cut(kept, owner)
        elif kind is not int and kind is not float:
            return _cut(kept, owner)
        if type(key) is not str or len(key) > SHORT:
            return _cut(kept, owner)
    return kept if len(kept) <= _FEW else _cut(kept, owner)  # pyright: ignore[reportReturnType]  # all are Labels


def _cut(given: Mapping[str, object], owner: Labelled) -> dict[str, Label]:
    kept: dict[str, Label] = {}
    room, size = ATTRIBUTES, 0
    entries = iter(given.items())
    for key, value in entries:
        name = text_of(_plain(key, owner, "attributes"), NAME + MARGIN)
        label = _plain(value, owner, f"attributes.{name[:SHORT]}")
        if isinstance(label, str):
            label = label[: max(1, room - len(name)) + MARGIN]
            size += sys.getsizeof(label)
        size += sys.getsizeof(name)
        kept[name] = label
        room -= bytes_of(name) + bytes_of(label)
        if room < 0 or bytes_of(name) > NAME:
            owner.note_dropped(
                f"attributes.{name[:SHORT]}", f"attributes take more than {ATTRIBUTES} bytes, or a key {NAME}"
            )
        if room < 0:
            break
    lost = [key for key, _ in entries]
    _note_lost(owner, "attributes", names=[text_of(key, SHORT) for key in lost[:MOST_OF_FIELD]], count=len(lost))
    owner.hold(size)
    return kept


def joined(
    held: dict[str, _Value], added: Mapping[str, _Value], *, owner: Labelled, field: str, size: int
) -> tuple[dict[str, _Value], int]:
    """Attributes or metrics of a span with more of them, as a new mapping: another thread may read the old one.

    Args:
        held: What it has.
        added: What comes to it, as `labels` or `metrics` left it.
        owner: The span.
        field: "attributes" or "metrics".
        size: Bytes of `held`, as told here before; 0: not yet told.
    """
    most = ATTRIBUTES if field == "attributes" else METRICS
    size = size or sum(map(bytes_of, held)) + sum(map(bytes_of, held.values()))
    kept = held.copy()
    for name, value in added.items():
        old = kept.get(name)
        room = most - (size if old is None else size - bytes_of(name) - bytes_of(old))
        if room >= 0:
            kept[name] = value
            size = most - room + bytes_of(name) + bytes_of(value)
            if size > most and isinstance(value, str):
                kept[name] = value[: max(1, room - len(name)) + MARGIN]
                size = most + 1  # whatever was cut of it: it is full
        if size > most:
            _note_lost(owner, field, names=[name[:SHORT]], count=1)
    if len(kept) > _FEW:
        owner.hold(sum(map(sys.getsizeof, added)) + sum(map(sys.getsizeof, added.values())))
    return kept, size


def _note_lost(owner: Labelled, field: str, *, names: Sequence[str], count: int) -> None:
    """Name the first of so many that had to be left out."""
    more = count - len(names)
    for name in names:
        owner.note_dropped(f"{field}.{name}", f"{field} take more bytes than a span may have", more)
        more = 0


def named(name: "str | Mapping[str, float]", value: object) -> Mapping[str, float]:
    """A mapping as it is, a name as a mapping with its value."""
    try:
        if isinstance(name, Mapping):
            return name
    except Exception:  # noqa: BLE001  # a foreign type may raise anything, also when asked what it is
        name = text_of(name)
    return {text_of(name, NAME + MARGIN): value}  # pyright: ignore[reportReturnType]  # what has no number is noted


def numbers(given: Mapping[str, float], note_dropped: Callable[[str, str], None]) -> tuple[dict[str, float], int]:
    """A copy with every value a float, and the memory of its names if any is long.

    What has no number is dropped and noted: the metric's name (empty: all), and why.
    """
    try:
        copied: dict[str, float] = {**given}
    except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
        note_dropped("", f"metrics are a mapping, not a {type(given).__qualname__}: {text_of(error, NAME)}")
        return {}, 0
    for name, value in copied.items():
        if type(value) is not float or type(name) is not str or len(name) > SHORT:
            kept = _converted(copied, note_dropped)
            return kept, sum(map(len, kept)) if any(len(name) > SHORT for name in kept) else 0
    return copied, 0


def _converted(given: Mapping[str, float], note_dropped: Callable[[str, str], None]) -> dict[str, float]:
    kept: dict[str, float] = {}
    for name, value in given.items():
        is_short = type(name) is str and len(name) <= SHORT
        key = name if is_short else text_of(name, NAME + MARGIN)
        try:
            kept[key] = float(_apart(value))
        except Exception as error:  # noqa: BLE001  # a foreign type's __float__ may raise anything
            note_dropped(key, f"the metric {key!r} has no number: {text_of(error, NAME)}")
    return kept


def _apart(value: Any) -> Any:
    """A tensor without its gradients: torch warns of a number that is taken from one with them."""
    return value.detach() if getattr(value, "requires_grad", False) is True else value


def metrics(given: Mapping[str, float], owner: Labelled) -> dict[str, float]:
    """As `numbers`, about as many of them as a span may have."""
    kept, _ = numbers(given, lambda name, why: owner.note_dropped(f"metrics.{name}" if name else "metrics", why))
    room = METRICS
    for count, name in enumerate(kept):
        room -= bytes_of(name) + NUMBER_BYTES
        if room < 0:
            names = [lost[:SHORT] for lost in islice(kept, count, count + MOST_OF_FIELD)]
            _note_lost(owner, "metrics", names=names, count=len(kept) - count)
            kept = dict(islice(kept.items(), count))
            break
    if len(kept) > _FEW or METRICS - room > _FEW * SHORT:
        owner.hold(METRICS - room)
    return kept


def _plain(value: object, owner: Labelled, name: str, /) -> Label:
    if type(value) in _PLAIN:
        return value  # pyright: ignore[reportReturnType]  # a member of _PLAIN
    try:
        return _plain_of(value, owner, name)
    except Exception:  # noqa: BLE001  # a foreign type may raise anything, also when asked what it is
        return text_of(value)


def _plain_of(value: object, owner: Labelled, name: str, /) -> Label:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | os.PathLike):
        return text_of(value)  # pyright: ignore[reportUnknownArgumentType]  # a path of text or of bytes
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    return _unquoted(owner.preview(value, name))


def _unquoted(preview: str) -> str:
    """JSON as it is, a JSON string as its text: a label is searched for as people write it."""
    if not preview.startswith('"'):
        return preview
    try:
        text = json.loads(preview)
    except ValueError:  # cut short
        return preview[1:]
    return text if isinstance(text, str) else preview


def number_of(value: Label) -> float | None:
    """The value as a double, None for text and for whole numbers a double cannot hold."""
    if isinstance(value, str):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
