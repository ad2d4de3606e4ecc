"""The agent's execution of TQL: a condition on live rows means what it means of stored ones.

A breakpoint is a condition asked of every batch as it is made. `Evaluator` answers without a
store: column by column, in numpy where the process has it, in plain Python with the same answers
where not. Of the past it keeps what `prev`, `delta`, `ema` and `robust_z` need, and no rows.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, cast

from rankscope.tql.errors import TqlUnsupported
from rankscope.tql.evaluate_columns import Batch, Rows
from rankscope.tql.evaluate_history import Memory, Past
from rankscope.tql.evaluate_plain import Plain
from rankscope.tql.fields import SECTION, Entity, Field, Origin
from rankscope.tql.typed import Condition, History, Output, Typed
from rankscope.tql.typed import Rows as Selection

__all__ = ["Batch", "Evaluator"]

_OF_OTHER_ROWS = {Origin.TRACE, Origin.TREE}


class Engine(NamedTuple):
    """What evaluates: numpy where the process has it.

    Attributes:
        holds: Of each row of a batch, whether a condition is true.
        memory: What remembers for a function that looks back; None: lists.
    """

    holds: Callable[[Plain, Condition], list[bool]]
    memory: Callable[[History], Memory | None]


def _in_lists(_node: History) -> None:
    return None


PLAIN = Engine(Plain.holds, _in_lists)
"""Plain Python."""


class Evaluator:
    """A condition on the rows of one entity, asked batch by batch.

    Batches come as the process made them, in TQL's total order; the rows within one may stand in
    any. Each history of the condition remembers up to 65,536 series (tensors, spans or scalars), of
    which `robust_z` takes 0.5 KB each with numpy and some 3 KB without. Not to be asked by two
    threads at once.
    """

    def __init__(self, condition: Condition, entity: Entity) -> None:
        """Prepare to evaluate.

        Args:
            condition: The condition, from a typed tree.
            entity: What the rows are.

        Raises:
            TqlUnsupported: It asks for what a live row does not have: other spans of its trace, a stage's output.
        """
        if entity not in SECTION:
            message = f"no process makes rows of {entity}: they are put together in the store"
            raise TqlUnsupported("not_live", message, hint="ask the store with a query")
        nodes = list(_nodes(condition))
        _refuse_others_rows(nodes)
        self._condition = condition
        self._entity = entity
        self._engine = _engine()
        histories = [node for node in nodes if isinstance(node, History)]
        self._pasts = {node: Past(node, entity, memory=self._engine.memory(node)) for node in histories}

    @classmethod
    def of(cls, query: Typed) -> Self:
        """The evaluator of a query that is one condition.

        Raises:
            TqlUnsupported: The query has stages, joins another entity or asks for relatives of a span.
        """
        source = query.source
        if query.stages or not isinstance(source, Selection) or source.companions:
            message = "a condition on live rows has no stages, no second entity and no relations between spans"
            raise TqlUnsupported("not_live", message, hint="write one predicate, or ask the store with a query")
        return cls(source.condition, query.entity)

    def matches(self, batch: Batch) -> list[bool]:
        """Of each row of a batch, whether the condition is true.

        Args:
            batch: Columns of the entity's table by name.

        Raises:
            ValueError: Its columns differ in length, or one is missing that says the same of all rows.
        """
        rows = Rows(self._entity, batch)
        if not rows.count:
            return []
        histories: dict[History, list[Any]] = {}
        plain = Plain(rows, histories)
        for node, past in self._pasts.items():
            histories[node] = past.take(rows, plain.values(node.value))
        return self._engine.holds(plain, self._condition)


def _engine() -> Engine:
    try:
        from rankscope.tql.evaluate_series import memory
        from rankscope.tql.evaluate_vector import holds
    except ImportError:
        return PLAIN
    return Engine(holds, memory)


def _nodes(node: object) -> Iterator[object]:
    """Everything in a condition, the parts before the whole."""
    if isinstance(node, tuple):
        for part in cast("tuple[object, ...]", node):
            yield from _nodes(part)
    elif dataclasses.is_dataclass(node):
        for field in () if isinstance(node, Field) else dataclasses.fields(node):
            yield from _nodes(getattr(node, field.name))
        yield node


def _refuse_others_rows(nodes: list[object]) -> None:
    for node in nodes:
        name = (
            node.name if isinstance(node, Output) or (isinstance(node, Field) and node.origin in _OF_OTHER_ROWS) else ""
        )
        if name:
            message = f"{name} is made of many rows: it is not known while they are made"
            raise TqlUnsupported("not_live", message, hint=f"leave out {name}, or ask the store with a query")
