"""What can go wrong while answering, and the one JSON shape in which it is told.

    QueryError (a RankscopeError)
    ├── SettingsError       at the start: a setting is not usable
    ├── ListenError         at the start: the address is taken, or is not this machine's
    ├── ForeignRequestError 403, 421  another site's page asked, or a name that is not this service's was used
    ├── UnauthenticatedError 401  keys are on, and no valid one was sent
    ├── ForbiddenError 403       the key's scopes do not cover the route
    ├── ConflictError 409        what is asked for stands against what is the case, such as deleting a run that runs
    ├── TooLargeError       413  the body is beyond the limit
    ├── InvalidRequestError 422  a parameter or the body cannot be meant
    ├── InvalidQueryError 400    the text of a query is wrong; the position says where
    ├── NotFoundError 404        no such run, step, trace or route; an unknown project reads the same
    ├── LimitExceededError 422   the query would cost more than it may
    ├── RefusedStatementError 500  the store refused a statement of this service; one of a user's is told as 400
    └── StoreUnavailableError 503

The shape: `{"code", "message", "hint", "position", "expected"}`; the last three may be null.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import ClassVar

from rankscope.errors import RankscopeError


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a query's text something is wrong: 1-based line and column, length in characters."""

    line: int
    column: int
    length: int


def nearest_hint(name: str, known: Iterable[str], *, otherwise: str, likeness: float = 0.6) -> str:
    """The hint that names the known name most like a wrong one, whatever its case.

    Args:
        name: The wrong one.
        known: Those that exist.
        otherwise: The hint where none is near.
        likeness: How near it must be, 0 to 1.
    """
    by_lower_case = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=likeness)
    return f"the nearest known one is {by_lower_case[near[0]]!r}" if near else otherwise


class QueryError(RankscopeError):
    """Root of the query service's errors.

    Args:
        message: What happened, and to which value.
        hint: What to do now.
        position: Where in the query's text.
        expected: What would have been accepted there.
        code: A word for programs, if it differs from the class's.
    """

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    default_code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        position: Position | None = None,
        expected: Sequence[str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position
        self.expected = expected
        self.code = code or self.default_code

    def __str__(self) -> str:
        """What happened and what to do now, in one line: logs and the embedded server show no more."""
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_json(self) -> "dict[str, str | dict[str, int] | list[str] | None]":
        """The body of the answer."""
        position = self.position
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "position": position and {"line": position.line, "column": position.column, "length": position.length},
            "expected": None if self.expected is None else list(self.expected),
        }


class SettingsError(QueryError):
    """A setting is not usable."""

    default_code = "settings"


class ListenError(QueryError):
    """The address cannot be listened on."""

    default_code = "cannot_listen"


class ForeignRequestError(QueryError):
    """A page of another site asked, or the service was called by a name that is not its own."""

    status = HTTPStatus.FORBIDDEN
    default_code = "foreign_request"


class MisdirectedError(ForeignRequestError):
    """The Host header names something else than this service."""

    status = HTTPStatus.MISDIRECTED_REQUEST
    default_code = "misdirected_request"


class UnauthenticatedError(QueryError):
    """Keys are on, and no valid one was sent."""

    status = HTTPStatus.UNAUTHORIZED
    default_code = "unauthenticated"


class ForbiddenError(QueryError):
    """The key is valid, and may not do this."""

    status = HTTPStatus.FORBIDDEN
    default_code = "forbidden"


class ConflictError(QueryError):
    """What is asked for stands against what is the case now."""

    status = HTTPStatus.CONFLICT
    default_code = "conflict"


class TooLargeError(QueryError):
    """The body of a request is beyond the limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class InvalidRequestError(QueryError):
    """A parameter or the body cannot be meant."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    default_code = "invalid_request"


class InvalidQueryError(QueryError):
    """The text of a query is wrong; the position says where."""

    status = HTTPStatus.BAD_REQUEST
    default_code = "invalid_query"


class NotFoundError(QueryError):
    """There is no such thing in this project."""

    status = HTTPStatus.NOT_FOUND
    default_code = "not_found"


class LimitExceededError(QueryError):
    """The query would cost more than it may."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    default_code = "limit_exceeded"


class BusyError(QueryError):
    """Too many queries are asked at a time; the same one may be asked again."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    default_code = "too_many_queries"
    retry_after_s: ClassVar[int] = 1


class RefusedStatementError(QueryError):
    """The store refused a statement.

    Args:
        said: What it said of it.
    """

    def __init__(self, said: str) -> None:
        super().__init__(f"the store refused a query of this service: {said}", hint="please report it")
        self.said = said


class StoreUnavailableError(QueryError):
    """The store did not answer, or is not as this service needs it."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "store_unavailable"


def unknown(
    what: str, name: str, *, project: str, known: Iterable[str], lister: str = "GET /api/v1/runs"
) -> NotFoundError:
    """The error for a name that is not in a project, with the nearest known one in its hint.

    A project that does not exist reads exactly like one without this name: the answer gives no project away.
    """
    hint = nearest_hint(name, known, otherwise=f"{lister} lists what there is", likeness=0.4)
    return NotFoundError(f"no {what} {name!r} in project {project!r}", hint=hint, code=f"unknown_{what}")
