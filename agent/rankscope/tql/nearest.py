"""The known name most like a wrong one: an unknown field is answered with what was probably meant."""

import difflib
from collections.abc import Iterable

from rankscope.tql.fields import FIELDS, SCOPES


def nearest(name: str) -> str:
    """The known name most like a wrong one, "" if none is near.

    A scope that is right is believed: only then its fields are compared by what follows the dot.
    """
    scope, _, key = name.lower().rpartition(".")
    of_scope = {field.rpartition(".")[2]: field for field in FIELDS if field.rpartition(".")[0] == scope}
    if near := difflib.get_close_matches(key, of_scope, n=1, cutoff=0.7):
        return of_scope[near[0]]
    if holding := [field for other, field in of_scope.items() if key in other.split("_")]:
        return holding[0]
    same_key = [field for field in FIELDS if field.rpartition(".")[2] == key]
    near = difflib.get_close_matches(name.lower(), FIELDS, n=1, cutoff=0.8) if scope not in SCOPES else []
    return (same_key or near or [""])[0]


def nearest_scope(scope: str) -> str:
    """The scope most like a wrong one, "" if none is near."""
    return (difflib.get_close_matches(scope, sorted(SCOPES), n=1, cutoff=0.6) or [""])[0]


def nearest_of(word: str, known: Iterable[str]) -> str:
    """The word of a closed set most like a wrong one, "" if none is near."""
    return (difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5) or [""])[0]
