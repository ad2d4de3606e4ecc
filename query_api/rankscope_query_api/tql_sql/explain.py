"""What a query reads besides its own rows, in sentences: from the typed tree, so that parts of parts are among it."""

import dataclasses
from collections.abc import Iterator, Mapping

from rankscope.tql.fields import KEYED, Entity, Field, Origin
from rankscope.tql.typed import Companion, History, Key, Related, Relation, Traces, Typed
from rankscope_query_api.tql_sql.structure import MOST_LEVELS

_LOOKED_UP: Mapping[Origin, str] = {
    Origin.RUN: "run: the latest that the run's processes said of it, by run",
    Origin.LAUNCH: "launch: the ordinal of the launch in its run, by run and launch",
    Origin.PLACE: "place: the coordinates of the process in the mesh, by run, launch and rank",
    Origin.MODULE: "module: class, type and layer of the module, by run and path",
    Origin.TRACE: "trace: sums over all spans of the trace, by run and trace",
    Origin.MATCH: "match: the arrivals of all ranks at the collective, on one clock, by run and row",
    Origin.TREE: "tree: count and durations of the children, by run, trace and span",
}
_OF_SPANS = "; of spans, those of step traces"
_RELATED: Mapping[str, str] = {
    ">": "children of spans",
    ">>": f"descendants of spans, up to {MOST_LEVELS} levels",
    "<": "parents of spans",
    "<<": f"ancestors of spans, up to {MOST_LEVELS} levels",
    "~": "siblings of spans",
    "!>": "no children of spans",
    "!>>": f"no descendants of spans, up to {MOST_LEVELS} levels",
}


def joins_of(query: Typed) -> tuple[str, ...]:
    """What is joined to the rows, each sentence once, in the order of the query."""
    return tuple(dict.fromkeys(sentence for node in walked(query) for sentence in _sentences(node, query.entity)))


def walked(node: object) -> Iterator[object]:
    """A node and everything under it; a typed query is at most 32 levels deep."""
    if isinstance(node, tuple):
        for item in node:  # pyright: ignore[reportUnknownVariableType] -- a tuple of nodes
            yield from walked(item)  # pyright: ignore[reportUnknownArgumentType] -- any node
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        yield node
        for attribute in dataclasses.fields(node):
            yield from walked(getattr(node, attribute.name))


def _sentences(node: object, entity: Entity) -> Iterator[str]:
    match node:
        case Companion():
            beside = (
                f"{node.entity}: a row counts where a {node.entity} row of the same run, launch, rank and step fulfils"
            )
            yield f"{beside} its part{_OF_SPANS if Entity.SPAN in {entity, node.entity} else ''}"
        case Related():
            yield "related: spans of one run and trace, by span and parent"
        case Relation():
            yield f"related: {_RELATED[node.operator]}"
        case Traces():
            yield "traces: those with spans that fulfil each part, by run and trace"
        case History():
            yield "history: all stored rows of the series, whatever the query keeps"
        case Field() if node.origin is not Origin.ROW and node.origin.value != entity.value:
            yield _LOOKED_UP[node.origin]
        case Key() if KEYED[node.scope][1] is not Origin.ROW and KEYED[node.scope][1].value != entity.value:
            yield _LOOKED_UP[KEYED[node.scope][1]]
        case _:
            return
