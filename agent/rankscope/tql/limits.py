"""What a query of an allowed length may still not have too many of: each of them is work for the whole store.

A structural operator is a walk through the trees of all traces; a function of a series sorts the rows of every series:
40 different `robust_z` took 7 s over 1,000 rows.
"""

from collections.abc import Sequence

from rankscope.tql import nodes
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.formatting import format_value
from rankscope.tql.history import HISTORIES
from rankscope.tql.mentions import calls_in, deepest_operators, operators_in
from rankscope.tql.words import MAX_HISTORIES, MAX_OPERATORS, MAX_OPERATORS_DEEP, MAX_RELATIONS, MAX_STAGES


def refuse_too_much(query: nodes.Query) -> None:
    """Raise where a query has more of something than is answered.

    Raises:
        TqlTypeError: It has too many stages, structural or arithmetic operators, or different functions of a series.
    """
    hint = "leave out what the answer does not need"
    _refuse("too_many_stages", query.stages, what="stages", most=MAX_STAGES, hint=hint)
    if isinstance(query.selection, nodes.Structure):
        relations, hint = query.selection.relations, "leave out what lies in between, or ask in two queries"
        _refuse("too_many_relations", relations, what="structural operators", most=MAX_RELATIONS, hint=hint)
    hint = "leave out what the answer does not need, or compute it from the answer"
    _refuse("too_many_operators", [*operators_in(query)], what="arithmetic operators", most=MAX_OPERATORS, hint=hint)
    what = "arithmetic operators inside one another"
    _refuse("too_many_operators", deepest_operators(query), what=what, most=MAX_OPERATORS_DEEP, hint=hint)
    different: dict[str, nodes.Call] = {}
    for call in calls_in(query):
        if call.function in HISTORIES:
            different.setdefault(format_value(call), call)
    hint = "ask with fewer different ones: one that stands twice counts once"
    what = "different functions of a series"
    _refuse("too_many_histories", [*different.values()], what=what, most=MAX_HISTORIES, hint=hint)


def _refuse(code: str, found: Sequence[nodes.Node], *, what: str, most: int, hint: str) -> None:
    if len(found) > most:
        message = f"the query has {len(found)} {what}, the limit is {most}"
        raise TqlTypeError(code, message, place=found[most].place, hint=hint)
