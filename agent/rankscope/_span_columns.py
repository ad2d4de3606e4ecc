"""Finished spans as the columns of their section; runs in the sealing thread.

Promises: nothing that looks like a secret gets into a column; bounds (`_bounds`) are enforced here, by
cutting, by the flag `truncated` and by the attribute `rankscope.dropped`, never by an error.
"""

from collections.abc import Mapping, Sequence
from operator import ne
from typing import TYPE_CHECKING

from rankscope._block import Block, Column
from rankscope._bounds import ATTRIBUTES, METRICS, NAME, NUMBER_BYTES, bounded, bytes_of, cut, path_under
from rankscope._dropped import Dropped
from rankscope._labels import SHORT, Label, number_of
from rankscope._span_ref import LOWER, SpanRef
from rankscope_proto.columns import SPANS
from rankscope_proto.names import SPAN_FLAGS, Capture, RedactionState

if TYPE_CHECKING:
    from rankscope._clock import Clock
    from rankscope._details import Details
    from rankscope._masks import Masks
    from rankscope._span import Span

MAX_DEPTH = 65_535
DROPPED = "rankscope.dropped"
"""The attribute that names what was cut or left out."""

_TRUNCATED = SPAN_FLAGS["truncated"]
_STEP_PRESENT = 1 << (SPANS.field("step").optional or 0)
_MICROBATCH_PRESENT = 1 << (SPANS.field("microbatch").optional or 0)
_RANK_PRESENT = 1 << (SPANS.field("stated_rank").optional or 0)
_SPAN_BYTES = 100
_MASKED = RedactionState.REDACTED.code
_CLEAN = RedactionState.NOTHING_TO_REDACT.code


def span_size(span: "Span") -> int:
    """About as many bytes as the span adds to a batch, text said twice counted twice."""
    size = _SPAN_BYTES
    scope = span.scope
    if scope.thread_id or scope.rollout_id:
        size += min(NAME, len(scope.thread_id)) + min(NAME, len(scope.rollout_id))
    if span.details is not None:
        size += _details_size(span.details)
    if span.attributes:
        size += min(ATTRIBUTES, sum(map(_label_size, span.attributes, span.attributes.values())))
    if span.metrics:
        size += min(METRICS, sum(map(len, span.metrics)) + 2 * NUMBER_BYTES * len(span.metrics))
    return size


def _details_size(details: "Details") -> int:
    texts = details.error_type, details.error_preview, details.inputs, details.outputs
    dropped = 0 if details.dropped is None else len(details.dropped.text())
    return sum(map(len, texts)) + dropped + 3 * NUMBER_BYTES * len(details.links)


def _label_size(key: str, value: Label, /) -> int:
    return len(key) + (len(value) if type(value) is str else 2 * NUMBER_BYTES)


def span_block(spans: Sequence["Span"], clock: "Clock", *, masks: "Masks", rank: int) -> Block:
    """The spans as one block, in the given order, without columns that no span fills.

    Args:
        spans: Finished spans, at least one.
        clock: Dates them.
        masks: Takes the secrets out of their texts.
        rank: The process's own.
    """
    rows = _Rows(spans, masks)
    columns: dict[str, Column] = {
        "span_id": [span.id for span in spans],
        "trace_hi": [span.trace >> 64 for span in spans],
        "trace_lo": [span.trace & LOWER for span in spans],
        "name": rows.texts("name", [span.name for span in spans]),
        "path": [span.path or path_of(span, masks) for span in spans],
        "kind": [span.kind for span in spans],
        "status": [span.status for span in spans],
        "start": [clock.wall_at(span.start_mono_ns) for span in spans],
        "duration": [span.end_mono_ns - span.start_mono_ns for span in spans],
    }
    seldom: dict[str, Column] = {
        "parent_span_id": [0 if span.parent is None else span.parent.id for span in spans],
        "microstep": [span.scope.microstep for span in spans],
        "phase": [span.phase_code for span in spans],
        "depth": [min(MAX_DEPTH, span.depth) for span in spans],
        "thread_id": rows.texts("thread_id", [span.scope.thread_id for span in spans]),
        "rollout_id": rows.texts("rollout_id", [span.scope.rollout_id for span in spans]),
    }
    columns.update((name, values) for name, values in seldom.items() if any(values))
    _add_details(spans, columns, rows)
    _add_maps(spans, columns, rows)
    _add_optional(spans, columns, rank=rank)
    columns["flags"] = rows.flags
    if any(rows.redaction):
        columns["redaction_state"] = rows.redaction
    return bounded(Block("spans", len(spans), columns))


class _Rows:
    """What is found out about each row while its columns are made.

    Attributes:
        flags: Bits of `spans.flags`.
        redaction: Codes of RedactionState, 0 where nothing was captured or masked.
        dropped: Row → what was cut or left out.
    """

    __slots__ = ("_masks", "dropped", "flags", "redaction")

    def __init__(self, spans: Sequence["Span"], masks: "Masks") -> None:
        self._masks = masks
        self.flags = [span.scope.flags for span in spans]
        self.redaction = [0] * len(spans)
        self.dropped: dict[int, Dropped] = {}

    def texts(self, name: str, given: Sequence[str]) -> Sequence[str]:
        """A column of names without secrets, each within its bound."""
        kept = list(map(self._masks.text, given))
        if any(map(ne, kept, given)):
            for row, (mine, other) in enumerate(zip(kept, given, strict=True)):
                if mine != other:
                    self.redaction[row] = _MASKED
        if max(map(len, kept)) * 4 > NAME:
            for row, text in enumerate(kept):
                kept[row] = cut(text, NAME)
                if kept[row] is not text and len(kept[row]) < len(text):
                    self.drop(row, name)
        return kept

    def labels(self, row: int, given: Mapping[str, Label]) -> Mapping[str, Label]:
        """Labels without secrets: the same object where there are none."""
        masks = self._masks
        for key, value in given.items():
            if masks.text(key) != key or (type(value) is str and masks.label(key, value) != value):
                break
        else:
            return given
        self.redaction[row] = _MASKED
        return {masks.text(key): masks.label(key, value) for key, value in given.items()}

    def named(self, row: int, given: Mapping[str, float]) -> Mapping[str, float]:
        """Numbers whose names are without secrets: the same object where they are."""
        masks = self._masks
        if all(masks.text(name) == name for name in given):
            return given
        self.redaction[row] = _MASKED
        return {masks.text(name): value for name, value in given.items()}

    def drop(self, row: int, name: str) -> None:
        """Note that something was cut or left out."""
        self.flags[row] |= _TRUNCATED
        kept = self._masks.text(name)
        if kept != name:
            self.redaction[row] = _MASKED
        self.dropped.setdefault(row, Dropped()).add(kept)

    def take_dropped(self, row: int, dropped: Dropped) -> None:
        """Take over what the span knows to have lost already."""
        for name in dropped.names:
            self.drop(row, name)
        for field, count in dropped.more.items():
            self.dropped[row].add_more(field, count)


def path_of(span: SpanRef, masks: "Masks") -> str:
    """Names from the root to the span joined by '/', each escaped; kept on the spans on the way."""
    chain: list[Span] = []
    node: SpanRef | None = span
    while node is not None and node.path is None:
        chain.append(node)  # pyright: ignore[reportArgumentType]  # others have a path from the start
        node = node.parent
    path = "" if node is None else node.path or ""
    for node in reversed(chain):
        path = node.path = path_under(path, masks.text(node.name))
    return path


def _add_details(spans: Sequence["Span"], columns: dict[str, Column], rows: _Rows, /) -> None:
    """Columns of what few spans have, where any has it."""
    if all(span.details is None for span in spans):
        return
    texts: dict[str, list[str]] = {}
    for row, span in enumerate(spans):
        details = span.details
        if details is None:
            continue
        rows.flags[row] |= details.flags
        rows.redaction[row] = max(rows.redaction[row], _redaction_of(details))
        if details.dropped is not None:
            rows.take_dropped(row, details.dropped)
        for name in ("error_type", "inputs", "outputs", "error_preview"):
            text = getattr(details, name)
            if text:
                texts.setdefault(name, [""] * len(spans))[row] = text
    if "error_type" in texts:
        columns["error_type"] = rows.texts("error_type", texts.pop("error_type"))
    columns.update(texts)
    captured = [span.details is not None and span.details.is_captured for span in spans]
    if any(captured):
        columns["capture"] = [Capture.PREVIEW.code if is_captured else 0 for is_captured in captured]
    _add_links(spans, columns)


def _redaction_of(details: "Details") -> int:
    if details.is_masked:
        return _MASKED
    return _CLEAN if details.inputs or details.outputs or details.error_preview else 0


def _add_links(spans: Sequence["Span"], columns: dict[str, Column]) -> None:
    of_rows = [() if span.details is None else span.details.links for span in spans]
    links = [link for links in of_rows for link in links]
    if links:
        columns["link_trace_hi"] = [upper for upper, _, _ in links]
        columns["link_trace_lo"] = [lower for _, lower, _ in links]
        columns["link_span_id"] = [span_id for _, _, span_id in links]
        columns["link_n"] = list(map(len, of_rows))


class _Map:
    """One map column being built: keys and values of all rows flat, and each row's count."""

    __slots__ = ("_counted", "counts", "keys", "values")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.values: list[Label] = []
        self.counts: list[int] = []
        self._counted = 0

    def add(self, key: str, value: Label) -> None:
        """An entry of the row."""
        self.keys.append(key)
        self.values.append(value)

    def end_row(self) -> None:
        """The row has all its entries."""
        self.counts.append(len(self.keys) - self._counted)
        self._counted = len(self.keys)

    def columns(self, keys: str, values: str, *, count: str) -> dict[str, Column]:
        """The three columns, or none where no row has an entry."""
        if not self.keys:
            return {}
        return {keys: self.keys, values: self.values, count: self.counts}


def _add_maps(spans: Sequence["Span"], columns: dict[str, Column], rows: _Rows, /) -> None:
    texts, figures, metrics = _Map(), _Map(), _Map()
    for row, span in enumerate(spans):
        if span.attributes:
            for name in _add_attributes(rows.labels(row, span.attributes), texts, figures):
                rows.drop(row, f"attributes.{name[:SHORT]}")
        if span.metrics:
            for name in _add_metrics(rows.named(row, span.metrics), metrics):
                rows.drop(row, f"metrics.{name[:SHORT]}")
        if row in rows.dropped:
            texts.add(DROPPED, rows.dropped[row].text())
        texts.end_row()
        figures.end_row()
        metrics.end_row()
    columns.update(texts.columns("attribute_keys", "attribute_values", count="attribute_n"))
    columns.update(figures.columns("number_keys", "number_values", count="number_n"))
    columns.update(metrics.columns("metric_keys", "metric_values", count="metric_n"))


def _add_attributes(attributes: Mapping[str, Label], texts: _Map, figures: _Map, /) -> Sequence[str]:
    """Add what fits of a row's attributes to both maps; the keys of what had to be left out or cut."""
    kept, dropped = _fitting(attributes)
    for key, value in kept.items():
        number = None if type(value) is str else number_of(value)
        if number is None:
            texts.add(key, value)
        else:
            figures.add(key, number)
    return dropped


def _add_metrics(given: Mapping[str, float], column: _Map) -> Sequence[str]:
    """Add what fits of a row's metrics; the names of those that had to be left out."""
    room = METRICS
    names = list(given)
    for index, (name, value) in enumerate(given.items()):
        room -= bytes_of(name) + NUMBER_BYTES
        if room < 0:
            return names[index:]
        column.add(name, value)
    return ()


def _fitting(attributes: Mapping[str, Label]) -> tuple[Mapping[str, Label], Sequence[str]]:
    """The attributes where they fit, else the first that do, the last cut if it is text; and the keys that lost."""
    size = 0
    for key, value in attributes.items():
        size += len(key) + (len(value) if type(value) is str else NUMBER_BYTES)
    if size <= ATTRIBUTES // 4:  # four bytes is the most a character takes
        return attributes, ()
    kept: dict[str, Label] = {}
    room = ATTRIBUTES
    keys = list(attributes)
    for index, (key, value) in enumerate(attributes.items()):
        room -= bytes_of(key)
        fitting = cut(value, max(0, room)) if isinstance(value, str) else value
        room -= bytes_of(value)
        if room >= 0 or (isinstance(fitting, str) and fitting):
            kept[key] = fitting
        if room < 0:
            return kept, keys[index:]
    return attributes, ()


def _add_optional(spans: Sequence["Span"], columns: dict[str, Column], *, rank: int) -> None:
    """The step, the microbatch, the rank where another than the process's was named; `present` where rows differ."""
    told = {
        ("step", _STEP_PRESENT): [span.scope.at_step for span in spans],
        ("microbatch", _MICROBATCH_PRESENT): [span.scope.microbatch for span in spans],
        ("stated_rank", _RANK_PRESENT): [None if span.scope.rank == rank else span.scope.rank for span in spans],
    }
    present = [0] * len(spans)
    carried = 0
    for (name, bit), values in told.items():
        if any(value is not None for value in values):
            columns[name] = [0 if value is None else value for value in values]
            present = [old if value is None else old | bit for old, value in zip(present, values, strict=True)]
            carried |= bit
    if any(bits != carried for bits in present):
        columns["present"] = present
