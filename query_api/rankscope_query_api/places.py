"""Where the spans of a trace lie in the tables and in its tree, and traces by step: plain values, like `values`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.values import Record


@dataclass(frozen=True, slots=True)
class TracePlace:
    """A trace, and where its rows lie.

    Attributes:
        hi: Upper half of its id.
        lo: Lower half of its id.
        steps: Steps of its spans; -1 is always among them, for spans without one.
        first_start_ns: Earliest start of a span; 0 where none is stored or open.
        last_end_ns: Latest end of a span, behind which none begins; 0 where none is stored or open.
        is_stored: Whether the run has a span of it stored.
    """

    hi: int
    lo: int
    steps: Sequence[int]
    first_start_ns: int
    last_end_ns: int
    is_stored: bool


@dataclass(frozen=True, slots=True, order=True)
class SpanPlace:
    """Where a span stands among its siblings, which are ordered by (start, span id)."""

    start_ns: int
    span_id: int
    parent_span_id: int


@dataclass(frozen=True, slots=True)
class Family:
    """The children of a span, as they are stored.

    Attributes:
        children: How many.
        first_start_ns: Start of the first of them.
    """

    children: int = 0
    first_start_ns: int = 0

    def has_back_edge(self, parent_start_ns: int) -> bool:
        """Whether a child begins no later than its parent: only such an edge closes a cycle."""
        return self.children > 0 and self.first_start_ns <= parent_start_ns


@dataclass(frozen=True, slots=True)
class Families:
    """The families of some spans, by id; of a span that is not there nobody is a child.

    Attributes:
        of: The families.
        parent: Where the span above all others stands; None: it is not stored, or was not asked for.
    """

    of: Mapping[int, Family]
    parent: SpanPlace | None = None

    def family(self, span_id: int) -> Family:
        """The children of a span."""
        return self.of.get(span_id, _NOBODY)


_NOBODY = Family()


@dataclass(frozen=True, slots=True)
class RootCount:
    """The roots of a trace: spans without a parent, and those whose parent is nowhere (`orphans`)."""

    total: int
    orphans: int


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Steps from one to another, both among them."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StepBucket:
    """What the traces of a run come to that begin at one step, and what a metric was at it.

    Attributes:
        step: The least step of these traces.
        traces: What is stored of them, by column of `reading.trace_steps.BUCKETS`; None: no trace begins here.
        points: The metric, by column of `reading.trace_steps.POINTS`; None: it has no point here, or none is asked for.
        running: Traces among them that a living process has a span open of.
    """

    step: int
    traces: Record | None
    points: Record | None
    running: int


@dataclass(frozen=True, slots=True)
class TraceCount:
    """The traces of a run that have stored spans: all, those without a step, and those with an error."""

    total: int
    stepless: int
    failed: int
