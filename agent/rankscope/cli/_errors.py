"""Which exit status an error means, and the one JSON shape in which it is told."""

from typing import Any

from rankscope.errors import RankscopeError
from rankscope.tql.errors import TqlError
from rankscope.up import NothingKeptError, RefusedError, UpError

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
INTERRUPTED = 130

ErrorJson = dict[str, Any]
"""`code`, `message`, `hint`, `position` {line, column, length}, `expected`; the last three may be null."""


class WrongCallError(UpError):
    """The command was called in a way that cannot be meant."""

    code = "usage"


class NotThereError(UpError):
    """There is no such run, step or trace."""

    code = "not_found"


class QueryRefusedError(UpError):
    """The query service refused a query's text; carries the text, so that the place can be shown."""

    def __init__(self, refused: RefusedError, text: str) -> None:
        super().__init__(refused.message, hint=refused.hint)
        self.code = refused.code
        self.error = refused.error
        self.status = refused.status
        self.text = text


def status_of(error: RankscopeError) -> int:
    """The exit status that an error means."""
    if isinstance(error, (WrongCallError, TqlError)):
        return USAGE
    if isinstance(error, (NotThereError, NothingKeptError)):
        return NOT_FOUND
    if isinstance(error, RefusedError):
        return NOT_FOUND if error.status == 404 else FAILED
    if isinstance(error, QueryRefusedError):
        return {400: USAGE, 404: NOT_FOUND, 422: USAGE}.get(error.status, FAILED)
    return FAILED


def as_json(error: RankscopeError) -> ErrorJson:
    """The error in the shape every part of rankscope uses."""
    if isinstance(error, (RefusedError, QueryRefusedError)):
        return _filled(error.error)
    if isinstance(error, UpError):
        return _filled({"code": error.code, "message": error.message, "hint": error.hint or None})
    return _filled({"code": type(error).__name__, "message": str(error)})


def _filled(error: ErrorJson) -> ErrorJson:
    return {name: error.get(name) for name in ("code", "message", "hint", "position", "expected")}
