"""Secrets are replaced by one word, by the name of what holds them and by what they look like.

Promises: nothing here raises for a value, whatever it is; a text in which nothing was found is the same object.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

REDACTED = "[REDACTED]"
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:api_?key|access_key|private_key|authorization|cookie|passw(?:or)?d|secret|token|credentials?)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_SHAPED = re.compile(
    r"(?i)\b(sk-[\w-]{8,}|gh[pousr]_\w{16,}|hf_\w{16,}|AKIA\w{12,}|rsk_[0-9a-f]{8}_[\w-]+|eyJ[\w-]+\.[\w-]+\.[\w-]+)"
    r"|(?:(?<=bearer )|(?<=:)(?<=\w:)(?<!://)(?=\w+@))[\w.-]{8,}"
)


class Preview(NamedTuple):
    """A payload as it is kept.

    Attributes:
        text: JSON with sorted keys, within the bound.
        is_redacted: Whether anything in it was replaced.
        is_truncated: Whether anything was left out.
    """

    text: str
    is_redacted: bool
    is_truncated: bool


class Redactor:
    """Finds secrets and replaces them. Immutable: threads and forked children may share it.

    Args:
        keys: More names of secrets.
        patterns: More regular expressions; what matches is replaced.
        hook: Gets every text last and returns what may be kept of it.
        preview_bytes: Most UTF-8 bytes of a preview.
    """

    def __init__(
        self,
        *,
        keys: Sequence[str] = (),
        patterns: Sequence[str] = (),
        hook: Callable[[str], str] | None = None,
        preview_bytes: int = 4096,
    ) -> None:
        self._keys = frozenset(map(_normal, keys))
        self._patterns = tuple(map(re.compile, patterns))
        self._hook = hook
        self._preview_bytes = preview_bytes

    def is_secret(self, key: str) -> bool:
        """Whether what has this name is a secret."""
        name = _normal(key)
        return name in self._keys or _SECRET_NAME.search(name) is not None

    def text(self, text: str) -> str:
        """The text with secrets replaced; the same object where there are none."""
        kept = _SHAPED.sub(REDACTED, text)
        for pattern in self._patterns:
            kept = pattern.sub(REDACTED, kept)
        if self._hook is not None:
            try:
                kept = self._hook(kept)
            except Exception:  # noqa: BLE001  # a user's function may raise anything
                kept = REDACTED
        return text if kept == text else kept

    def labelled(self, key: str, text: str) -> str:
        """`REDACTED` where the name is a secret's, else the text without its secrets."""
        return REDACTED if self.is_secret(key) else self.text(text)

    def preview(self, value: object, *, max_bytes: int | None = None) -> Preview:
        """The value as bounded, redacted JSON; never raises."""
        most = self._preview_bytes if max_bytes is None else max_bytes
        whole = json.dumps(value, default=repr, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        kept = self.text(whole)
        cut = kept.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
        return Preview(cut, kept is not whole, len(cut) < len(kept))

    def excerpt(self, text: str, *, max_bytes: int | None = None) -> Preview:
        """As `preview`, of a text that is to be read as it is: an error message."""
        most = self._preview_bytes if max_bytes is None else max_bytes
        kept = self.text(text[: 2 * most])
        cut = kept.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
        return Preview(cut, kept != text[: 2 * most], len(cut) < len(kept) or len(text) > 2 * most)


def _normal(key: str) -> str:
    return _NOT_WORD.sub("_", _CAMEL.sub("_", key).lower()).strip("_")
