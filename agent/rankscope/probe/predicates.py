"""Conditions of breakpoints: checked when they are set, so that one which can never hold is told at once.

A condition is asked of rows as they are made. What it names says how closely its nodes must be looked at,
and which of a node's tensors it can hold of: `tensor.role == "grad" and tensor.l2 > 100` looks at norms of
gradients and at nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope import tql
from rankscope.errors import ConfigError, TqlError, TqlTypeError
from rankscope.probe.depth import Depth, Key
from rankscope.probe.names import role_of
from rankscope.probe.rows import Numbers, Subject
from rankscope.tql import nodes, typed
from rankscope.tql.conditions import condition
from rankscope.tql.errors import NOWHERE
from rankscope.tql.evaluate import Evaluator
from rankscope.tql.evaluate_seen import nodes_in
from rankscope.tql.fields import Entity, Field, Origin
from rankscope.tql.mentions import fields_in
from rankscope.tql.naming import Names
from rankscope_proto.names import Role

_COUNTS = {"nonfinite_count", "nan_count", "inf_count"}
_NORMS = {"absmax", "l2", "grad_to_weight", "loss_scale"}
_OF_ROLES: Mapping[str, frozenset[Role]] = {
    "update_ratio": frozenset({Role.UPDATE}),
    "grad_to_weight": frozenset({Role.GRAD}),
    "loss_scale": frozenset({Role.GRAD, Role.GRAD_INCREMENT, Role.ACTIVATION_GRAD}),
}
"""Statistics that only rows of some roles have."""

RATIOS = ("update_ratio", "grad_to_weight")
"""Statistics that are a share of the weight's norm."""

_OF_NODE = {"name", "module", "layer_index", "layer_type", "role"}
"""Columns whose value is known of a node before any row of it is made."""

OF_MODULE = ("module.class", "module.type", "layer.path")
"""Fields that are looked up by the module's path."""

_OF_ROW = {"dtype", "shape", "placement", "numel_local", "numel_global", "phase", "step", "microstep", "time", "flags"}
_MADE = {*_OF_NODE, *_OF_ROW, "call", *Numbers._fields}
"""Columns that rows of a probe have."""

_FALSE_WHERE_MISSING = (typed.Compare, typed.OneOf, typed.Between, typed.FloatTest)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a condition may name beside the row itself.

    Attributes:
        header: What is the same for all rows of the process, by column or field name.
        modules: For each of `OF_MODULE`, its text by the module's path.
        is_on_host: Whether the model's tensors are on the CPU, where NaN and Inf are told apart for nothing.
    """

    header: Mapping[str, object]
    modules: Mapping[str, Mapping[str, str]]
    is_on_host: bool = True


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that can be judged.

    Attributes:
        evaluator: Asks it of rows.
        depths: How closely which tensors must be looked at for it.
        looked_up: Those of `OF_MODULE` that it names.
        has_ratios: Whether it names a share of the weight's norm, which must be known for it.
    """

    evaluator: Evaluator
    depths: Mapping[Key, Depth]
    looked_up: tuple[str, ...]
    has_ratios: bool = False


def predicate(text: str, subjects: Sequence[Subject], *, node: str, around: Surroundings) -> Predicate:
    """Check a condition for a node.

    Args:
        text: In TQL.
        subjects: The tensors of the node, in every role that they can have.
        node: The node as the breakpoint names it, for messages.
        around: What the condition may name beside the row.

    Raises:
        ConfigError: It is no condition on tensors, names what no row has, or cannot hold of any of the subjects.
    """
    try:
        return _predicate(text, subjects, node=node, around=around)
    except TqlError as error:
        raise ConfigError(f"the condition of a breakpoint on {node} cannot be judged: {error.render(text)}") from error


def _predicate(text: str, subjects: Sequence[Subject], *, node: str, around: Surroundings) -> Predicate:
    query = tql.parse(text)
    checked = tql.check(query)
    if checked.entity is not Entity.TENSOR:
        message = f"it is about {checked.entity}. rows, and a breakpoint is asked of tensors"
        raise TqlTypeError("not_tensors", message, hint="name a field of tensor., as in tensor.nan_count > 0")
    evaluator = Evaluator.of(checked)
    named = list(_fields(checked.source))
    _refuse_unknowable(query, named, around=around)
    left = _possible(query, list(_relevant(subjects, named)), node=node, around=around)
    depth = _depth(named, is_on_host=around.is_on_host)
    depths = {(subject.name, subject.role): depth for subject in left}
    names = {field.name for field in named}
    looked_up = tuple(name for name in OF_MODULE if name in names)
    return Predicate(evaluator, depths, looked_up, any(field.column[0] in RATIOS for field in named))


def _fields(tree: object) -> Iterator[Field]:
    return (node for node in nodes_in(tree) if isinstance(node, Field))


def _refuse_unknowable(query: nodes.Query, named: Iterable[Field], *, around: Surroundings) -> None:
    """Refuse what is worked out of many rows, or what no row of a probe has."""
    known = {*_MADE, *around.header, *OF_MODULE}
    for field in named:
        if not {*_asked_for(field)} <= known:
            what = "is captured at no level" if field.origin is Origin.ROW else "is only known when a run is read"
            places = [written.place for written in fields_in(query) if written.name == field.name]
            message, hint = f"{field.name} {what}", f"leave out {field.name}"
            raise TqlTypeError("not_captured", message, place=places[0] if places else NOWHERE, hint=hint)


def _asked_for(field: Field) -> tuple[str, ...]:
    """What a batch calls the columns that a field is read from."""
    return field.column if field.origin is Origin.ROW else (field.name,)


def _relevant(subjects: Sequence[Subject], named: Sequence[Field]) -> Iterator[Subject]:
    """The subjects without updates, where nothing speaks of them: to measure one, the weights are copied."""
    columns = {column for field in named for column in field.column}
    for subject in subjects:
        if role_of(subject.role) is not Role.UPDATE or columns & {"update_ratio", "role"}:
            yield subject


def _depth(named: Iterable[Field], *, is_on_host: bool) -> Depth:
    """How closely tensors must be looked at for every statistic that is named to be there."""
    asked = {column for field in named for column in field.column} & {*Numbers._fields}
    if asked <= _COUNTS and (is_on_host or asked <= {"nonfinite_count"}):
        return Depth.FINITE
    return Depth.NORMS if asked <= _COUNTS | _NORMS and (is_on_host or not asked & _COUNTS) else Depth.TABLE


def _possible(query: nodes.Query, subjects: list[Subject], *, node: str, around: Surroundings) -> list[Subject]:
    """The subjects that each part of the condition can hold of.

    Raises:
        TqlTypeError: One part can hold of none of them.
    """
    for part in _conjuncts(query.selection):
        left = _holding(part, subjects, around=around)
        if not left:
            roles = ", ".join(dict.fromkeys(role_of(subject.role) for subject in subjects))
            message = f"this never holds of {node}, whose tensors are {roles}"
            raise TqlTypeError("never", message, place=part.place, hint="name another node, or leave this out")
        subjects = left
    return subjects


def _conjuncts(written: Any) -> Iterator[Any]:
    """The parts of which all must be true."""
    if not isinstance(written, nodes.And):
        yield written
        return
    for operand in written.operands:
        yield from _conjuncts(operand)


def _holding(part: Any, subjects: list[Subject], *, around: Surroundings) -> list[Subject]:
    """The subjects that a part of the condition can hold of, as far as that is known before there are rows."""
    asked = condition(part, Names(Entity.TENSOR))
    for field in _fields(asked):
        roles = _OF_ROLES.get(field.column[0])
        if roles is not None and isinstance(asked, _FALSE_WHERE_MISSING) and "coalesce" not in _functions(asked):
            subjects = [subject for subject in subjects if role_of(subject.role) in roles]
    if not subjects or not _is_of_node(asked, around):
        return subjects
    held = Evaluator(asked, Entity.TENSOR).matches(_columns(subjects, around))
    names_tensors = any(field.column == ("name",) for field in _fields(asked))
    # Of an output, only the module is known: how many tensors it returns shows when it does.
    return [
        subject
        for subject, holds in zip(subjects, held, strict=True)
        if holds or (names_tensors and subject.name == subject.module)
    ]


def _functions(asked: object) -> set[str]:
    return {node.function for node in nodes_in(asked) if isinstance(node, typed.Apply)}


def _is_of_node(asked: object, around: Surroundings) -> bool:
    """Whether all that a part asks for is known before there are rows."""
    columns = {column for field in _fields(asked) for column in _asked_for(field)}
    looks_back = any(isinstance(node, typed.History) for node in nodes_in(asked))
    return not looks_back and columns <= {*_OF_NODE, *around.header, *OF_MODULE}


def _columns(subjects: Sequence[Subject], around: Surroundings) -> Mapping[str, object]:
    return {
        **around.header,
        **{name: [texts.get(subject.module) for subject in subjects] for name, texts in around.modules.items()},
        "name": [subject.name for subject in subjects],
        "module": [subject.module for subject in subjects],
        "layer_index": [subject.layer_index for subject in subjects],
        "layer_type": [subject.layer_type for subject in subjects],
        "role": [subject.role for subject in subjects],
    }
