"""Comparisons across ranks, layers or mesh coordinates: over what, of what, and what they give."""

from collections.abc import Callable

from rankscope.tql import nodes
from rankscope.tql.aggregates import Reduction, anything, argument, averaged, positive, result_of
from rankscope.tql.aggregates import unknown_reduction as _unknown
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.fields import SECTION, Entity, Type
from rankscope.tql.formatting import field_text
from rankscope.tql.functions import MEASURES, check_count
from rankscope.tql.naming import Names
from rankscope.tql.nearest import nearest_of
from rankscope.tql.words import ACROSS

_COLUMN = {"layer": "layer.index"}
_USUAL_Z = 3.0
_AXES = ("rank", "layer", "mesh.<axis>")


def axis(written: nodes.FieldRef, names: Names) -> str:
    """What is compared: `rank`, `layer` or `mesh.<axis>`.

    Raises:
        TqlTypeError: It is none of these, or the rows have none.
    """
    name = written.name
    if name not in {"rank", "layer"} and written.scope != "mesh":
        near = nearest_of(name.partition(".")[0], ("rank", "layer", "mesh.dp"))
        hint = f"did you mean {near}?" if near else "write across rank"
        message = f"rows are not compared across {field_text(written)}"
        raise TqlTypeError("unknown_axis", message, place=written.place, expected=_AXES, hint=hint)
    has_axis = names.entity is Entity.TENSOR if name == "layer" else names.entity in SECTION
    if names.is_of_rows and not has_axis:
        message = f"{names.entity} rows have no {field_text(written)}"
        raise TqlTypeError("foreign_field", message, place=written.place, hint="ask it of rows that have one")
    if not names.is_of_rows and column_of(name) not in names.shown:
        message = f"{column_of(name)} is no column behind the stages before"
        hint = f"group by {column_of(name)} there"
        raise TqlTypeError("unknown_field", message, place=written.place, expected=names.shown, hint=hint)
    return name


def column_of(axis: str) -> str:
    """The column that tells the ranks, layers or coordinates apart."""
    return _COLUMN.get(axis, axis)


def comparison(call: nodes.Call, names: Names, *, axis: str) -> Reduction:
    """One comparison over an axis, typed.

    Raises:
        TqlTypeError: There is no such comparison, not over this axis, or its values do not fit.
        TqlUnsupported: It names what no row can have.
    """
    if call.function not in _DECLARED:
        raise _unknown(call, ACROSS, what="comparison")
    signature, least, most, wanted, make = _DECLARED[call.function]
    check_count(call, least, most=most, signature=signature)
    if wanted not in {"", axis}:
        message = f"{call.function}() is not answered across {axis}"
        hint = f"write across {wanted}: {signature}"
        raise TqlTypeError("wrong_axis", message, place=call.place, expected=(f"across {wanted}",), hint=hint)
    return make(call, names)


def _float(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    return Reduction(call, (value,), result_of(call, Type.FLOAT, names))


def _skew(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of={*MEASURES, Type.TIME}, wanted="a number, a duration or a time")
    result = Type.DURATION if value.type is Type.TIME else value.type
    return Reduction(call, (value,), result_of(call, result, names))


def _median(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    return Reduction(call, (value,), result_of(call, averaged(value.type), names))


def _slowest(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of={*MEASURES, Type.TIME}, wanted="a number, a duration or a time")
    return Reduction(call, (value,), result_of(call, Type.INTEGER, names))


def _agree(call: nodes.Call, names: Names) -> Reduction:
    return Reduction(call, (anything(call, names),), result_of(call, Type.BOOL, names))


def _outliers(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    limit = positive(call, 1, signature="outliers(x, 3)") if len(call.arguments) > 1 else _USUAL_Z
    return Reduction(call, (value,), result_of(call, Type.LIST, names), limit)


def _count_ranks(call: nodes.Call, names: Names) -> Reduction:
    return Reduction(call, (), result_of(call, Type.INTEGER, names))


def _missing_ranks(call: nodes.Call, names: Names) -> Reduction:
    names.refuse_made("missing_ranks()", call.place, hint="write it before that stage")
    return Reduction(call, (), result_of(call, Type.LIST, names))


Make = Callable[[nodes.Call, Names], Reduction]
"""Types a call whose number of arguments is right."""

_DECLARED: dict[str, tuple[str, int, int, str, Make]] = {
    "spread": ("spread(x)", 1, 1, "", _float),
    "skew": ("skew(x)", 1, 1, "", _skew),
    "zscore": ("zscore(x)", 1, 1, "", _float),
    "outliers": ("outliers(x, 3)", 1, 2, "", _outliers),
    "slowest": ("slowest(x)", 1, 1, "", _slowest),
    "agree": ("agree(x)", 1, 1, "", _agree),
    "count_ranks": ("count_ranks()", 0, 0, "rank", _count_ranks),
    "missing_ranks": ("missing_ranks()", 0, 0, "rank", _missing_ranks),
    "slope": ("slope(x)", 1, 1, "layer", _float),
    "median": ("median(x)", 1, 1, "", _median),
}
"""Signature, least and most values, the one axis it is over ("": any), and what types it."""
