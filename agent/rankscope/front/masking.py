"""Secrets are taken out of an event before anything of it is kept, and its values become what a row can hold.

Attributes become texts and numbers, metrics numbers; what is neither (a list among the attributes, a text among the
metrics) is kept as text under its name. Numbers are never masked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import orjson

from rankscope.front.events import Event
from rankscope.front.readers import ATTRIBUTES_BYTES, PREVIEW_BYTES
from rankscope_proto.non_finite import NON_FINITE

if TYPE_CHECKING:
    from rankscope.privacy import Redactor

MASKED = "masked"
"""Name of the stated field that says whether anything of the span was masked."""

METRIC_TEXTS, LINK_TEXTS = "metric_texts", "link_texts"
"""Names of the stated fields for what was among the metrics and the links, and is no number and no pair of ids."""

VALUE_BYTES = ATTRIBUTES_BYTES
"""Of a list or an object among the attributes, as text."""

_IDS = {"trace_id", "span_id"}
_TEXTS = ("name", "thread_id", "rollout_id", "error_type")
_PREVIEWS = ("input_preview", "output_preview", "error_preview")


def masked(event: Event, redactor: "Redactor") -> Event:
    """The event without what looks like a secret, its attributes and metrics as a row takes them."""
    mask = _Mask(redactor)
    stated = dict(event.stated)
    for name in _TEXTS:
        if name in stated:
            stated[name] = mask.text(str(stated[name]))
    for name in _PREVIEWS:
        if stated.get(name):
            stated[name] = mask.preview(str(stated[name]))
    if "attributes" in stated:
        stated["attributes"] = mask.values(cast("Mapping[str, object]", stated["attributes"]))
    if "metrics" in stated:
        metrics, others = _split(cast("Mapping[str, object]", stated["metrics"]))
        stated["metrics"] = {mask.text(key): value for key, value in metrics.items()}
        stated[METRIC_TEXTS] = mask.values(others)
    if "links" in stated:
        stated["links"], others = _pairs(stated["links"])
        stated[LINK_TEXTS] = mask.values(others)
    stated[MASKED] = mask.has_masked
    if mask.has_cut:
        stated["truncated"] = True
    return replace(event, stated=stated)


@dataclass(slots=True)
class _Mask:
    redactor: "Redactor"
    has_masked: bool = False
    has_cut: bool = False

    def text(self, text: str) -> str:
        found = self.redactor.text(text)
        self.has_masked |= found != text
        return found

    def value(self, key: str, value: object) -> str | int | float:
        """An attribute's value: numbers as they are, the rest as text."""
        if isinstance(value, bool) or value is None:
            return json.dumps(value)
        if isinstance(value, (int, float)):
            return value
        if isinstance(value, str):
            found = self.redactor.labelled(key, value)
            self.has_masked |= found != value
            return found
        return self._nested(key, value)

    def values(self, given: Mapping[str, object]) -> dict[str, str | int | float]:
        """Attributes, masked by key and by value."""
        return {self.text(key): self.value(key, value) for key, value in given.items()}

    def preview(self, text: str) -> str:
        """A preview: one that is JSON is masked by its keys too; one that has no secret stays as it came."""
        document = _document(text)
        if document is not None:
            found = self.redactor.preview(document, max_bytes=PREVIEW_BYTES)
            if found.is_redacted:
                self.has_masked = True
                self.has_cut |= found.is_truncated
                return found.text
        return self.text(text)

    def _nested(self, key: str, value: object) -> str:
        if self.redactor.is_secret(key):
            self.has_masked = True
            return self.redactor.labelled(key, "…")
        found = self.redactor.preview(value, max_bytes=VALUE_BYTES)
        self.has_masked |= found.is_redacted
        self.has_cut |= found.is_truncated
        return found.text


def _document(text: str) -> object:
    """A text's object or list; None where it is neither."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def _split(metrics: Mapping[str, object]) -> tuple[dict[str, float], dict[str, object]]:
    """The numbers, and what is no number under the name `metrics.<name>`."""
    numbers: dict[str, float] = {}
    others: dict[str, object] = {}
    for key, value in metrics.items():
        if isinstance(value, (int, float)):
            numbers[key] = float(value)
        elif isinstance(value, str) and value in NON_FINITE:
            numbers[key] = NON_FINITE[value]
        else:
            others[f"metrics.{key}"] = value
    return numbers, others


def _pairs(given: object) -> tuple[list[tuple[str, str]], dict[str, object]]:
    """The links that are ids; where any says more, or something else, all of them under the name `links` too."""
    listed = cast("list[object]", given) if isinstance(given, list) else [given]
    pairs = [_pair(link) for link in listed]
    is_plain = all(pair and _says_no_more(link) for pair, link in zip(pairs, listed, strict=True))
    return [pair for pair in pairs if pair], {} if is_plain else {"links": given}


def _says_no_more(link: object) -> bool:
    return cast("dict[str, object]", link).keys() <= _IDS


def _pair(link: object) -> tuple[str, str] | None:
    if not isinstance(link, dict):
        return None
    fields = cast("dict[str, object]", link)
    trace, span = fields.get("trace_id"), fields.get("span_id") or "0" * 16
    return (str(trace).lower(), str(span).lower()) if _is_hex(trace, 32) and _is_hex(span, 16) else None


def _is_hex(given: object, digits: int) -> bool:
    return isinstance(given, str) and len(given) == digits and all(digit in "0123456789abcdefABCDEF" for digit in given)
