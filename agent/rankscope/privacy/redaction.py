"""Secrets are replaced by one word, by the name of what holds them and by what they look like.

Promises: nothing here raises for a text, whatever it is; a text in which nothing was found is the same object; what
was replaced once is left alone the second time; the time is linear in the length of the text.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from rankscope.privacy.marks import Marks, Place
from rankscope.privacy.names import Names
from rankscope.privacy.preview import Preview, excerpt, preview
from rankscope.privacy.shapes import PRIVATE_KEY
from rankscope.privacy.values import REDACTED

LEAST_PREVIEW, MOST_PREVIEW, PREVIEW_BYTES = 64, 32_768, 4_096
"""Bytes of a preview: less says nothing, more is no preview; so many where nobody said how many."""

_KEYS_KEPT = 8_192
_SHORTEST = 6
"""Characters of the shortest text with a secret: `pwd=ab` has none worth the name."""


class Redactor:
    """Finds secrets and replaces them. Threads and forked children may share one: it has no lock and changes nothing.

    Args:
        keys: More names of secrets; compared as the built-in ones are, whole and as the end of a name.
        patterns: More regular expressions; what matches is replaced. Their cost is the user's.
        hook: Gets every text last, with secrets replaced, and returns what may be kept of it. Where it fails, nothing
            of the text is kept.
        preview_bytes: Most UTF-8 bytes of a preview, 64 to 32,768.

    Raises:
        TypeError: `keys` or `patterns` is one text, or `hook` cannot be called.
        ValueError: a pattern is none or matches the empty text, a key has no letter or digit, or `preview_bytes` is
            out of its range.
    """

    def __init__(
        self,
        *,
        keys: Sequence[str] = (),
        patterns: Sequence[str] = (),
        hook: Callable[[str], str] | None = None,
        preview_bytes: int = PREVIEW_BYTES,
    ) -> None:
        if not LEAST_PREVIEW <= preview_bytes <= MOST_PREVIEW:
            raise ValueError(
                f"preview_bytes is {preview_bytes!r}: it is a number of bytes from {LEAST_PREVIEW} to {MOST_PREVIEW}"
            )
        if hook is not None and not callable(hook):
            raise TypeError(f"the redaction hook is {hook!r}: it is a function of a text that returns a text")
        self._names, self._marks = _known(_checked_keys(keys))
        self._patterns = tuple(map(checked_pattern, _listed(patterns, "patterns")))
        self._hook = hook
        self._has_more = bool(self._patterns) or hook is not None
        self._preview_bytes = preview_bytes
        self.key = lru_cache(_KEYS_KEPT)(self._judged)
        """Of a key of at most 128 characters: None where it may be shown, as what it holds; else whether it names a
        secret, and how the key itself is shown. Remembered for keys that come again."""
        self.hook_failures = 0
        """How often the hook raised or returned no text."""

    def is_secret(self, key: str) -> bool:
        """Whether what has this name is a secret."""
        return self._names.kind(key) is not None

    def may_change(self, text: str) -> bool:
        """Whether `text` would have to look closer: False for a text, and each part of it, without any mark."""
        return self._has_more or self._marks.any(text)

    def text(self, text: str) -> str:
        """The text with secrets replaced; the same object where there are none."""
        kept = text
        if len(text) >= _SHORTEST:
            places = self._marks.places(text)
            if places:
                kept = self._replaced(*self._without_private_keys(text, places))
        return self._by_user(kept) if self._has_more else kept

    def labelled(self, key: str, text: str) -> str:
        """`REDACTED` where the name is a secret's, else the text without its secrets."""
        if self._names.kind(key) is not None:
            return REDACTED if text else text
        return self.text(text)

    def preview(self, value: object, *, max_bytes: int | None = None) -> Preview:
        """The value as JSON: bounded first, then redacted, then written; never raises and never waits for a device.

        Args:
            value: Anything; tensors and arrays are described, objects of unknown types are named or shown by `repr`.
            max_bytes: Most UTF-8 bytes of the text; None: as the redactor was made.
        """
        return preview(self, value, most=self._preview_bytes if max_bytes is None else max_bytes)

    def excerpt(self, text: str, *, max_bytes: int | None = None) -> Preview:
        """As `preview`, of a text that is read as it is: an error's message."""
        return excerpt(self, text, most=self._preview_bytes if max_bytes is None else max_bytes)

    def _without_private_keys(self, text: str, places: list[Place]) -> tuple[str, list[Place]]:
        """The text with private keys replaced, and its places: a name before one would take its first word alone."""
        keys = [place for place in places if place[1] is PRIVATE_KEY]
        kept = self._replaced(text, keys) if keys else text
        return (text, places) if kept is text else (kept, self._marks.places(kept))

    def _replaced(self, text: str, places: list[Place]) -> str:
        pieces: list[str] = []
        done = 0
        for start, find in places:
            extent = find(text, start) if start >= done else None
            if extent is None or extent[1] <= done:
                continue
            begin, end = max(done, extent[0]), extent[1]
            if text[begin:end] != REDACTED:
                pieces += (text[done:begin], REDACTED)
                done = end
        return "".join((*pieces, text[done:])) if pieces else text

    def _judged(self, key: str) -> tuple[bool, str] | None:
        is_secret, shown = self._names.kind(key) is not None, self.text(key)
        return (is_secret, shown) if is_secret or shown is not key else None

    def _by_user(self, text: str) -> str:
        kept = text
        for pattern in self._patterns:
            kept = pattern.sub(REDACTED, kept)
        if self._hook is not None and kept:
            kept = self._hooked(kept, self._hook)
        return text if kept == text else kept

    def _hooked(self, text: str, hook: Callable[[str], str]) -> str:
        try:
            kept = hook(text)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  # `sys.exit` in a hook would end the thread that seals
            kept = None
        if isinstance(kept, str):
            return kept
        self.hook_failures += 1
        return REDACTED


@lru_cache(4)
def _known(keys: tuple[str, ...]) -> tuple[Names, Marks]:
    """Names and marks, made once for the same keys: compiling takes 10 ms."""
    names = Names(keys)
    return names, Marks(names)


def _listed(given: Sequence[str], what: str) -> Sequence[str]:
    if isinstance(given, (str, bytes)):
        raise TypeError(f"redaction {what} are {given!r}: they are a list of texts")
    return given


def _checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    for key in _listed(keys, "keys"):
        if not any(letter.isascii() and letter.isalnum() for letter in key):
            raise ValueError(f"the redaction key {key!r} has no letter or digit to compare")
    return tuple(keys)


def checked_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression to mask by, compiled.

    Raises:
        ValueError: it is none, or it matches the empty text: it would mask between all characters of every text.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the redaction pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.match(""):
        raise ValueError(f"the redaction pattern {pattern!r} matches the empty text, and so every place of a text")
    return compiled
