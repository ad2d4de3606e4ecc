"""What the query service asks of a store about traces, as Protocols; `store` says what all of them promise."""

from collections.abc import Sequence
from typing import Protocol

from rankscope_query_api.answers import Key
from rankscope_query_api.living import RunningSpan
from rankscope_query_api.places import Families, RootCount, SpanPlace, StepBucket, StepWindow, TraceCount, TracePlace
from rankscope_query_api.values import Record, RunKey, Slice, Table, TraceFilter, TraceScope

TRACE_KEY = (int, int, int, str)
"""Shape of the key of `traces`."""

SIBLING_KEY = (int, int)
"""Shape of the key of a list of siblings: (start, span id)."""

EVENTS_A_SPAN = 100
"""Most events that are shown beside a span; its export has all of them."""


class TraceReader(Protocol):
    """Traces as rows of a list."""

    async def traces(self, scope: TraceScope, where: TraceFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """Traces as the filter says by (start, id, run), the latest first: what `summaries` shows, and the run's id.

        The start of a trace is its earliest span's, whatever is asked for; traces that are open and have no stored
        span yet are among them.
        """
        ...

    async def latest(self, scope: TraceScope, *, limit: int) -> Sequence[Record]:
        """The first traces of the list without a filter; nobody counts how long it is."""
        ...


class TraceDetailReader(Protocol):
    """One trace: what it comes to, and pages of its tree; siblings are ordered by (start, span id)."""

    async def place(self, key: RunKey, trace: tuple[int, int]) -> TracePlace:
        """Where the trace lies, which every method but `running` is given."""
        ...

    async def running(self, key: RunKey, trace: tuple[int, int]) -> Sequence[RunningSpan]:
        """The spans of the trace that a living process has open and that are not stored."""
        ...

    async def totals(self, key: RunKey, place: TracePlace) -> Record:
        """The columns of `summaries.SUMMARY` over all its spans, each counted once, and `copies`: rows beyond that."""
        ...

    async def has_back_edges(self, key: RunKey, place: TracePlace) -> bool:
        """Whether a span does not begin after its parent: without such an edge the trace has no cycle of parents."""
        ...

    async def inner_edges(self, key: RunKey, place: TracePlace) -> Table | None:
        """(span_id, parent_span_id, start) of the spans that have children; None: they are too many to look at."""
        ...

    async def root_count(self, key: RunKey, place: TracePlace, *, open_ids: Sequence[int]) -> RootCount:
        """How many roots are stored; a span below one of `open_ids` is none."""
        ...

    async def roots(
        self, key: RunKey, place: TracePlace, *, open_ids: Sequence[int], limit: int, after: Key | None
    ) -> Sequence[SpanPlace]:
        """The stored roots after (start, span id), with their copies; a span below one of `open_ids` is none."""
        ...

    async def children(
        self, key: RunKey, place: TracePlace, *, parent: int, limit: int, after: Key | None
    ) -> Sequence[SpanPlace]:
        """The rows that name this parent, after (start, span id)."""
        ...

    async def families(
        self, key: RunKey, place: TracePlace, *, span_ids: Sequence[int], parent: int | None
    ) -> Families:
        """The children of each of these spans and of `parent`, and where that one stands itself."""
        ...

    async def spans(self, key: RunKey, place: TracePlace, *, shown: Sequence[SpanPlace]) -> Sequence[Record]:
        """These spans with all they hold, each once, in no order."""
        ...

    async def events(self, key: RunKey, place: TracePlace, *, span_ids: Sequence[int]) -> Sequence[Record]:
        """What happened in these spans, by (span, time); of each span up to `EVENTS_A_SPAN` and one more."""
        ...


class SpanWindowReader(Protocol):
    """What is around one span of a trace, beside what `TraceDetailReader` reads."""

    async def siblings_before(
        self, key: RunKey, place: TracePlace, *, of: SpanPlace, limit: int
    ) -> Sequence[SpanPlace]:
        """The rows that name the same parent and come before a span, the nearest first."""
        ...

    async def roots_before(
        self, key: RunKey, place: TracePlace, *, of: SpanPlace, open_ids: Sequence[int], limit: int
    ) -> Sequence[SpanPlace]:
        """The stored roots that come before a span, the nearest first; a span below one of `open_ids` is none."""
        ...

    async def around(self, key: RunKey, place: TracePlace, *, of: SpanPlace, limit: int) -> Sequence[SpanPlace]:
        """What was open when a span began, the latest first: its ancestors, but for those of other clocks."""
        ...


class TraceStepReader(Protocol):
    """Traces by the step they begin at."""

    async def buckets(
        self, key: RunKey, window: StepWindow, *, metric: str, limit: int, after: int | None
    ) -> Slice[StepBucket]:
        """The steps of the window after one, ascending, at which a trace begins or the metric ("": none) has a point.

        A trace is counted at its least step, and is in no bucket where its spans have none.
        """
        ...

    async def count(self, key: RunKey) -> TraceCount:
        """The traces of the run, whatever their steps."""
        ...


class SpanExporter(Protocol):
    """All finished spans of a run or a trace, page by page, by (step, rank, start, trace id, span id)."""

    async def spans(
        self, key: RunKey, of: StepWindow | TracePlace, *, limit: int, after: Record | None
    ) -> Sequence[Record]:
        """The rows behind the last one of the page before; copies of a span follow it, and none is on two pages."""
        ...

    async def events(self, key: RunKey, spans: Sequence[Record]) -> Sequence[Record]:
        """What happened in these spans, at least one, by (trace, span, time)."""
        ...
