"""Where the spans of a trace lie in the tables and in its tree, and traces by step: plain values, like `values`."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_query_api.values import Record


@dataclass(frozen=True, slots=True)
class TracePlace:
    """A trace, and where its rows lie.

    Attributes:
        hi: Upper half of its id.
        lo: Lower half of its id.
        steps: Steps of its spans; -1 is always among them, for spans without one.
        first_start_ns: Earliest start of a span; 0 where none is stored.
        is_stored: Whether the run has a span of it stored.
        may_run: Whether a process of the run was heard of lately, and may have a span of it open.
    """

    hi: int
    lo: int
    steps: Sequence[int] = (-1,)
    first_start_ns: int = 0
    is_stored: bool = True
    may_run: bool = False


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
        parent_start_ns: Start of the span itself; None: it is not stored, or was not asked for.
    """

    children: int = 0
    first_start_ns: int = 0
    parent_start_ns: int | None = None


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
