"""The rules: names, versions, thresholds, and the TQL text of each.

A rule is a query whose rows are what it found. Some need a second look at the same steps before they mean anything:
a gradient that has vanished is dead while the loss still moves, and converged where it does not. Such a look is a
guard, a query too. A threshold is a word in braces in the text; whoever asks may give another value. The version
rises whenever a text or a default changes, so that an alarm can be traced to the rule that gave it.

Steps that a loss scaler skipped are passed over: their gradients overflowed on purpose.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.tql.formatting import format_value
from rankscope.tql.nodes import Text
from rankscope_query_api.errors import InvalidRequestError

Threshold = float | int | str
"""A number, or a name such as that of the metric that is the loss."""

_IN_BRACES = re.compile(r"\{(\w+)\}")
_FIRST, _LAST = "first_step", "last_step"
"""What a guard knows beside the thresholds: the steps in which its rule found something."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A second look.

    Attributes:
        query: TQL text; finds rows or does not.
        finds: Whether it must find some for the rule to hold.
        meaning: What it makes sure of.
    """

    query: str
    finds: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        name: What it is called.
        version: From 1; rises with every change of what it finds.
        meaning: One sentence.
        query: TQL text; a row is a finding.
        thresholds: Default of each word in braces.
        guards: All must hold.
        needs: TQL text that must find a row for the run to be judged at all; "": every run is.
    """

    name: str
    version: int
    meaning: str
    query: str
    thresholds: Mapping[str, Threshold]
    guards: tuple[Guard, ...] = field(default=())
    needs: str = ""

    def with_thresholds(self, given: Mapping[str, str]) -> dict[str, Threshold]:
        """The thresholds with those that are given in place of the defaults.

        Raises:
            InvalidRequestError: The rule has no such threshold, or the value is of another kind.
        """
        known = dict(self.thresholds)
        for name, text in given.items():
            if name not in known:
                message = f"rule {self.name} has no threshold {name}"
                raise InvalidRequestError(message, hint="name one of the expected ones", expected=list(known))
            known[name] = _like(known[name], text, name=f"{self.name}.{name}")
        return known

    def text(self, thresholds: Mapping[str, Threshold]) -> str:
        """The query with thresholds filled in."""
        return filled(self.query, thresholds)

    def guard_text(self, guard: Guard, thresholds: Mapping[str, Threshold], *, first: int, last: int) -> str:
        """The query of a guard, of the steps in which the rule found something."""
        return filled(guard.query, {**thresholds, _FIRST: first, _LAST: last})


def filled(text: str, values: Mapping[str, Threshold]) -> str:
    """A text with the values for its words in braces; names become TQL strings."""
    return _IN_BRACES.sub(lambda found: _written(values[found[1]]), text)


def _written(value: Threshold) -> str:
    return format_value(Text(value)) if isinstance(value, str) else str(value).removesuffix(".0")


def _like(default: Threshold, text: str, *, name: str) -> Threshold:
    try:
        value = type(default)(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(text)
    except ValueError as error:
        message = f"threshold {name} is {text!r}"
        hint = f"write a {'whole ' if isinstance(default, int) else ''}number, as {default}"
        raise InvalidRequestError(message, hint=hint) from error
    return value


_TRAINED = 'tensor.role == "grad" and tensor.skipped == false'

_SMALL = (
    f"{_TRAINED} and tensor.l2 < {{share}} * ema(tensor.l2, {{memory}})"
    " | count(), min(step), max(step) by rank, tensor.name"
    " | where count >= {steps}"
)
"""Gradients that are near zero beside what they were, in many captured steps."""

_LOSS_MOVES = (
    "scalar.name == {loss} and step > {first_step} and step <= {last_step}"
    " and abs(delta(scalar.value)) > {moves} * abs(scalar.value)"
)
_LOSS_IS_KNOWN = "scalar.name == {loss} | first"
_OTHERS_LEARN = (
    f"{_TRAINED} and step in {{first_step}}..{{last_step}} and tensor.l2 >= {{share}} * ema(tensor.l2, {{memory}})"
)

RULES: Sequence[Rule] = (
    Rule(
        "vanishing",
        1,
        "The norm of the gradient falls by a factor with every layer towards the input.",
        f"{_TRAINED} and exists(layer.index) and tensor.name =~ {{names}} and tensor.l2 > 0"
        " | across layer: slope(log2(tensor.l2)) by rank, step"
        " | where slope > {bits_per_layer}"
        " | count(), min(step), max(step) by rank"
        " | where count >= {steps}",
        {"bits_per_layer": 1.0, "layers": 6, "steps": 3, "names": ".*weight"},
        needs='tensor.role == "grad" and layer.index + 1 >= {layers} | first',
    ),
    Rule(
        "exploding",
        1,
        "The norm of a gradient leaps far beyond what it was.",
        f"{_TRAINED} and robust_z(tensor.l2, {{window}}) > {{z}} and tensor.l2 > {{factor}} * prev(tensor.l2)"
        " | select rank, step, module.path, tensor.name, tensor.role, tensor.l2",
        {"z": 20.0, "factor": 10.0, "window": 32},
    ),
    Rule(
        "exploding_by_layer",
        1,
        "The norm of the gradient grows by a factor with every layer towards the input.",
        f"{_TRAINED} and exists(layer.index) and tensor.name =~ {{names}} and tensor.l2 > 0"
        " | across layer: slope(log2(tensor.l2)) by rank, step"
        " | where slope < -{bits_per_layer}"
        " | count(), min(step), max(step) by rank"
        " | where count >= {steps}",
        {"bits_per_layer": 1.0, "layers": 6, "steps": 3, "names": ".*weight"},
        needs='tensor.role == "grad" and layer.index + 1 >= {layers} | first',
    ),
    Rule(
        "dead",
        1,
        "A gradient is near zero beside what it was, while the loss and other gradients still move.",
        _SMALL,
        {"share": 0.001, "memory": 200, "steps": 5, "loss": "loss", "moves": 0.001},
        (
            Guard(_LOSS_MOVES, finds=True, meaning="the loss still moves in these steps"),
            Guard(_OTHERS_LEARN, finds=True, meaning="other tensors still have gradients in these steps"),
        ),
        needs=_LOSS_IS_KNOWN,
    ),
    Rule(
        "converged",
        1,
        "A gradient is near zero beside what it was, and the loss is flat: no alarm.",
        _SMALL,
        {"share": 0.001, "memory": 200, "steps": 5, "loss": "loss", "moves": 0.001},
        (Guard(_LOSS_MOVES, finds=False, meaning="the loss is flat in these steps"),),
        needs=_LOSS_IS_KNOWN,
    ),
    Rule(
        "loss_spike",
        1,
        "The loss leaps far above what it was.",
        "scalar.name == {loss} and robust_z(scalar.value, {window}) > {z}"
        " and scalar.value > {factor} * abs(prev(scalar.value))"
        " | select rank, step, scalar.name, scalar.value",
        {"z": 10.0, "factor": 1.5, "window": 32, "loss": "loss"},
    ),
)
"""Every rule."""


def rule_named(name: str) -> Rule:
    """The rule of a name.

    Raises:
        InvalidRequestError: There is none.
    """
    found = next((rule for rule in RULES if rule.name == name), None)
    if found is None:
        known = [rule.name for rule in RULES]
        raise InvalidRequestError(f"there is no rule {name!r}", hint="name one of the expected ones", expected=known)
    return found
