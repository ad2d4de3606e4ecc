"""Names that stand for nothing: refused with the name that was probably meant, or with what there is."""

from rankscope.tql import nodes
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.fields import FIELDS, KEYED, SCOPES
from rankscope.tql.formatting import field_text
from rankscope.tql.habits import WORDS
from rankscope.tql.nearest import nearest, nearest_scope
from rankscope.tql.words import ACROSS, AGGREGATES

_KEY_EXAMPLES = {"attr": "device", "metric": "reward", "run.config": "lr", "mesh": "dp", "hit.seen": '"tensor.l2"'}


def key_of(field: nodes.FieldRef) -> tuple[str, str] | None:
    """The scope with free keys and the key that a name stands for; None if it is a field by itself."""
    inner, dot, key = field.key.partition(".")
    if dot and key and f"{field.scope}.{inner}" in KEYED:
        return f"{field.scope}.{inner}", key
    return (field.scope, field.key) if field.scope in KEYED else None


def refuse_unknown(field: nodes.FieldRef) -> None:
    """Raise unless the name is a field of some entity, or a free key.

    Raises:
        TqlTypeError: There is no such field; the nearest one is the hint.
    """
    if field.name in FIELDS or key_of(field) is not None:
        return
    if field.scope and field.scope not in SCOPES:
        known, message = tuple(sorted(SCOPES)), f"{field.scope} is no scope"
        raise TqlTypeError("unknown_scope", message, place=field.place, expected=known, hint=_scope_hint(field))
    siblings = tuple(name for name in FIELDS if name.rpartition(".")[0] == field.scope)
    near = field.key if field.key in FIELDS else nearest(field.name)
    raise TqlTypeError(
        "unknown_field",
        f"there is no field {field_text(field)}",
        place=field.place,
        expected=() if near else siblings,
        hint=_hint(field, near),
    )


def _hint(field: nodes.FieldRef, near: str) -> str:
    if field.name in KEYED:
        return f"write a key of it, as in {field.name}.{_KEY_EXAMPLES[field.name]}"
    if field.name in ACROSS:
        return f"it is there behind the stage that makes it: | across rank: {field.name}(..)"
    if field.name in AGGREGATES:
        return f"it is there behind the stage that makes it: | {field.name}(..)"
    if asked := WORDS.get(field.name.lower()):
        return asked
    if near:
        return f"did you mean {near}?"
    return "name one that there is" if field.scope else f'a text stands in quotes: "{field.name}"'


def _scope_hint(field: nodes.FieldRef) -> str:
    """What to write for a name with a wrong scope: a field only if what follows the dot is like one of its own."""
    scope = nearest_scope(field.scope)
    near = field.key if field.key in FIELDS else nearest(f"{scope}.{field.key}" if scope else field.name)
    if near and (not scope or near.startswith(f"{scope}.") or near == field.key):
        return f"did you mean {near}?"
    return f"did you mean the scope {scope}?" if scope else "write a scope before the dot, as in tensor.l2"
