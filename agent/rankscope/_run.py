"""One training job, as one of its processes sees it: what training code calls.

Promises: no recording call waits for I/O or raises because of us; `finish` ends within its bound, whatever
the disk and the ingest tier do; in a forked child everything is a no-op. Wrong arguments (a kind, a step)
raise `ValueError` at once.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, overload

from rankscope._alert import alert_block
from rankscope._bounds import NAME
from rankscope._carrier import Attached, Given, parent_for
from rankscope._checked import checked_step
from rankscope._clock import Clock, SystemClock
from rankscope._export import Exporter, Wait
from rankscope._hand_over import HandOver
from rankscope._identity import Identity, alone
from rankscope._ids import Ids, RandomIds
from rankscope._labels import MARGIN, labels, numbers, text_of
from rankscope._metric_rows import MetricRows
from rankscope._outcome import Outcome, status_after
from rankscope._recording import Recording
from rankscope._replay import Replayed
from rankscope._run_info import RunInfo
from rankscope._span import Span, Trace
from rankscope._span_fields import SpanFields, describe, set_up
from rankscope._step import Step, checked_microstep
from rankscope._torch import check_torch
from rankscope._trace_op import OperationFields, trace_op
from rankscope._tracing_options import TracingOptions
from rankscope._voice import say
from rankscope._wrap import Function
from rankscope.errors import ExportError
from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from torch import nn

    from rankscope.probe.local import LocalProbe
    from rankscope.probe.options import WatchOptions

HOOK_FAILED = "texts masked whole, since the redact hook failed on them"
"""The fault that counts them."""


class Run:
    """One process's part of a run.

    Usually made by `rankscope.init`. Given an exporter it records there and touches nothing else.

    Args:
        exporter: Where batches go; None: nowhere, and every call costs next to nothing.
        identity: Who this process is; default: the only process of a new run.
        clock: Time.
        ids: Where ids come from.
        info: Name, configuration, tags and host facts.
        tracing: How much is kept, and what is masked; default: everything, and what looks like a secret.
    """

    def __init__(
        self,
        exporter: Exporter | None,
        *,
        identity: Identity | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        info: RunInfo | None = None,
        tracing: TracingOptions | None = None,
    ) -> None:
        clock, ids = clock or SystemClock(), ids or RandomIds()
        self._info = info or RunInfo()
        self._recording = Recording(identity or alone(clock, ids), clock=clock, ids=ids, tracing=tracing)
        self._hand_over = HandOver(self._recording, exporter, info=self._info)
        self._recording.flush = self.flush

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        try:
            self.finish(status_after(error_class, error))
        except ExportError as fault:
            if error is None:
                raise
            say(str(fault))  # the program's own exception is the one to see

    def record_as(self, worker: "Run") -> None:
        """In a forked child: record where its own part of this run does, for code that holds the parent's object."""
        self._info, self._recording, self._hand_over = worker._info, worker._recording, worker._hand_over

    @property
    def id(self) -> str:
        """The run's id, the same on all ranks."""
        return self._recording.identity.run_id

    @property
    def launch_id(self) -> str:
        """The id of this start of the run, the same on all ranks: 32 hex digits."""
        return self._recording.identity.launch_id.hex()

    @property
    def project(self) -> str:
        """The project the run belongs to."""
        return self._recording.identity.project

    @property
    def name(self) -> str:
        """The run's name, for people."""
        return self._info.name

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration given at the start."""
        return self._info.config

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags given at the start."""
        return self._info.tags

    @property
    def url(self) -> str:
        """Where the query service shows the run; "" where none was known at the start."""
        return self._info.url

    @property
    def place(self) -> str:
        """The folder where what this process records lies until the store has it; "": nothing is recorded."""
        return self._hand_over.place

    @property
    def rank(self) -> int:
        """This process's global rank, 0-based."""
        return self._recording.identity.rank

    @property
    def is_recording(self) -> bool:
        """Whether calls leave anything: False without an endpoint, after `finish`, in a forked child."""
        return self._recording.armed

    @property
    def faults(self) -> Mapping[str, int]:
        """How often each kind of internal fault happened; empty: none."""
        failures = self._recording.tracing.redactor.hook_failures
        return {**self._recording.faults, **({HOOK_FAILED: failures} if failures else {})}

    def step(self, index: int, microstep: int = 0) -> Step:
        """A training step, or one microstep of it: a context manager, the root of the step's trace.

        Args:
            index: Optimizer step, 0-based.
            microstep: Gradient-accumulation index inside the step.

        Raises:
            ValueError: not a whole number of at least 0.
        """
        return Step(self._recording, checked_step(index), microstep=checked_microstep(microstep))

    def trace(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        **fields: Unpack[SpanFields],
    ) -> Trace:
        """The root span of a tree of its own; inside a step it keeps the step's number and a link to it.

        Args, errors: as `span`.
        """
        recording = self._recording
        root = set_up(Trace(recording, name, kind, recording.tracing.parent), attributes=attributes, fields=fields)
        around = recording.current_step()
        if around is not None:
            root.add_link(around)
            if root.at_step is None:
                root.own_scope().at_step = around.step
        return root

    def span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        **fields: Unpack[SpanFields],
    ) -> Span:
        """A child of the innermost open span, or a root: a context manager that starts on entry.

        Args:
            name: What it is called: some text, cut at 512 bytes.
            kind: One of `SpanKind`, in whatever case.
            attributes: Labels; numbers are kept as numbers, all else as text; at most 32 KiB.
            fields: `SpanFields`.

        Raises:
            TypeError: `name`, `kind`, `rank` or `capture` is of another type, or there is no such field.
            ValueError: `name`, `kind`, `capture`, `step`, `rank` or an id is not one.
        """
        recording = self._recording
        parent = recording.current.get()
        if parent is not None and parent.inner is not None:
            parent = parent.inner
        span = Span(recording, name, kind, parent)
        # As `set_up`: its call would cost a twentieth of a span.
        if fields or recording.is_choosy:
            describe(span, fields)
        if attributes is not None:
            span.attributes = labels(attributes, span)
        return span

    def start_span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        **fields: Unpack[SpanFields],
    ) -> Span:
        """As `span`, begun already; end it with `with` or `span.finish()`. Only `with` makes it current."""
        return self.span(name, kind, attributes=attributes, **fields).start()

    @overload
    def trace_op(self, name: Function, /) -> Function: ...

    @overload
    def trace_op(
        self, name: str | None = None, **fields: Unpack[OperationFields]
    ) -> Callable[[Function], Function]: ...

    def trace_op(
        self, name: Function | str | None = None, **fields: Unpack[OperationFields]
    ) -> Function | Callable[[Function], Function]:
        """Decorate a function: each call of it is a span, below the innermost open one, or a root.

        For functions, methods, coroutines and generators of either kind. A generator's span is current while its
        own code runs, not in its consumer's code between two items. Inputs (the arguments) and the output (what is
        returned) are kept under `capture="preview"` only.

        Args:
            name: What the spans are called; default: the function's `__qualname__`. Or the function itself.
            fields: `OperationFields`: as `span` has them, but `span_id` and `inputs`.

        Raises:
            TypeError: such a field, or one of another type; what is decorated is no function.
            ValueError: a field's value is none.
        """
        return trace_op(self, name, fields=fields)

    def attach_trace_context(self, carrier: Given) -> Attached:
        """Put what begins here from now on under a span of another process: a context manager, or until `detach()`.

        Args:
            carrier: What that span's `context()` returned; or a W3C `traceparent`, alone or in headers.

        Raises:
            TypeError: the carrier is neither a dict, nor headers, nor a text.
            ValueError: an id in it is none, or it belongs to another run.
        """
        return Attached(self._recording, parent_for(self._recording, carrier))

    def log_metric(self, name: str, value: float, *, step: int | None = None) -> None:
        """Record one value of a metric of the run; NaN and infinities are kept.

        Args:
            name: At most 512 bytes.
            value: Anything `float` takes; what it does not take is counted and left out.
            step: Default: the step this process is in, if any.
        """
        self.log_metrics({name if type(name) is str else text_of(name, NAME + MARGIN): value}, step=step)

    def log_metrics(self, values: Mapping[str, float], *, step: int | None = None) -> None:
        """Record values of several metrics at one moment.

        Args:
            values: Metric name → value, as in `log_metric`.
            step: Default: the step this process is in, if any.

        Raises:
            ValueError: `step` is not a whole number of at least 0.
        """
        recording = self._recording
        if step is not None:
            step = checked_step(step)
        if not recording.armed and not recording.is_forked:
            return
        if step is None:
            around = recording.current_step()
            step = None if around is None else around.index
        kept, text_bytes = numbers(values, recording.note_dropped)
        if not kept:
            return
        rows = MetricRows(kept, step, recording.mono_ns(), text_bytes)
        if recording.armed:
            recording.ring.append(rows)
        else:
            recording.note_unrecorded(rows.count)

    def alert(self, title: str, text: str = "", *, level: str = "warning") -> None:
        """Say something about the run that somebody should see: an event of kind `alert`, with the step it is in.

        Args:
            title: A line; at most 512 bytes.
            text: More; at most 16 KiB.
            level: How much it matters: "debug", "info", "warning" or "error".

        Raises:
            TypeError: `level` is no text.
            ValueError: `level` is none of them.
        """
        self._recording.append(alert_block(self._recording, title, text=text, level=level))

    def watch(self, model: "nn.Module", **options: "Unpack[WatchOptions]") -> "LocalProbe":
        """Observe a model's tensors and the phases of its steps; see `rankscope.watch`.

        Raises:
            ConfigError: an option asks for something that cannot be.
        """
        check_torch()
        from rankscope.probe.attach import attach

        return attach(self, model, **options)

    def flush(self, timeout: float | None = None) -> bool:
        """Hand on what was recorded before this call: into the spool, and under `upload_mode="sync"` beyond it.

        Args:
            timeout: Seconds to wait at most; default 1.5, for "sync" 5.

        Returns:
            Whether it was done in time. Under "sync" False only where `offline_dir` keeps what could not be sent.

        Raises:
            Unavailable: under "sync", without `offline_dir`: the ingest tier did not accept it; it stays in the spool.
            Rejected: under "sync": a batch was refused for good; its rows are stated as lost.
        """
        return self._hand_over.flush(timeout)

    def replay_offline(self, *, patience: float = 15.0) -> Replayed:
        """Send what lies in `offline_dir` and could not be sent so far, also by earlier processes.

        The same batches go under the same numbers: repeating it stores nothing twice.

        Args:
            patience: Seconds without any progress after which it is given up.

        Returns:
            How many batches the store has now, how many are left, and why.

        Raises:
            ConfigError: there is no `offline_dir`.
            Unavailable: this process was forked from one that had used gRPC, and can send nothing.
        """
        return self._hand_over.replay(patience)

    def replay_by(self, replay: "Callable[[float], Replayed]") -> None:
        """Have `replay_offline` call this, with its patience in seconds."""
        self._hand_over.replay_by(replay)

    def finish(
        self, status: RunStatus = RunStatus.FINISHED, *, wait: Wait | None = None, timeout: float | None = None
    ) -> None:
        """End this process's part of the run: seal what is left, hand it on, say the outcome.

        Again, or in a forked child, it does nothing. Rank 0 says on stderr what was spooled, dropped
        and not spooled.

        Args:
            status: How the process ended.
            wait: "spooled": until the spool has everything, which no backend can delay; "accepted": until the
                ingest tier has; "durable": until the store has. Default: "accepted" under `upload_mode="sync"`,
                else "spooled".
            timeout: Seconds to wait at most; default 1.5, for "accepted" 5, for "durable" 60.

        Raises:
            Unavailable: it did not have everything in time; the data stays in the spool.
            Rejected: a batch was refused for good.
            ValueError: `wait` is none of them.
        """
        self._hand_over.finish(RunStatus(status), wait=wait, timeout=timeout)

    def hurry(self) -> None:
        """Call off a wait for the ingest tier or the store that is going on."""
        self._hand_over.hurry()

    def on_finish(self, callback: "Callable[[Outcome], None]") -> None:
        """Call `callback` once, when `finish` has done its work."""
        self._hand_over.on_finish(callback)
