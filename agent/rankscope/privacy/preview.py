"""Payloads become short JSON: bounded first, then redacted, then written.

The order is the point. Bounded first: a list of a million numbers is looked at where it begins, never walked, and a
tensor is described, never copied. Redacted before anything is cut to its final length: of a secret at the edge no
part is left. One search goes over all texts of a payload together; only where it finds the mark of a secret is each
text looked at.

Promises: JSON with sorted keys and without blanks; not a number and infinities as text; within the bound, at the
border of a character; whole JSON even where something was left out (`"… 3 more"` stands for it), but for the rare
payload of characters that JSON escapes.
"""

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from types import NoneType
from typing import NamedTuple, Protocol, cast

from rankscope.privacy.names import LONGEST
from rankscope.privacy.sizes import cut, escapes, size_of
from rankscope.privacy.summaries import KEY_CHARACTERS, basic, key_text, number_name
from rankscope.privacy.values import REDACTED

WHOLE = 128
"""Items of a sequence that are shown if they fit; of a longer one of numbers `HEAD` are."""

HEAD = 8
DEEPEST = 16
"""Containers within containers that are shown."""

OVERLAP = 1024
"""Characters beyond the bound that redaction sees: a secret that crosses it is known by then."""

_KEY_BYTES = 4
_FLOAT_BYTES = 12
_INT_BYTES = 5
_BRACKET_BYTES = 3
_MARK_BYTES = 16
_LARGE_INT = 1 << 53
_LONGEST_INT_BITS = 1024

_NUMBERS = frozenset((int, float, bool, NoneType))
_OWN_CROWDS = (AbstractSet, deque, list, tuple)
_CROWDS = (*_OWN_CROWDS, Sequence)
"""Of a foreign sequence only the head is asked for: each item may be read from a file."""

_NO_CROWDS = (str, bytes, bytearray, memoryview, range)
_MORE = "…"
_ATTEMPTS = 4
_write = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


class Preview(NamedTuple):
    """A payload as it is kept.

    Attributes:
        text: JSON (of an excerpt: the text itself), within its bound in UTF-8 bytes.
        is_redacted: Whether anything in it was replaced.
        is_truncated: Whether anything was left out.
    """

    text: str
    is_redacted: bool
    is_truncated: bool


class Judge(Protocol):
    """What a preview asks of a redactor."""

    @property
    def key(self) -> Callable[[str], tuple[bool, str] | None]:
        """Of a key: None where it is none's and may be shown; else whether it names a secret, and how it is shown."""
        ...

    def is_secret(self, key: str) -> bool:
        """Whether what has this name is a secret."""
        ...

    def may_change(self, text: str) -> bool:
        """Whether `text` would have to look closer at the text or at a part of it."""
        ...

    def text(self, text: str) -> str:
        """The text with secrets replaced."""
        ...


def preview(judge: Judge, value: object, *, most: int) -> Preview:
    """The value as JSON of at most so many bytes; never raises."""
    room = most
    text, bounding = _bounded(judge, value, most=room)
    for _ in range(_ATTEMPTS):
        size = size_of(text)
        if size <= most:
            break
        # Escapes, long numbers, many small containers: estimated too small.
        room = room * most // size - _KEY_BYTES
        text, bounding = _bounded(judge, value, most=room)
    kept = cut(text, most)
    return Preview(kept, bounding.is_redacted, bounding.is_truncated or len(kept) < len(text))


def _bounded(judge: Judge, value: object, *, most: int) -> "tuple[str, _Bounding]":
    bounding = _Bounding(judge, most)
    try:
        return bounding.written(value), bounding
    except ValueError:  # a number that is none, or has thousands of digits, in a mapping that was taken as a whole
        bounding = _Bounding(judge, most, is_careful=True)
        return bounding.written(value), bounding


def excerpt(judge: Judge, text: str, *, most: int) -> Preview:
    """The text itself, redacted and cut; never raises."""
    piece = text[: most + OVERLAP]
    redacted = judge.text(piece)
    kept = cut(redacted, most)
    return Preview(kept, redacted is not piece, len(kept) < len(redacted) or len(piece) < len(text))


class _Long(NamedTuple):
    """A text that is cut after it is redacted."""

    piece: str
    most: int


class _Bounding:
    """One payload on its way to a preview.

    Attributes:
        room: Bytes that are left, about.
        is_redacted: Whether something was replaced.
        is_truncated: Whether something was left out.
    """

    __slots__ = (
        "_around",
        "_has_long",
        "_is_careful",
        "_judge",
        "_odd",
        "_texts",
        "is_redacted",
        "is_truncated",
        "room",
    )

    def __init__(self, judge: Judge, most: int, *, is_careful: bool = False) -> None:
        self.room = most
        self._is_careful = is_careful
        self.is_redacted = self.is_truncated = self._has_long = False
        self._judge = judge
        self._odd = judge.key
        self._texts: list[str] = []
        self._around: set[int] = set()

    def written(self, value: object) -> str:
        """The value as JSON."""
        plain = self._plain(value, is_secret=False)
        texts = self._texts
        may_change = bool(texts) and self._judge.may_change("\n".join(texts) if len(texts) > 1 else texts[0])
        if may_change or self._has_long:
            plain = self._redacted(plain, may_change=may_change)
        return _write(plain)

    def _plain(self, value: object, *, is_secret: bool) -> object:
        """The value as JSON knows it, as much of it as there is room for."""
        kind = type(value)
        if kind is str:
            return self._masked(cast("str", value)) if is_secret else self._text(cast("str", value))
        if kind is int:
            return self._whole_number(cast("int", value))
        if kind is float:
            self.room -= _FLOAT_BYTES
            number = cast("float", value)
            return number if number - number == 0 else number_name(number)
        if kind is bool or value is None:
            self.room -= _INT_BYTES
            return value
        flat = None
        if kind is dict and not (is_secret or self._is_careful):
            flat = self._flat(cast("dict[object, object]", value))
        return self._container(value, is_secret=is_secret) if flat is None else flat

    def _container(self, value: object, *, is_secret: bool) -> object:
        around, own = self._around, id(value)
        if own in around:
            self.room -= _FLOAT_BYTES
            return f"<cycle: the {type(value).__name__} around it>"
        if len(around) >= DEEPEST:
            self.is_truncated = True
            self.room -= _KEY_BYTES
            return _MORE
        around.add(own)
        self.room -= _BRACKET_BYTES
        try:
            return self._opened(value, is_secret=is_secret)
        except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
            return f"<unreadable {type(value).__qualname__}: {type(error).__qualname__}>"
        finally:
            around.discard(own)

    def _opened(self, value: object, *, is_secret: bool) -> object:
        kind = type(value)
        if kind is dict:
            return self._mapping(cast("dict[object, object]", value), is_secret=is_secret)
        if kind is list or kind is tuple:
            items = cast("Sequence[object]", value)
            return self._sequence(items, len(items), is_secret=is_secret)
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[object, object]", value), is_secret=is_secret)
        if _is_crowd(value):
            crowd = cast("Collection[object]", value)
            most = WHOLE if isinstance(value, _OWN_CROWDS) else HEAD
            return self._sequence(list(islice(crowd, most)), len(crowd), is_secret=is_secret)
        if is_secret and isinstance(value, (bytes, bytearray)):
            return self._masked("bytes")
        return self._plain(basic(value), is_secret=is_secret)

    def _flat(self, value: dict[object, object]) -> dict[str, object] | None:
        """A copy of a mapping of plain keys to plain values, if it fits; None for any other.

        What most payloads are: an entry costs a third of what it costs in `_mapping`. One of more entries than there
        is room for is not even copied: a million of them took seconds.
        """
        if len(value) * _KEY_BYTES > self.room:
            return None
        kept = cast("dict[str, object]", value.copy())  # nobody changes it from here on
        texts: list[str] = []
        odd, size = self._odd, 0
        for key, item in kept.items():
            if type(key) is not str or len(key) > LONGEST or odd(key):
                return None
            size += len(key)
            kind = type(item)
            if kind is str:
                texts.append(item)  # pyright: ignore[reportArgumentType]  # a text
            elif kind not in _NUMBERS:
                return None
        return (
            kept if "value" not in kept and self._fits(texts, size + _FLOAT_BYTES * (len(kept) - len(texts))) else None
        )

    def _fits(self, texts: list[str], size: int) -> bool:
        """Whether there is room for texts and so much else; takes it."""
        if texts:
            joined = "\n".join(texts) if len(texts) > 1 else texts[0]
            size += size_of(joined) + _KEY_BYTES * len(texts)
        if size > self.room:
            return False
        self.room -= size
        self._texts += texts
        return True

    def _mapping(self, value: Mapping[object, object], *, is_secret: bool) -> dict[str, object]:
        kept: dict[str, object] = {}
        odd, plain = self._odd, self._plain
        told = _told_key(value)
        for key, item in value.items():
            if self.room <= 0:
                break
            name = key if type(key) is str else key_text(key)
            judged = odd(name[-LONGEST:])
            if judged or len(name) > LONGEST or name in kept:
                name = self._rare_key(name, judged, kept)
            names_secret = judged is not None and judged[0]
            if key == "value" and told:
                names_secret = self._judge.is_secret(told)
            self.room -= len(name) + _KEY_BYTES
            kept[name] = plain(item, is_secret=names_secret or is_secret)
        if len(kept) < len(value):
            self.is_truncated = True
            self.room -= _MARK_BYTES
            kept[_MORE] = f"{len(value) - len(kept)} more"
        return kept

    def _rare_key(self, name: str, judged: tuple[bool, str] | None, /, kept: Mapping[str, object]) -> str:
        """A key that is redacted or cut, or told from one that reads like it (`1` and `"1"`)."""
        if len(name) > LONGEST:
            self.is_truncated = True
            name = self._judge.text(name[: KEY_CHARACTERS + OVERLAP])[:KEY_CHARACTERS] + _MORE
        elif judged is not None:
            self.is_redacted = self.is_redacted or judged[1] != name
            name = judged[1]
        return f"{name} ({len(kept)})" if name in kept else name

    def _sequence(self, items: Sequence[object], length: int, *, is_secret: bool) -> list[object]:
        kinds = set(map(type, items[:WHOLE]))
        if kinds <= _NUMBERS:
            kept = self._numbers(items if length <= WHOLE else items[:HEAD])
        elif length == 2 and type(items[0]) is str and self._judge.is_secret(items[0]):
            kept = [self._plain(items[0], is_secret=is_secret), self._plain(items[1], is_secret=True)]
        else:
            kept = self._items(items[:WHOLE], is_secret=is_secret)
        if len(kept) < length:
            self.is_truncated = True
            self.room -= _MARK_BYTES
            kept.append(f"{_MORE} {length - len(kept)} more")
        return kept

    def _numbers(self, numbers: Sequence[object]) -> list[object]:
        size = _FLOAT_BYTES * len(numbers)
        if self._is_careful or size > self.room:
            return self._items(numbers, is_secret=False)
        self.room -= size
        return list(numbers)

    def _items(self, items: Iterable[object], *, is_secret: bool) -> list[object]:
        kept: list[object] = []
        for item in items:
            if self.room <= 0:
                break
            self.room -= 1
            kept.append(self._plain(item, is_secret=is_secret))
        return kept

    def _whole_number(self, number: int) -> object:
        if -_LARGE_INT < number < _LARGE_INT:
            self.room -= _INT_BYTES
            return number
        bits = number.bit_length()
        self.room -= bits // 3
        if bits <= _LONGEST_INT_BITS:
            return number
        self.room += bits // 3 - _FLOAT_BYTES
        return f"<int of {bits} bits>"

    def _text(self, text: str) -> object:
        if len(text) + 2 > self.room:
            return self._long(text)
        size = size_of(text)
        if size + 2 > self.room:
            return self._long(text)
        self.room -= size + 3
        self._texts.append(text)
        return text

    def _long(self, text: str) -> object:
        """A text for which there is no room: as much of it as there is, and what redaction needs to see beyond."""
        most = room = max(0, self.room - 2 - len(_MORE.encode()))
        for _ in range(_ATTEMPTS):
            written = most + escapes(text[:most])
            if written <= room:
                break
            most = most * room // written
        piece = text[: most + OVERLAP]
        self.room = 0
        self.is_truncated = self._has_long = True
        self._texts.append(piece)
        return _Long(piece, most)

    def _masked(self, text: str) -> str:
        self.room -= len(REDACTED) + 3
        if not text or text == REDACTED:
            return text
        self.is_redacted = True
        return REDACTED

    def _redacted(self, node: object, *, may_change: bool) -> object:
        """The plain value with its texts redacted, and the long ones cut."""
        if type(node) is str:
            return self._kept(node) if may_change else node
        if type(node) is _Long:
            return cut(self._kept(node.piece) if may_change else node.piece, node.most) + _MORE
        if type(node) is dict:
            items = cast("dict[str, object]", node).items()
            return {key: self._redacted(item, may_change=may_change) for key, item in items}
        if type(node) is list:
            return [self._redacted(item, may_change=may_change) for item in cast("list[object]", node)]
        return node

    def _kept(self, text: str) -> str:
        kept = self._judge.text(text)
        if kept is not text:
            self.is_redacted = True
        return kept


def _told_key(value: Mapping[object, object]) -> str:
    """What a pair written as a mapping names: `{"name": "authorization", "value": …}`; "" for other mappings."""
    if "value" not in value:
        return ""
    told = value.get("name", value.get("key"))
    return told if type(told) is str else ""


def _is_crowd(value: object) -> bool:
    """Whether a value is its items, and no more: a text, a range and a named tuple are not."""
    fields = getattr(type(value), "_fields", ())
    return not fields and isinstance(value, _CROWDS) and not isinstance(value, _NO_CROWDS)
