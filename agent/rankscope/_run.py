"""One training job, as one of its processes sees it: what training code calls.

Promises: no recording call waits for I/O or raises because of us; `finish` ends within its bound, whatever
the disk and the ingest tier do; in a forked child everything is a no-op. Wrong arguments (a kind, a step)
raise `ValueError` at once.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from rankscope._block import Block
from rankscope._bounds import NAME
from rankscope._checked import checked_step
from rankscope._clock import Clock, SystemClock
from rankscope._export import Exporter
from rankscope._host import boot_id, node_name
from rankscope._identity import Identity, readable_id
from rankscope._ids import Ids, RandomIds
from rankscope._labels import labels, numbers, text_of
from rankscope._metric_rows import MetricRows
from rankscope._outcome import Outcome, Wait, await_durable, bound_s, status_after
from rankscope._pump import Pump
from rankscope._recording import Recording
from rankscope._run_info import RunInfo, run_info_block
from rankscope._span import Span, SpanFields, Trace
from rankscope._step import Step, checked_microstep
from rankscope._tracing_options import TracingOptions
from rankscope.errors import Unavailable
from rankscope_proto.identity import uuid7
from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from torch import nn

    from rankscope.probe import Watch, WatchOptions


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
        self._on_finish: list[Callable[[Outcome], None]] = []
        self._recording = Recording(identity or _alone(clock, ids), clock=clock, ids=ids, tracing=tracing)
        self._pid = os.getpid()
        self._exporter = exporter
        self._ending = threading.Lock()
        self._is_handed_on = self._hurry = False
        self._pump: Pump | None = None
        if exporter is None:
            self._recording.armed = False
            return
        self._pump = Pump(self._recording, exporter)
        self._said = run_info_block(self._info, RunStatus.RUNNING, start_ns=clock.wall_ns())
        self._recording.append(self._said)
        self._pump.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.finish(status_after(error_class, error))

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
        return dict(self._recording.faults)

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
        metrics: Mapping[str, float] | None = None,
        step: int | None = None,
        **fields: Unpack[SpanFields],
    ) -> Trace:
        """The root span of a tree of its own; inside a step it keeps the step's number and a link to it.

        Raises:
            ValueError: `kind`, `step` or an id is not one.
        """
        recording = self._recording
        trace = Trace(recording, name, kind=kind, parent=None)
        if attributes is not None:
            trace.attributes = labels(attributes, trace)
        trace.describe(metrics, step, fields)
        around = recording.current_step()
        if around is not None:
            trace.links = (*trace.links, (around.trace_hi, around.trace_lo, around.id))
            if step is None:
                trace.at_step = around.step
        return trace

    def span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        step: int | None = None,
        **fields: Unpack[SpanFields],
    ) -> Span:
        """A child of the innermost open span, or a root: a context manager that starts on entry.

        Raises:
            ValueError: `kind`, `step` or an id is not one.
        """
        recording = self._recording
        parent = recording.current.get()
        if parent is not None and parent.inner is not None:
            parent = parent.inner
        span = Span(recording, name, kind=kind, parent=parent)
        if attributes is not None:
            span.attributes = labels(attributes, span)
        if metrics is not None or fields or step is not None:
            span.describe(metrics, step, fields)
        return span

    def start_span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        step: int | None = None,
        **fields: Unpack[SpanFields],
    ) -> Span:
        """A span that has begun already; end it with `with` or `span.end()`.

        Raises:
            ValueError: `kind`, `step` or an id is not one.
        """
        span = self.span(name, kind, attributes=attributes, metrics=metrics, step=step, **fields)
        return span.start()

    def log_metric(self, name: str, value: float, *, step: int | None = None) -> None:
        """Record one value of a metric of the run; NaN and infinities are kept.

        Args:
            name: At most 512 bytes.
            value: Anything `float` takes; what it does not take is counted and left out.
            step: Default: the step this process is in, if any.
        """
        self.log_metrics({name if type(name) is str else text_of(name, NAME + 1): value}, step=step)

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
        kept, text_bytes = numbers(values, recording.note_fault)
        if not kept:
            return
        rows = MetricRows(kept, step, recording.mono_ns(), text_bytes)
        if recording.armed:
            recording.ring.append(rows)
        else:
            recording.note_unrecorded(rows.count)

    def watch(self, model: "nn.Module", **options: "Unpack[WatchOptions]") -> "Watch":
        """Observe a model's tensors and the phases of its steps; see `rankscope.watch`.

        Raises:
            ConfigError: an option asks for something that cannot be.
        """
        from rankscope.probe import attach

        options.setdefault("level", self._info.watch_level)
        options.setdefault("every", self._info.watch_every)
        return attach(self, model, **options)

    def finish(
        self, status: RunStatus = RunStatus.FINISHED, *, wait: Wait = "spooled", timeout: float | None = None
    ) -> None:
        """End this process's part of the run: seal what is left, hand it on, say the outcome.

        Again, or in a forked child, it does nothing. Rank 0 says on stderr what was spooled, dropped
        and not spooled.

        Args:
            status: How the process ended.
            wait: "spooled": until the spool has everything, which no backend can delay; "durable": until
                the store has it.
            timeout: Seconds to wait at most; default 1.5, for "durable" 60.

        Raises:
            Unavailable: the store did not have everything in time; the data stays in the spool.
            ValueError: `wait` is neither.
        """
        deadline = time.monotonic() + bound_s(wait, timeout)
        if os.getpid() != self._pid or not self._ending.acquire(blocking=False):
            return
        outcome, is_durable = Outcome(0, 0, 0), True
        try:
            if self._pump is not None:
                outcome = self._finished(self._pump, RunStatus(status), deadline=deadline)
                is_durable = wait == "spooled" or self._is_durable_by(deadline)
        finally:
            self._close(outcome)
        if not is_durable:
            raise Unavailable(
                f"the store does not have all of run {self.id} yet; the data is safe in {self._place()}: it is sent "
                "when the ingest tier answers, or by `rankscope drain`"
            )

    def _finished(self, pump: Pump, status: RunStatus, *, deadline: float) -> Outcome:
        for span in self._recording.open_spans.copy().values():
            span.interrupt()
        self._recording.tell_finishing()
        self._recording.armed = False
        end_ns = self._recording.clock.wall_ns()
        # What was said at the start is not made again: masking a large configuration takes a second.
        last = {**self._said.columns, "status": (status.code,), "end": (end_ns,)}
        left_s = max(0.0, deadline - time.monotonic())
        self._is_handed_on = pump.finish([Block("run_info", 1, last)], timeout_s=left_s)
        return Outcome(pump.taken_rows(), pump.dropped_rows(), pump.waiting_rows())

    def _is_durable_by(self, deadline: float) -> bool:
        exporter = self._exporter
        if exporter is None:
            return True
        return self._is_handed_on and await_durable(exporter, deadline, called_off=lambda: self._hurry)

    def hurry(self) -> None:
        """Call off a wait for the store that is going on."""
        self._hurry = True

    def _close(self, outcome: Outcome) -> None:
        # A thread that is still writing keeps its files; the end of the process closes them.
        if self._exporter is not None and self._is_handed_on:
            self._exporter.close()
        callbacks, self._on_finish = self._on_finish, []
        for callback in callbacks:
            callback(outcome)

    def _place(self) -> str:
        return "" if self._exporter is None else self._exporter.place

    def on_finish(self, callback: "Callable[[Outcome], None]") -> None:
        """Call `callback` once, when `finish` has done its work."""
        self._on_finish.append(callback)


def _alone(clock: Clock, ids: Ids) -> Identity:
    return Identity(
        project="default",
        run_id=readable_id(ids.entropy(8)),
        launch_id=ids.entropy(16),
        incarnation=uuid7(clock.wall_ns(), ids.entropy(10)),
        pid=os.getpid(),
        node=node_name(),
        boot_id=boot_id(),
    )
