"""The rules: names, versions, thresholds, and the TQL text of each, or the judge that one query cannot replace.

Most rules are a query whose rows are what it found. Some need a second look at each of them before it means anything: a
gradient that has vanished is dead while the loss still moves, and converged where it does not. Such a look is a guard,
a query too; where what it looks at was not captured, nothing speaks against the finding. A threshold is a word in
braces in the text; whoever asks may give another value. The version rises whenever a text or a default changes, so
that an alarm can be traced to the rule that gave it.

Steps that a loss scaler skipped are passed over: their gradients overflowed on purpose. Under data parallelism a rule
looks at gradients before the reduction, which makes one rank's fault every rank's.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rankscope.tql.formatting import format_value
from rankscope.tql.nodes import Text
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.ranks import hangs, stragglers
from rankscope_query_api.rules import failed, hanging, spreading
from rankscope_query_api.rules.finding import Severity

Threshold = float | int | str
"""A number, or a name such as that of the metric that is the loss."""

STRAGGLER, STRAGGLER_VERSION = "straggler", 1

_TRAINED = "0 findings in 2 clean trainings of 40 steps, one of them with an annealed rate (tests/query_api)"

_IN_BRACES = re.compile(r"\{(\w+)\}")
_OF_FINDING = {
    "first_step": "min",
    "last_step": "max",
    "found": "distinct",
    "rank": "rank",
    "tensor": "name",
    "layer": "layer_index",
}
"""What a guard knows of a finding beside the thresholds, and the column of the finding that says it."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A second look.

    Attributes:
        query: TQL text about a finding; finds rows or does not.
        finds: Whether it must find some for the rule to hold.
        meaning: What it makes sure of.
    """

    query: str
    finds: bool
    meaning: str

    @property
    def words(self) -> frozenset[str]:
        """The words in braces in its query."""
        return frozenset(_IN_BRACES.findall(self.query))


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
        severity: How much it matters what it finds.
        judge: What judges instead of a query, a name of `judges.JUDGES`; "": the query does.
        noise_budget: How often it found something in clean runs, as far as that was measured.
    """

    name: str
    version: int
    meaning: str
    query: str
    thresholds: Mapping[str, Threshold]
    guards: tuple[Guard, ...] = field(default=())
    needs: str = ""
    severity: Severity = "warning"
    judge: str = ""
    noise_budget: str = _TRAINED

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

    def guard_for_people(self, guard: Guard, thresholds: Mapping[str, Threshold]) -> str:
        """The query of a guard with thresholds, and in angle brackets the words for what a finding says."""
        return _IN_BRACES.sub(
            lambda word: f"<{word[1]}>" if word[1] in _OF_FINDING else _written(thresholds[word[1]]), guard.query
        )

    def guard_text(
        self, guard: Guard, thresholds: Mapping[str, Threshold], *, finding: Mapping[str, Any]
    ) -> str | None:
        """The query of a guard about a finding; None: it asks for what the finding has not, such as a layer."""
        known = {word: finding[name] for word, name in _OF_FINDING.items() if finding.get(name) is not None}
        words = {**thresholds, **known}
        return filled(guard.query, words) if guard.words <= words.keys() else None


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


_OWN = 'tensor.role == "grad" and tensor.skipped == false and (tensor.reduced == false or exists(tensor.placement))'
"""Gradients as the rank made them, so that a finding names the rank; of sharded ones there are only reduced ones."""

_SMALL = (
    f"{_OWN} and tensor.l2 < {{share}} * ema(tensor.l2, {{memory}})"
    " | distinct(step), min(step), max(step) by rank, layer.index, tensor.name"
    " | where distinct >= {steps}"
)
"""Gradients that are near zero beside what they were, in many captured steps."""

_IN_ITS_STEPS = "step in {first_step}..{last_step}"
_ITSELF = "tensor.name == {tensor} and rank == {rank}"

_FLICKERS = Guard(
    f"{_OWN} and {_ITSELF} and {_IN_ITS_STEPS} and tensor.l2 >= {{share}} * ema(tensor.l2, {{memory}})"
    " | distinct(step) | where distinct > {alive} * {found}",
    finds=False,
    meaning="the gradient is no more than now and then alive between these steps",
)
_LOSS_MOVES = (
    "scalar.name == {loss} and step > {first_step} and step <= {last_step}"
    " and abs(delta(scalar.value)) > {moves} * ema(abs(scalar.value), {memory})"
)
"""Beside what the loss was: one that is nearly zero moves by much of itself and by nothing that matters."""

_LOSS_IS_KNOWN = "scalar.name == {loss} | first"
_OTHERS_LEARN = (
    f"{_OWN} and rank == {{rank}} and {_IN_ITS_STEPS} and tensor.l2 >= {{share}} * ema(tensor.l2, {{memory}})"
)
_INPUTS_STAND = (
    'tensor.role == "activation" and layer.index == {layer} - 1 and rank == {rank}'
    " and step > {first_step} and step <= {last_step}"
    " | max(abs(delta(tensor.l2))), max(tensor.l2)"
    " | where max(abs(delta(tensor.l2))) <= {still} * max(tensor.l2)"
)
_WEIGHTS_MOVE = f'tensor.role == "update" and {_ITSELF} and {_IN_ITS_STEPS} and tensor.update_ratio > {{moved}}'

_SLOPES = (
    f"{_OWN} and exists(layer.index) and tensor.name =~ {{names}} and tensor.l2 > 0"
    " | across layer: slope(log2(tensor.l2)) by rank, step"
)
_STEPS_OF_RANK = " | distinct(step), min(step), max(step) by rank | where distinct >= {steps}"
_IS_DEEP = 'tensor.role == "grad" and layer.index + 1 >= {layers} | first'
_BY_LAYER: Mapping[str, Threshold] = {"bits_per_layer": 1.0, "layers": 6, "steps": 10, "names": ".*weight"}


def _most_steps(is_well: str) -> Guard:
    """Few steps of many have a steep slope by chance: a healthy stack of 6 small layers had 0.5 ± 0.3 bits a layer."""
    return Guard(
        f"{_SLOPES} | where rank == {{rank}} and {_IN_ITS_STEPS} and {is_well} | count() | where count > {{found}}",
        finds=False,
        meaning="it is so in most captured steps from the first of them to the last",
    )


_NEAR_ZERO: Mapping[str, Threshold] = {
    "share": 0.001,
    "memory": 200,
    "steps": 5,
    "alive": 0.25,
    "loss": "loss",
    "moves": 0.001,
}

RULES: Sequence[Rule] = (
    Rule(
        "vanishing",
        2,
        "The norm of the gradient falls by a factor with every layer towards the input.",
        _SLOPES + " | where slope > {bits_per_layer}" + _STEPS_OF_RANK,
        _BY_LAYER,
        (_most_steps("slope <= {bits_per_layer}"),),
        needs=_IS_DEEP,
    ),
    Rule(
        "exploding",
        2,
        "The norm of a gradient leaps far beyond what it was.",
        f"{_OWN} and robust_z(tensor.l2, {{window}}) > {{z}} and tensor.l2 > {{factor}} * prev(tensor.l2)"
        " | select rank, step, module.path, tensor.name, tensor.role, tensor.l2",
        {"z": 20.0, "factor": 10.0, "window": 32},
    ),
    Rule(
        "exploding_by_layer",
        2,
        "The norm of the gradient grows by a factor with every layer towards the input.",
        _SLOPES + " | where slope < -{bits_per_layer}" + _STEPS_OF_RANK,
        _BY_LAYER,
        (_most_steps("slope >= -{bits_per_layer}"),),
        needs=_IS_DEEP,
    ),
    Rule(
        "dead",
        2,
        "A gradient is near zero beside what it was, while the loss, other gradients and its layer's input still move.",
        _SMALL,
        {**_NEAR_ZERO, "still": 1e-6},
        (
            Guard(_LOSS_MOVES, finds=True, meaning="the loss still moves in these steps"),
            Guard(_OTHERS_LEARN, finds=True, meaning="other tensors still have gradients in these steps"),
            _FLICKERS,
            Guard(
                _INPUTS_STAND,
                finds=False,
                meaning="the layer before still has other outputs in each step (known from level 2 on)",
            ),
        ),
        needs=_LOSS_IS_KNOWN,
    ),
    Rule(
        "converged",
        2,
        "A gradient is near zero beside what it was, the loss is flat and the weight stays: no alarm.",
        _SMALL,
        {**_NEAR_ZERO, "moved": 1e-4},
        (
            Guard(_LOSS_MOVES, finds=False, meaning="the loss is flat in these steps"),
            _FLICKERS,
            Guard(
                _WEIGHTS_MOVE,
                finds=False,
                meaning="no update moves the weight by more of its norm (known from level 2 on)",
            ),
        ),
        needs=_LOSS_IS_KNOWN,
        severity="info",
    ),
    Rule(
        "loss_spike",
        2,
        "The loss leaps far above what it was.",
        "scalar.name == {loss} and robust_z(scalar.value, {window}) > {z}"
        " and scalar.value > {factor} * abs(prev(scalar.value))"
        " | select rank, step, scalar.name, scalar.value",
        # Losses of small batches have a long tail: 6,000 clean steps of a small network came to a z of 16.
        {"z": 20.0, "factor": 1.5, "window": 32, "loss": "loss"},
        noise_budget="0 findings in 6,000 clean steps of small batches, whose greatest z was 16",
    ),
    Rule(
        hanging.NAME,
        hanging.VERSION,
        "The run does not go on: a rank did not come to a collective, entered another one, died, or is stuck.",
        "",
        hangs.THRESHOLDS,
        severity="error",
        judge="hang",
        noise_budget="0 verdicts in 1,000 clean steps of 4 ranks on 2 cores at load 15 (tests/ranks)",
    ),
    Rule(
        spreading.NAME,
        spreading.VERSION,
        "A tensor with non-finite values whose inputs were finite, outside the steps that a loss scaler skipped.",
        "",
        {},
        severity="error",
        judge="nonfinite",
        noise_budget="0 findings without a non-finite value: nothing is estimated",
    ),
    Rule(
        failed.NAME,
        failed.VERSION,
        "Processes failed: the rank whose error came first, where the others' are of the connection or came later.",
        "",
        {},
        severity="error",
        judge="first_failure",
        noise_budget="0 findings where no process ends as failed: nothing is estimated",
    ),
    Rule(
        STRAGGLER,
        STRAGGLER_VERSION,
        "One rank makes the others wait, in each or in every k-th step, from some step until the last one.",
        "",
        {**asdict(stragglers.DEFAULT), "phase_steps": 2000},
        judge="straggler",
        noise_budget="0 findings in 200 simulated clean runs of 4 ranks on 2 cores (tests/query_api/noise.py)",
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
