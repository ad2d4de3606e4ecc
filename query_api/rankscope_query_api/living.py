"""What runs of a trace: spans that a living process has open, beside those that are stored; pure, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_query_api.places import SpanPlace
from rankscope_query_api.values import Record

STACK_AGE_NS = 15 * 10**9
"""Three heartbeats: a process that sealed batches for longer without one has nothing open any more."""


@dataclass(frozen=True, slots=True)
class RunningSpan:
    """A span that a living process has open, and that is not stored.

    Attributes:
        trace: Halves of its trace's id.
        span_id: Its id.
        parent_span_id: The span around it on its thread, in the same trace; 0: none is open there.
        name: What it is called.
        kind: Code of a `SpanKind`.
        start_ns: When it began.
        heartbeat_ns: When it was last said to be open.
        rank: Rank of its process.
        step: Step that its process was at; None: in none.
        thread: Name of its thread.
        launch: Launch of its process, 32 hex digits.
    """

    trace: tuple[int, int]
    span_id: int
    parent_span_id: int
    name: str
    kind: int
    start_ns: int
    heartbeat_ns: int
    rank: int
    step: int | None
    thread: str
    launch: str

    @property
    def place(self) -> SpanPlace:
        """Where it stands among its siblings."""
        return SpanPlace(self.start_ns, self.span_id, self.parent_span_id)


def with_running(record: Record, running: Sequence[RunningSpan]) -> Record:
    """A trace's summary with what runs of it: a root that is open gives the trace its name, kind and start.

    Args:
        record: The columns of `summaries.SUMMARY`, of no span at all where none is stored.
        running: The open spans of the trace.
    """
    if not running:
        return {**record, "running": 0}
    first = min(running, key=lambda span: (span.parent_span_id != 0, span.start_ns, span.span_id))
    starts = [span.start_ns for span in running] + ([record["started_ns"]] if record["spans"] else [])
    ends = [span.heartbeat_ns for span in running] + [record["started_ns"] + record["duration_ns"]]
    named = {} if record["roots"] else {"root_name": first.name, "root_kind": first.kind}
    return {
        **record,
        **named,
        "running": len(running),
        "ranks": sorted({*record["ranks"], *(span.rank for span in running)}),
        "started_ns": min(starts),
        "duration_ns": max(ends) - min(starts),
    }
