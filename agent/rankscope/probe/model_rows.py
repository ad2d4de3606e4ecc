"""The rows a watch writes when it is attached and when its configuration changes: modules, and what is not captured."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope._block import Block
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.graph import Node, own_parameters, written_class
from rankscope.probe.ports import Recording
from rankscope_proto.names import GapCause, GapClass

_HAS_LAYER_INDEX = 1 << 0
_NOT_CAPTURED = GapClass.NOT_CAPTURED.code
_LEVEL_DETAIL = {
    0: "level 0: no tensor statistics but the loss's finiteness",
    1: "level 1: no activation statistics but finiteness, no histograms, no updates, no values",
    2: "level 2: no values",
    3: "level 3: values only in steps in which something asks for them",
}


def modules_block(nodes: Sequence[Node], time_ns: int) -> Block:
    """One row per module, in declaration order."""
    own = [own_parameters(node.module) for node in nodes]
    flat = [named for parameters in own for named in parameters]
    columns = {
        "path": [node.path for node in nodes],
        "parent": [node.parent for node in nodes],
        "class": [written_class(node.module).__name__ for node in nodes],
        "type": [str(node.layer_type) for node in nodes],
        "layer_index": [node.layer_index or 0 for node in nodes],
        "parameters": [name for name, _ in flat],
        "parameter_shapes": ["x".join(map(str, parameter.shape)) for _, parameter in flat],
        "parameter_dtypes": [str(parameter.dtype).removeprefix("torch.") for _, parameter in flat],
        "parameter_trainable": [int(parameter.requires_grad) for _, parameter in flat],
        "parameter_n": [len(parameters) for parameters in own],
        "aliases": [alias for node in nodes for alias in node.aliases],
        "alias_n": [len(node.aliases) for node in nodes],
        "time": [time_ns] * len(nodes),
        "present": [0 if node.layer_index is None else _HAS_LAYER_INDEX for node in nodes],
    }
    return Block("modules", len(nodes), columns)


@dataclass(frozen=True, slots=True)
class Absence:
    """Something that is not captured, from a moment on.

    Attributes:
        cause: Why.
        detail: What, for people.
        stride: Captured are the steps whose number is a multiple of it; None: none.
    """

    cause: GapCause
    detail: str
    stride: int | None = None


def absences(configuration: CaptureConfiguration, *, stride: int, left_out: str = "") -> list[Absence]:
    """What the level leaves out, what the filters do, and the steps the stride leaves out.

    Args:
        configuration: The one that holds.
        stride: The stride now, which the budget may have made greater.
        left_out: What the filters leave out; "": nothing.
    """
    found = [Absence(GapCause.LEVEL, _LEVEL_DETAIL[configuration.level])]
    if left_out:
        found.append(Absence(GapCause.LEVEL, f"filters: {left_out}"))
    if configuration.level >= 1 and stride > 1:
        detail = f"weights and gradients of steps that are a multiple of {stride}"
        cause = GapCause.SAMPLED if stride == configuration.every else GapCause.BUDGET
        if cause is GapCause.BUDGET:
            detail = f"capturing cost more than {configuration.budget or 0.0:.1%} of step time: {detail}"
        found.append(Absence(cause, detail, stride))
    return found


class Intervals:
    """What is not captured, as rows: one when it begins, and again with its end when it is over.

    Args:
        recording: Where the rows go.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._open: list[tuple[Absence, int, int | None]] = []

    def change(self, absent: Sequence[Absence], step: int | None) -> None:
        """From a step on this is not captured; intervals that it does not go on end with the step before.

        Args:
            absent: What.
            step: The step; None: the watch begins.
        """
        now = self._recording.clock.wall_ns()
        for absence, start_ns, from_step in self._open:
            if absence not in absent:
                last = None if step is None else max(step - 1, from_step or 0)
                block = _row(absence, start_ns=start_ns, steps=(from_step, last), end_ns=now)
                self._recording.append(block)
        kept = [known for known in self._open if known[0] in absent]
        begun = [(absence, now, step) for absence in absent if absence not in [known[0] for known in kept]]
        for absence, start_ns, from_step in begun:
            self._recording.append(_row(absence, start_ns=start_ns, steps=(from_step, None)))
        self._open = [*kept, *begun]


def gap_block(
    cause: GapCause, detail: str, *, time_ns: int, steps: tuple[int | None, int | None] = (None, None)
) -> Block:
    """One `not_captured` row about tensor statistics, of the steps from first to last, or open at its end."""
    return _row(Absence(cause, detail), start_ns=time_ns, steps=steps, end_ns=None if steps[1] is None else time_ns)


def _row(absence: Absence, *, start_ns: int, steps: tuple[int | None, int | None], end_ns: int | None = None) -> Block:
    optional = {"step_stride": absence.stride, "step_from": steps[0], "step_to": steps[1], "end": end_ns}
    columns: dict[str, Sequence[int] | Sequence[str]] = {
        "class": [_NOT_CAPTURED],
        "cause": [str(absence.cause)],
        "data_kind": ["tensor_stats"],
        "start": [start_ns],
        "detail": [absence.detail],
        **{name: [value] for name, value in optional.items() if value is not None},
    }
    return Block("gaps", 1, columns)
