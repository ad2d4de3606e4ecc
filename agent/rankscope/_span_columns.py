"""Finished spans as the columns of their section; runs in the sealing thread.

Bounds (`_bounds`) are enforced here, by cutting and by the flag `truncated`, never by an error.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rankscope._block import Block, Column
from rankscope._bounds import ATTRIBUTES, LINKS, METRICS, NAME, PATH, bounded, cut
from rankscope._labels import Label, number_of
from rankscope_proto.columns import SPANS
from rankscope_proto.names import SPAN_FLAGS

if TYPE_CHECKING:
    from rankscope._clock import Clock
    from rankscope._span import Span

MAX_DEPTH = 65_535
_TRUNCATED = SPAN_FLAGS["truncated"]
_STEP_PRESENT = 1 << (SPANS.field("step").optional or 0)
_NUMBER_BYTES = 8
_LOWER = 2**64 - 1
_SPAN_BYTES = 100


def span_size(span: "Span") -> int:
    """About as many bytes as the span adds to a batch, text said twice counted twice."""
    size = _SPAN_BYTES
    if span.thread_id or span.rollout_id or span.error_type:
        size += sum(min(NAME, len(text)) for text in (span.thread_id, span.rollout_id, span.error_type))
    if span.links:
        size += 3 * _NUMBER_BYTES * min(LINKS, len(span.links))
    if span.attributes:
        size += min(ATTRIBUTES, sum(map(_label_size, span.attributes, span.attributes.values())))
    if span.metrics:
        size += min(METRICS, sum(map(len, span.metrics)) + 2 * _NUMBER_BYTES * len(span.metrics))
    return size


def _label_size(key: str, value: Label, /) -> int:
    return len(key) + (len(value) if type(value) is str else 2 * _NUMBER_BYTES)


def span_block(spans: Sequence["Span"], clock: "Clock") -> Block:
    """The spans as one block, in the given order, without columns that no span fills."""
    flags = [span.flags for span in spans]
    columns: dict[str, Column] = {
        "span_id": [span.id for span in spans],
        "trace_hi": [span.trace >> 64 for span in spans],
        "trace_lo": [span.trace & _LOWER for span in spans],
        "name": [span.name for span in spans],
        "path": [span.path or path_of(span) for span in spans],
        "kind": [span.kind for span in spans],
        "status": [span.status for span in spans],
        "start": [clock.wall_at(span.start_mono_ns) for span in spans],
        "duration": [span.end_mono_ns - span.start_mono_ns for span in spans],
    }
    _add_maps(spans, columns, flags)
    _add_links(spans, columns, flags)
    columns["flags"] = flags
    seldom: dict[str, Column] = {
        "parent_span_id": [span.parent_id for span in spans],
        "microstep": [span.microstep for span in spans],
        "phase": [span.phase_code for span in spans],
        "depth": [min(MAX_DEPTH, span.depth) for span in spans],
        "thread_id": [span.thread_id for span in spans],
        "rollout_id": [span.rollout_id for span in spans],
        "error_type": [span.error_type for span in spans],
    }
    columns.update((name, values) for name, values in seldom.items() if any(values))
    _add_steps(spans, columns)
    return bounded(Block("spans", len(spans), columns))


def path_of(span: "Span") -> str:
    """Names from the root to the span joined by '/', each escaped; kept on the spans on the way."""
    if span.parent is None:
        span.path = _escaped(span.name)
        return span.path
    chain: list[Span] = []
    node: Span | None = span
    while node is not None and node.path is None:
        chain.append(node)
        node = node.parent
    path = "" if node is None else node.path or ""
    for node in reversed(chain):
        own = _escaped(node.name)
        path = f"{path}/{own}" if path else own
        path = cut(path, PATH)
        node.path = path
    return path


def _escaped(name: str) -> str:
    if "%" in name or "/" in name:
        name = name.replace("%", "%25").replace("/", "%2F")
    return cut(name, NAME)


class _Map:
    """One map column being built: keys and values of all rows flat, and each row's count."""

    __slots__ = ("counts", "keys", "values")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.values: list[Label] = []
        self.counts: list[int] = []

    def columns(self, keys: str, values: str, *, count: str) -> dict[str, Column]:
        """The three columns, or none where no row has an entry."""
        if not self.keys:
            return {}
        return {keys: self.keys, values: self.values, count: self.counts}


def _add_maps(spans: Sequence["Span"], columns: dict[str, Column], flags: list[int], /) -> None:
    texts, figures, metrics = _Map(), _Map(), _Map()
    for row, span in enumerate(spans):
        labelled = _add_attributes(span.attributes, texts, figures)
        measured = _add_metrics(span.metrics, metrics)
        if not (labelled and measured):
            flags[row] |= _TRUNCATED
    columns.update(texts.columns("attribute_keys", "attribute_values", count="attribute_n"))
    columns.update(figures.columns("number_keys", "number_values", count="number_n"))
    columns.update(metrics.columns("metric_keys", "metric_values", count="metric_n"))


def _add_attributes(attributes: Mapping[str, Label] | None, texts: _Map, figures: _Map, /) -> bool:
    """Add a row to both maps; False when something had to be left out or cut."""
    before_texts, before_figures = len(texts.keys), len(figures.keys)
    whole = True
    if attributes:
        kept = _fitting(attributes)
        whole = kept is attributes
        for key, value in kept.items():
            number = None if type(value) is str else number_of(value)
            if number is None:
                texts.keys.append(key)
                texts.values.append(value)
            else:
                figures.keys.append(key)
                figures.values.append(number)
    texts.counts.append(len(texts.keys) - before_texts)
    figures.counts.append(len(figures.keys) - before_figures)
    return whole


def _add_metrics(metrics: Mapping[str, float] | None, column: _Map, /) -> bool:
    """Add a row to the metrics; False when some had to be left out."""
    before = len(column.keys)
    room = METRICS
    for name, value in (metrics or {}).items():
        room -= len(name.encode("utf-8", "replace")) + _NUMBER_BYTES
        if room < 0:
            break
        column.keys.append(name)
        column.values.append(value)
    column.counts.append(len(column.keys) - before)
    return room >= 0


def _fitting(attributes: Mapping[str, Label]) -> Mapping[str, Label]:
    """The attributes themselves where they fit, else the first that do, the last cut if it is text."""
    size = 0
    for key, value in attributes.items():
        size += len(key) + (len(value) if isinstance(value, str) else _NUMBER_BYTES)
    if size <= ATTRIBUTES // 4:  # four bytes is the most a character takes
        return attributes
    kept: dict[str, Label] = {}
    room = ATTRIBUTES
    for key, value in attributes.items():
        room -= _bytes_of(key)
        fitting = cut(value, max(0, room)) if isinstance(value, str) else value
        room -= _bytes_of(value)
        if room >= 0 or (isinstance(fitting, str) and fitting):
            kept[key] = fitting
        if room < 0:
            return kept
    return attributes


def _bytes_of(value: Label) -> int:
    return len(value.encode("utf-8", "replace")) if isinstance(value, str) else _NUMBER_BYTES


def _add_steps(spans: Sequence["Span"], columns: dict[str, Column]) -> None:
    steps = [span.at_step for span in spans]
    if all(step is None for step in steps):
        return
    columns["step"] = [0 if step is None else step for step in steps]
    if None in steps:
        columns["present"] = [0 if step is None else _STEP_PRESENT for step in steps]


def _add_links(spans: Sequence["Span"], columns: dict[str, Column], flags: list[int], /) -> None:
    links = [link for span in spans for link in span.links[:LINKS]]
    if not links:
        return
    columns["link_trace_hi"] = [upper for upper, _, _ in links]
    columns["link_trace_lo"] = [lower for _, lower, _ in links]
    columns["link_span_id"] = [span_id for _, _, span_id in links]
    columns["link_n"] = [min(LINKS, len(span.links)) for span in spans]
    for row, span in enumerate(spans):
        if len(span.links) > LINKS:
            flags[row] |= _TRUNCATED
