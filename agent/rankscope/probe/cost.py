"""What a watch costs the training, as the training itself shows it: told in the run's data, and kept within the budget.

Two parts. What full captures add: steps that are captured are compared with those that are not (`Budget`). What is
done in every step: hooks measure their own time in one of `TIMED` steps that are not captured; what torch itself does
to call a hook (about 1 µs a call) is not in it.
"""

from collections import deque
from statistics import median

from rankscope._block import Block
from rankscope.probe.budget import ENOUGH, KEPT, Budget
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.hooks import Guard
from rankscope.probe.model_rows import gap_block
from rankscope.probe.ports import Recording
from rankscope_proto.names import GapCause

METRIC = "rankscope.probe.cost"
"""Name of the metric: share of step time, 0 or more; a watch of a further model has `rankscope.probe.cost.model2`."""

TIMED = 8
"""Of the steps that are not captured in full, each so-many-th is one in which hooks measure their own time."""

TOLD_EVERY = 100
"""Steps from one value of the metric to the next."""


class Cost:
    """The cost of one watch, and which steps it may capture.

    Args:
        recording: Where the metric and gaps go.
        configuration: Stride and budget.
        guard: Of the watch; its hooks measure their own time.
        metric: Name of the metric.
    """

    def __init__(self, recording: Recording, configuration: CaptureConfiguration, *, guard: Guard, metric: str) -> None:
        self._recording = recording
        self._mono_ns = recording.clock.mono_ns
        self._guard = guard
        self._metric = metric
        self._shares: deque[float] = deque(maxlen=KEPT)
        self._began_ns = self._own_ns = 0
        self._others = self._since_told = 0
        self._left_out = -1
        self._is_captured = self._is_timed = self._is_open = False
        self.configure(configuration)

    def configure(self, configuration: CaptureConfiguration) -> None:
        """Measure anew, for another configuration."""
        self._configuration = configuration
        self._budget = Budget(configuration.every, configuration.budget)
        self._shares.clear()
        self._since_told = 0

    @property
    def stride(self) -> int:
        """Stride of the steps that are captured in full, now."""
        return self._budget.stride

    @property
    def share(self) -> float | None:
        """Share of step time that the watch costs, 0 or more; None: too few steps yet."""
        if len(self._shares) < ENOUGH:
            return None
        captures = self._budget.cost if self._configuration.level >= 1 else 0.0
        return None if captures is None else captures + median(self._shares)

    def begin(self, step: int) -> bool:
        """A step begins, and with it work of the watch's own.

        Returns:
            Whether it is captured in full.
        """
        self._began_ns = self._mono_ns()
        self._is_open = True
        level, budget = self._configuration.level, self._budget
        self._is_captured = level >= 1 and budget.captures(step)
        is_left_out = level >= 1 and not self._is_captured and step % budget.stride == 0
        if is_left_out and step != self._left_out:  # each microstep begins the step anew
            self._left_out = step
            detail = f"step {step} is not captured in full: others are compared with it"
            now = self._recording.clock.wall_ns()
            self._recording.append(gap_block(GapCause.BUDGET, detail, time_ns=now, steps=(step, step)))
        self._others += not self._is_captured
        self._is_timed = self._guard.is_timed = not self._is_captured and self._others % TIMED == 1
        self._own_ns = self._guard.own_ns = 0
        return self._is_captured

    def begun(self) -> None:
        """The watch has done what it does when a step begins."""
        self._own_ns += self._mono_ns() - self._began_ns

    def end(self, step: int, *, ending_ns: int) -> None:
        """The watch has done what it does when a step ends, which it began to do at a monotonic time."""
        if not self._is_open:
            return
        self._is_open = self._guard.is_timed = False
        now = self._mono_ns()
        took = now - self._began_ns
        own = self._own_ns + self._guard.own_ns + now - ending_ns
        if self._is_timed and took > own:
            self._shares.append(own / (took - own))
        if self._configuration.level >= 1:
            self._budget.took(took, captured=self._is_captured)
        self._since_told += 1
        share = self.share if self._since_told >= TOLD_EVERY else None
        if share is not None:
            self._tell(share, step)

    def _tell(self, share: float, step: int) -> None:
        self._since_told = 0
        now = self._recording.clock.wall_ns()
        columns = {"name": [self._metric], "value": [share], "time": [now], "step": [step]}
        self._recording.append(Block("scalars", 1, columns))
