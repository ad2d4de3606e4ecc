"""Values of a row that are looked up by its keys: of its run, launch, place, module, trace and children.

Each is a sub-select (`relations.py`) joined to the left of which a row may lack its counterpart; it is there only where
a query names one of its fields. Where the rows are traces or runs themselves, nothing is joined for their own fields.
"""

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope.tql.fields import Entity, Field, Origin, Type
from rankscope_query_api.tql_sql.expressions import at_key, call, column, has_key, number
from rankscope_query_api.tql_sql.relations import KEYS, relation
from rankscope_query_api.tql_sql.scope import Joined, Scope, Source

_OWN = {Entity.RUN: Origin.RUN, Entity.TRACE: Origin.TRACE}
_ROW_KEYS = {(Origin.MODULE, "path"): "module", (Origin.TREE, "parent_span_id"): "span_id"}
"""Keys that a row has under another name."""


def looked_up(field: Field, scope: Scope) -> Source:
    """How a field is read that the row does not hold itself."""
    if field.name == "span.child_count":
        children = call("ifNull", _column(Origin.TREE, column("children"), scope=scope), number(0))
        return Source(children, None, nullable=False, absent=None, is_float=False, table="UInt64")
    if field.name == "span.self_duration":
        return _self_duration(scope)
    value = _column(field.origin, column(field.column[0]), scope=scope)
    if field.type is Type.LIST:
        return Source(value, call("notEmpty", value.copy()), False, None, is_float=False, table=field.table)
    return _nullable(value, field.table)


def of_config(key: typed.Key, scope: Scope) -> Source:
    """A setting of the run: what the dotted key names as it stands, else the value at that path.

    A number is the number under it; every other value but null is a text, of a list or an object its JSON.
    """
    raw = _raw(key.key, scope)
    as_number = call("toFloat64OrNull", raw.copy())
    if key.type is Type.FLOAT:
        return _nullable(_column(Origin.RUN, as_number, scope=scope), "Float64", is_float=True)
    quote, null = (scope.parameters.bind(text, "String") for text in ('"', "null"))
    nothing = exp.In(this=raw.copy(), expressions=[exp.Literal.string(""), null])
    text = call("JSONExtractString", raw.copy())
    cases = [call("startsWith", raw.copy(), quote), text, nothing, exp.null()]
    if key.type is Type.STRING:
        cases += [call("isNotNull", as_number), exp.null()]
    return _nullable(_column(Origin.RUN, call("multiIf", *cases, raw), scope=scope), "String")


def of_mesh(key: typed.Key, scope: Scope) -> Source:
    """The coordinate of the row's process on an axis of the mesh."""
    name = scope.parameters.bind(key.key, "String")
    found = call("if", has_key("coordinates", name), at_key("coordinates", name), exp.null())
    return _nullable(_column(Origin.PLACE, found, scope=scope), "UInt32")


def _raw(key: str, scope: Scope) -> Expr:
    """The JSON under a key of the configuration, "" where there is none."""
    config = column("run_config")
    whole = call("JSONExtractRaw", config, scope.parameters.bind(key, "String"))
    if "." not in key:
        return whole
    path = [scope.parameters.bind(part, "String") for part in key.split(".")]
    is_found = call("notEmpty", whole.copy())
    return call("if", is_found, whole, call("JSONExtractRaw", config.copy(), *path))


def _self_duration(scope: Scope) -> Source:
    children = call("ifNull", _column(Origin.TREE, column("children_duration"), scope=scope), number(0))
    left = exp.Sub(this=call("toInt128", column("duration")), expression=children)
    value = call("toInt64", call("greatest", left, call("toInt128", number(0))))
    return Source(value, None, nullable=False, absent=None, is_float=False, table="Int64")


def _nullable(value: Expr, table: str, *, is_float: bool = False) -> Source:
    present = call("isNotNull", value.copy())
    return Source(value, present, nullable=True, absent=None, is_float=is_float, table=table)


def _column(origin: Origin, value: Expr, *, scope: Scope) -> Expr:
    """A value over the columns of a relation, as a row of the scope sees it; NULL (of a list: empty) where it has none.

    Strings are made plain, as windows and groups would otherwise keep how they are stored.
    """
    if _OWN.get(scope.entity) is origin:
        return value
    if origin not in scope.joined:
        keys = {name: column(_ROW_KEYS.get((origin, name), name)) for name in KEYS[origin]}
        grouped = relation(origin, project=scope.project, run=scope.run, parameters=scope.parameters)
        scope.joined[origin] = Joined(origin, grouped, keys)
    is_list = isinstance(value, exp.Column) and value.name == "run_tag"
    return scope.joined[origin].column(value if is_list else call("toNullable", value))
