"""How what a process recorded is handed on: when somebody asks for it, and at the end of its part of a run.

Promises: the end comes once, within its bound, whatever the disk and the ingest tier do; what was not handed on by
then is counted, and what the ingest tier did not take stays where it lies.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rankscope._beacon import lit
from rankscope._block import Block
from rankscope._outcome import FINISH_S, Outcome, await_handed_on, bound_s
from rankscope._pump import Pump
from rankscope._replay import Replayed
from rankscope._run_info import RunInfo, run_info_block
from rankscope.errors import ConfigError, Unavailable
from rankscope_proto.names import ProcessRole, RunStatus

if TYPE_CHECKING:
    from rankscope._export import Exporter, Wait
    from rankscope._recording import Recording


class HandOver:
    """Hands on what a recording takes, from a thread of its own.

    Args:
        recording: What the process records.
        exporter: Where it goes; None: nowhere.
        info: What is said of the run at its start and at its end.
    """

    def __init__(self, recording: "Recording", exporter: "Exporter | None", *, info: RunInfo) -> None:
        self._recording = recording
        self._exporter = exporter
        self._on_finish: list[Callable[[Outcome], None]] = []
        self._replay: Callable[[float], Replayed] | None = None
        self._pid = os.getpid()
        self._ending = threading.Lock()
        self._is_handed_on = self._hurry = False
        self._pump: Pump | None = None
        if exporter is None:
            recording.armed = False
            return
        if recording.identity.process_role is not ProcessRole.WORKER:
            recording.beacon = lit(recording)
        self._pump = Pump(recording, exporter)
        self._said = run_info_block(
            info, RunStatus.RUNNING, start_ns=recording.clock.wall_ns(), redactor=recording.tracing.redactor
        )
        recording.append(self._said)
        self._pump.start()

    def on_finish(self, callback: Callable[[Outcome], None]) -> None:
        """Call `callback` once, when the end has done its work."""
        self._on_finish.append(callback)

    @property
    def place(self) -> str:
        """Where what was taken lies; "" where nothing is."""
        return "" if self._exporter is None else self._exporter.place

    def replay_by(self, replay: Callable[[float], Replayed]) -> None:
        """Have `replay` called with its patience in seconds when what was kept offline is to be sent."""
        self._replay = replay

    def replay(self, patience_s: float) -> Replayed:
        """Send what was kept offline; see `Run.replay_offline`."""
        if self._replay is None:
            raise ConfigError("nothing is kept for replay_offline(): init(offline_dir=...) names the folder for it")
        if self._pump is not None and self._recording.armed:
            self._pump.flush(timeout_s=FINISH_S)
        return self._replay(patience_s)

    def hurry(self) -> None:
        """Call off a wait for the ingest tier or the store that is going on."""
        self._hurry = True

    def flush(self, timeout: float | None) -> bool:
        """Hand on what was recorded before the call; see `Run.flush`."""
        if self._pump is None or self._exporter is None or not self._recording.armed:
            return True
        wait = self._exporter.waits_for
        deadline = time.monotonic() + bound_s(wait, timeout)
        is_spooled = self._pump.flush(timeout_s=deadline - time.monotonic())
        if wait == "spooled":
            return is_spooled
        if not is_spooled:
            return self._forgiven(self._late(wait))
        return self._awaited(wait, deadline)

    def finish(self, status: RunStatus, *, wait: "Wait | None", timeout: float | None) -> None:
        """End this process's part of the run; see `Run.finish`."""
        chosen = wait or ("spooled" if self._exporter is None else self._exporter.waits_for)
        deadline = time.monotonic() + bound_s(chosen, timeout)
        if os.getpid() != self._pid or not self._ending.acquire(blocking=False):
            return
        outcome = Outcome(0, 0, 0)
        try:
            if self._pump is not None:
                outcome = self._finished(self._pump, status, deadline=deadline)
                self._await_end(chosen, deadline, is_asked=wait is not None)
        finally:
            self._close(outcome)

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

    def _await_end(self, wait: "Wait", deadline: float, *, is_asked: bool) -> None:
        if wait == "spooled":
            return
        if not self._is_handed_on:
            late = self._late(wait)
            if is_asked or not self._forgiven(late):
                raise late
        if is_asked:
            self._await(wait, deadline)
        else:
            self._awaited(wait, deadline)

    def _awaited(self, wait: "Wait", deadline: float) -> bool:
        try:
            self._await(wait, deadline)
        except Unavailable as error:
            return self._forgiven(error)
        return True

    def _await(self, wait: "Wait", deadline: float) -> None:
        if self._exporter is not None:
            await_handed_on(
                self._exporter,
                wait,
                deadline=deadline,
                run_id=self._recording.identity.run_id,
                called_off=lambda: self._hurry,
            )

    def _late(self, wait: "Wait") -> Unavailable:
        run_id = self._recording.identity.run_id
        return Unavailable(
            f"not all of run {run_id} is {wait}: {self.place} did not take it in time; is its disk full?"
        )

    def _forgiven(self, error: Unavailable) -> bool:
        """False where what cannot be sent now is kept for later on purpose; else the error is raised."""
        if self._exporter is None or not self._exporter.keeps_unsent:
            raise error
        return False

    def _close(self, outcome: Outcome) -> None:
        # A thread that is still writing keeps its files; the end of the process closes them.
        if self._exporter is not None and self._is_handed_on:
            self._exporter.close()
        callbacks, self._on_finish = self._on_finish, []
        for callback in callbacks:
            callback(outcome)
