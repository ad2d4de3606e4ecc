"""The agent's execution of TQL: a condition on live rows means what it means of stored ones.

A breakpoint is a condition asked of every batch as it is made. `Evaluator` answers without a
store: column by column, in numpy where the process has it, in plain Python with the same answers
where not. Of the past it keeps what `prev`, `delta`, `ema` and `robust_z` need, and no rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from rankscope.tql.errors import TqlUnsupported
from rankscope.tql.evaluate_columns import Batch, LiveRows
from rankscope.tql.evaluate_history import Memory, Past
from rankscope.tql.evaluate_plain import Plain
from rankscope.tql.evaluate_seen import nodes_in, seen, subjects
from rankscope.tql.fields import SECTION, Entity, Field, Origin
from rankscope.tql.typed import Condition, History, Output, Rows, Typed

__all__ = ["Batch", "Evaluator", "LiveRows"]

_OF_OTHER_ROWS = {Origin.TRACE, Origin.TREE, Origin.MATCH}


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

FEW_ROWS = 16
"""Rows of a batch up to which plain Python is the faster: a call of numpy takes as long as several rows."""


class Evaluator:
    """A condition on the rows of one entity, asked batch by batch.

    Batches come as the process made them, in TQL's total order; the rows within one may stand in
    any. Many conditions that are asked of the same batch share a `LiveRows` of it, which reads each
    column once: then one costs a few µs, of 300 rows or, by `LiveRows.at`, of those of one node.

    Each history of the condition remembers up to 65,536 series (tensors, spans or scalars), of
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
        nodes = list(nodes_in(condition))
        _refuse_others_rows(nodes)
        self._condition = condition
        self._entity = entity
        self._engine = _engine()
        self._subjects = subjects(condition)
        self._histories = [node for node in nodes if isinstance(node, History)]
        self._pasts: dict[History, Past] = {}
        self._last: Plain | None = None

    @classmethod
    def of(cls, query: Typed) -> Self:
        """The evaluator of a query that is one condition.

        Raises:
            TqlUnsupported: The query has stages, joins another entity or asks for relatives of a span.
        """
        source = query.source
        if query.stages or not isinstance(source, Rows) or source.companions:
            message = "a condition on live rows has no stages, no second entity and no relations between spans"
            raise TqlUnsupported("not_live", message, hint="write one predicate, or ask the store with a query")
        return cls(source.condition, query.entity)

    def matches(self, batch: Batch | LiveRows) -> list[bool]:
        """Of each row of a batch, whether the condition is true.

        Args:
            batch: Columns of the entity's table by name, or what other conditions were asked of, too.

        Raises:
            ValueError: Its columns differ in length, or one is missing that says the same of all rows.
        """
        rows = batch if isinstance(batch, LiveRows) else LiveRows(self._entity, batch)
        if not rows.count:
            self._last = None
            return []
        engine = PLAIN if rows.count <= FEW_ROWS else self._engine
        self._last = plain = Plain(rows, {})
        if self._histories:
            self._look_back(plain, engine)
        return engine.holds(plain, self._condition)

    def seen(self, place: int) -> dict[str, Any]:
        """What the condition saw in a row of the batch that it was last asked of.

        Args:
            place: The row's place in that, 0-based.

        Returns:
            The fields, keys and histories that it names, as a query writes them, with their values, None for a missing
            one: durations in ns, sizes in bytes, times in ns since the epoch, words as texts, ids in hexadecimal.

        Raises:
            IndexError: There is no such row, or no batch yet.
        """
        if self._last is None:
            raise IndexError(f"there is no row {place}: the condition was asked of none")
        return seen(self._last, self._subjects, place=place)

    def _look_back(self, plain: Plain, engine: Engine) -> None:
        """Take the values that histories look back on; equal ones share what they remember."""
        given: dict[History, list[Any]] = {}
        for node in self._histories:
            if node not in given:
                past = self._pasts.get(node)
                if past is None:
                    # What suits the first batch suits those to come: a node's rows are few, a step's are many.
                    past = self._pasts[node] = Past(node, self._entity, memory=engine.memory(node))
                given[node] = past.take(plain.rows, plain.values(node.value))
            plain.histories[id(node)] = given[node]


def _engine() -> Engine:
    try:
        from rankscope.tql.evaluate_series import memory
        from rankscope.tql.evaluate_vector import holds
    except ImportError:
        return PLAIN
    return Engine(holds, memory)


def _refuse_others_rows(nodes: list[object]) -> None:
    for node in nodes:
        name = (
            node.name if isinstance(node, Output) or (isinstance(node, Field) and node.origin in _OF_OTHER_ROWS) else ""
        )
        if name:
            message = f"{name} is made of many rows: it is not known while they are made"
            raise TqlUnsupported("not_live", message, hint=f"leave out {name}, or ask the store with a query")
