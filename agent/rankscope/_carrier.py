"""Carriers: a span's context as plain JSON, for whoever works on its behalf elsewhere.

A carrier belongs to a run: spans of another run would hang on parents that no reader of their run ever finds, so it is
refused there. A bare W3C `traceparent` names no run and is taken anywhere.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, cast

from rankscope._checked import MAX_INT64, MAX_RANK, hex_id, whole_number
from rankscope._span_ref import TRACE_LEFT_OUT, RemoteParent, Scope
from rankscope._traceparent import Traceparent, read_traceparent
from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import SPAN_FLAGS

if TYPE_CHECKING:
    from contextvars import Token

    from rankscope._recording import Recording
    from rankscope._span import Span
    from rankscope._span_ref import SpanRef


class Headers(Protocol):
    """Headers as servers have them: `email.message.Message` and others are no mappings."""

    def items(self) -> Iterable[tuple[str, object]]:
        """Names and values."""
        ...


Given = Mapping[str, object] | Headers | str
"""What is taken for a carrier: what `span.context()` returned, headers with a `traceparent`, or that alone."""

TRACEPARENT = "traceparent"


@dataclass(frozen=True, slots=True)
class Carrier:
    """A carrier that was read.

    Attributes:
        parent: The span it is of.
        run_id: Its run; "": it names none.
        project: The run's project; "": it names none.
        launch_id: The run's launch, 16 bytes, all zero where nothing is recorded; empty: it names none.
        rank: The rank of the process that has the span; -1: none.
        world_size: Ranks of the launch, at least 1.
    """

    parent: RemoteParent
    run_id: str = ""
    project: str = ""
    launch_id: bytes = b""
    rank: int = -1
    world_size: int = 1


def carrier_of(span: "Span") -> dict[str, object]:
    """The span's context: texts and whole numbers only, so that any serialiser takes it.

    Of a span that sampling left out: the one of its nearest ancestor that is kept, which its children belong to.
    """
    identity = span.recording.identity
    kept: SpanRef = span
    while isinstance(kept, type(span)) and kept.is_left_out and kept.parent is not None:
        kept = kept.parent
    carrier: dict[str, object] = {
        "run_id": identity.run_id,
        "project": identity.project,
        "launch_id": identity.launch_id.hex(),
        "trace_id": span.trace_id,
        "span_id": kept.span_id,
        "thread_id": span.thread_id,
        "rank": identity.rank if span.rank is None else span.rank,
        "process_rank": identity.rank,
        "world_size": identity.world_size,
        TRACEPARENT: str(Traceparent(span.trace, kept.id, span.scope.left_out != TRACE_LEFT_OUT)),
    }
    if span.rollout_id:
        carrier["rollout_id"] = span.rollout_id
    if span.at_step is not None:
        carrier["step"] = span.at_step
    return carrier


def read_carrier(given: Given) -> Carrier:
    """Read a carrier.

    Raises:
        TypeError: it is neither a dict, nor headers, nor a text.
        ValueError: an id in it is missing or is none.
    """
    if isinstance(given, str):
        return Carrier(_elsewhere(given))
    held = cast("Mapping[str, object]", given) if isinstance(given, Mapping) else _items_of(given)
    if "run_id" in held:
        return _of_run(held)
    header = next((value for key, value in held.items() if str(key).lower() == TRACEPARENT), None)
    if isinstance(header, str):
        return Carrier(_elsewhere(header))
    raise ValueError(
        f"no carrier: it has neither a run_id nor a traceparent, but {', '.join(map(repr, held)) or 'nothing'}; "
        "pass on what span.context() returned"
    )


def _items_of(given: Headers) -> Mapping[str, object]:
    """What headers that are no mapping hold; of a name that comes again, what it says last."""
    items = getattr(given, "items", None)
    if not callable(items) or isinstance(given, type):
        raise TypeError(
            f"a carrier is the dict that span.context() returns, or a W3C traceparent, not a {type(given).__qualname__}"
        )
    return dict(cast("Iterable[tuple[str, object]]", items()))


def parent_for(recording: "Recording", given: Given) -> RemoteParent:
    """The span of a carrier, as a parent of spans that this process records.

    Raises:
        TypeError: the carrier is neither a dict, nor headers, nor a text.
        ValueError: an id in it is none, or it belongs to another run.
    """
    carrier = read_carrier(given)
    own = recording.identity
    theirs, ours = (carrier.project or own.project, carrier.run_id), (own.project, own.run_id)
    # Where nothing is recorded the run's id is made up: code that works with recording on must work without.
    is_recorded = recording.armed or recording.is_forked
    if carrier.run_id and theirs != ours and is_recorded:
        raise ValueError(
            f"run_id does not match: the carrier is of run {theirs[1]!r} (project {theirs[0]!r}) and this process "
            f"records run {ours[1]!r} (project {ours[0]!r}); a process that works for another run joins it with "
            "rankscope.init(carrier=...)"
        )
    return carrier.parent


class Attached:
    """A carrier's span as the parent of what begins here, from the moment this is made until `detach`.

    Args:
        recording: Where the spans are recorded.
        parent: The carrier's span.
    """

    __slots__ = ("_current", "_token")

    def __init__(self, recording: "Recording", parent: RemoteParent) -> None:
        self._current = recording.current
        self._token: Token[SpanRef | None] | None = self._current.set(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.detach()

    def detach(self) -> None:
        """Make the parent of before the current one again. A second call changes nothing."""
        token, self._token = self._token, None
        if token is not None:
            with suppress(ValueError):  # attached in another thread or task: its context is its own
                self._current.reset(token)


def _elsewhere(header: str) -> RemoteParent:
    trace, span, _ = read_traceparent(header)
    return RemoteParent(trace, span, scope=Scope())


def _of_run(given: Mapping[str, object]) -> Carrier:
    trace, span = hex_id(given.get("trace_id"), 32), hex_id(given.get("span_id"), 16)
    scope = Scope()
    thread_id = _text(given, "thread_id")
    scope.thread_id = "" if thread_id == f"{trace:032x}" else thread_id
    scope.rollout_id = _text(given, "rollout_id")
    scope.at_step = _whole(given, "step", most=MAX_INT64)
    rank, process_rank = (_whole(given, key, most=MAX_RANK) for key in ("rank", "process_rank"))
    # Whoever does the work has a rank of its own: only one that somebody stated goes before it.
    scope.rank = None if rank == process_rank else rank
    serves = rank if process_rank is None else process_rank
    carrier = Carrier(
        RemoteParent(trace, span, scope=scope),
        run_id=_text(given, "run_id"),
        project=_text(given, "project"),
        launch_id=_launch(given),
        rank=-1 if serves is None else serves,
        world_size=_whole(given, "world_size", most=MAX_RANK) or 1,
    )
    header = _text(given, TRACEPARENT)
    if header and not read_traceparent(header).is_kept:
        # Within a run the trace is one decision, whatever a process was told to sample.
        scope.left_out = TRACE_LEFT_OUT
    if _is_in_step_trace(carrier):
        scope.flags |= SPAN_FLAGS["in_step_trace"]
    return carrier


def _is_in_step_trace(carrier: Carrier) -> bool:
    step = carrier.parent.at_step
    if step is None or not carrier.launch_id:
        return False
    upper, lower = step_trace_id(carrier.run_id, carrier.launch_id, step)
    return carrier.parent.trace == upper << 64 | lower


def _launch(given: Mapping[str, object]) -> bytes:
    """The launch's id: all zero where the run is not recorded."""
    text = _text(given, "launch_id")
    try:
        launch_id = bytes.fromhex(text)
    except ValueError:
        launch_id = b"?"
    if len(launch_id) not in (0, 16):
        raise ValueError(f"the carrier's launch_id is {text!r}: it is 32 hex digits, as span.context() gives it")
    return launch_id


def _text(given: Mapping[str, object], key: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"the carrier's {key} is {value!r}: it is a text, as span.context() gives it")
    return value


def _whole(given: Mapping[str, object], key: str, *, most: int) -> int | None:
    value = given.get(key)
    if value is None or value == -1:
        return None
    number = whole_number(value)
    if number is None or not 0 <= number <= most:
        raise ValueError(f"the carrier's {key} is {value!r}: it is a whole number from 0 to {most}")
    return number
