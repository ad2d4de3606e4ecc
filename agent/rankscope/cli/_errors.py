"""Which exit status an error means, and the one JSON shape in which it is told."""

import re
from typing import Any

from rankscope.client import NoTraceError, QueryRefusedError
from rankscope.errors import ConfigError, RankscopeError
from rankscope.tql.errors import TqlError
from rankscope.up import BadUrlError, NothingKeptError, RefusedError, UpError

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
FAILED_IF = 4
OVER_GAP = 5
INTERRUPTED = 130

ErrorJson = dict[str, Any]
"""`code`, `message`, `hint`, `position` {line, column, length}, `expected`; the last three may be null."""


STATUS_OF_HTTP = {400: USAGE, 404: NOT_FOUND, 422: USAGE}
"""What a query service's answers mean; any other is a fault."""


class WrongCallError(UpError):
    """The command was called in a way that cannot be meant."""

    code = "usage"


class NotThereError(UpError):
    """There is no such run, step or trace."""

    code = "not_found"


class OutputLostError(UpError):
    """The answer has nowhere to go: stdout is closed, or on a disk that is full."""

    code = "output_lost"


def status_of(error: RankscopeError) -> int:
    """The exit status that an error means."""
    if isinstance(error, (WrongCallError, BadUrlError, TqlError, ConfigError)):
        return USAGE
    if isinstance(error, (NotThereError, NothingKeptError, NoTraceError)):
        return NOT_FOUND
    if isinstance(error, (RefusedError, QueryRefusedError)):
        return STATUS_OF_HTTP.get(error.status, FAILED)
    return FAILED


def hint_of(error: RankscopeError) -> str:
    """What to do now, where the error says it apart from its message; else ""."""
    return str(getattr(error, "hint", None) or "")


def as_json(error: RankscopeError) -> ErrorJson:
    """The error in the shape every part of rankscope uses."""
    if isinstance(error, (RefusedError, QueryRefusedError)):
        return _filled(error.error)
    return _filled({"code": _code_of(error), "message": str(error), "hint": hint_of(error) or None})


def _code_of(error: RankscopeError) -> str:
    """The error's own word; where its class has none, the class's name as a word."""
    name = type(error).__name__.removesuffix("Error")
    return str(getattr(error, "code", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _filled(error: ErrorJson) -> ErrorJson:
    return {name: error.get(name) for name in ("code", "message", "hint", "position", "expected")}
