"""Gradients and weights of a captured step that nothing told of: said once, since their absence is no value.

A post-accumulate hook does not run where a schedule splits backward (zero bubble), or where training sets
`.grad` by itself. Weights are measured when a backward ends, which is not seen where no loss and no output
of the watched model shows that one begins: several pipeline stages in one list, for one.
"""

from collections.abc import Mapping, Sequence

from rankscope.probe.increments import is_known_zero
from rankscope.probe.parameters import Tracked
from rankscope.probe.rows import Row
from rankscope.probe.sheet import Sheet
from rankscope.probe.torch_inner import version_of
from rankscope_proto.names import GapCause, Role

Seen = Mapping[int, tuple[int, int]]
"""Of parameters that have a gradient, by their id: the gradient's id and how often it was written."""

_GRAD = Role.GRAD.code


def gradients_of(armed: Sequence[Tracked]) -> Seen:
    """The gradients that parameters have now."""
    pairs = [(id(each.parameter), each.parameter.grad) for each in armed]
    return {known: (id(gradient), version_of(gradient)) for known, gradient in pairs if gradient is not None}


class Untold:
    """Finds what no hook told of; says each kind once.

    Args:
        sheet: Takes the gaps.
    """

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._before: Seen = {}
        self._said: set[str] = set()

    def begin(self, armed: Sequence[Tracked]) -> None:
        """A captured step begins."""
        self._before = {} if "gradients" in self._said else gradients_of(armed)

    def end(self, armed: Sequence[Tracked], rows: Sequence[Row], *, lacks_weights: bool) -> None:
        """It ends.

        Args:
            armed: The parameters whose gradients were to be told of.
            rows: What was measured of it.
            lacks_weights: Whether weights are wanted and no backward was seen to begin, which are measured at its end.
        """
        before, self._before = self._before, {}
        told = {row.subject.name for row in rows if row.subject.role == _GRAD}
        if told and lacks_weights:
            self._say("weights", "weights: no backward was seen to begin; name the loss, by watch(loss=) or step.loss")
        if "gradients" in self._said:
            return
        now = gradients_of([each for each in armed if each.gradient.name not in told])
        names = [each.gradient.name for each in armed if id(each.parameter) in now and _is_new(each, before, now=now)]
        if names:
            detail = f"gradients of {len(names)} parameters, such as {names[0]}: they came without the hooks that tell"
            self._say("gradients", f"{detail}, as where a schedule splits backward, or training sets .grad itself")

    def _say(self, kind: str, detail: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._sheet.gap(GapCause.UNSUPPORTED, detail)


def _is_new(each: Tracked, before: Seen, *, now: Seen) -> bool:
    known, gradient = id(each.parameter), each.parameter.grad
    return before.get(known) != now[known] and gradient is not None and not is_known_zero(gradient)
