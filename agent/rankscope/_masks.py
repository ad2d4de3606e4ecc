"""Texts of rows without their secrets: each distinct text is looked at once.

Names and labels repeat from span to span, and looking for secrets in one takes longer than recording a
span. Used by the sealing thread alone, before anything is sealed.
"""

from collections.abc import Callable

from rankscope._labels import Label
from rankscope.privacy import Redactor

_MOST_KEPT = 8_192
_LONGEST_KEPT = 512


class _Memo(dict[str, str]):
    """Text → the same without its secrets."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._mask = mask

    def __missing__(self, text: str) -> str:
        kept = self._mask(text)
        if len(text) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[text] = kept
        return kept


class Masks:
    """What a redactor makes of texts, remembered.

    Args:
        redactor: Finds the secrets.

    Attributes:
        text: A text without its secrets; an equal one, not always the same object, where there are none.
    """

    __slots__ = ("_redactor", "_secret_keys", "text")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._secret_keys: dict[str, bool] = {}
        self.text = _Memo(redactor.text).__getitem__

    def label(self, key: str, value: Label) -> Label:
        """A label's value without its secrets; a number is as it is."""
        if type(value) is not str:
            return value
        is_secret = self._secret_keys.get(key)
        if is_secret is None:
            is_secret = self._is_secret(key)
        return self._redactor.labelled(key, value) if is_secret else self.text(value)

    def _is_secret(self, key: str) -> bool:
        if len(self._secret_keys) >= _MOST_KEPT:
            self._secret_keys.clear()
        return self._secret_keys.setdefault(key, self._redactor.is_secret(key))
