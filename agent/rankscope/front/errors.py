"""What a request can be refused for, each with its HTTP status and in one JSON shape.

    FrontError (a RankscopeError)
    ├── InvalidRequestError  400  the request, or one event of it, cannot be meant; says which field of which event
    ├── UnauthenticatedError 401  keys are on, and no valid one was sent
    ├── ForbiddenError       403  the key's scope or project does not cover it, or another site's page asked
    ├── UnknownRouteError    404  there is no such route
    ├── WrongMethodError     405  the route is there, for another method
    ├── ConflictError        409  the idempotency key belongs to another body
    ├── TooLargeError        413  the body is beyond the limit
    ├── MisdirectedError     421  the Host header names something else than this front
    ├── BusyError            429  as many requests are under way as are read at a time
    └── UnavailableError     503  it cannot be kept now: the disk is full, or too much waits for the store

429 and 503 carry `Retry-After`: the same request, with the same key, may be sent again.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar

from rankscope.errors import RankscopeError


class FrontError(RankscopeError):
    """Root of what the front answers instead of 200.

    Args:
        message: What happened, and to which value.
        hint: What to do now.
        expected: What would have been accepted there.
    """

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    code: ClassVar[str] = "internal"
    headers: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(self, message: str, *, hint: str | None = None, expected: Sequence[str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.expected = expected

    def as_json(self) -> dict[str, object]:
        """The body of the answer."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "position": None,
            "expected": None if self.expected is None else list(self.expected),
        }


class InvalidRequestError(FrontError):
    """The request, or one event of it, cannot be meant; nothing of it was kept."""

    status = HTTPStatus.BAD_REQUEST
    code = "invalid_request"


class UnauthenticatedError(FrontError):
    """Keys are on, and no valid one was sent."""

    status = HTTPStatus.UNAUTHORIZED
    code = "unauthenticated"
    headers = (("WWW-Authenticate", 'Bearer realm="rankscope"'),)


class ForbiddenError(FrontError):
    """The key may not do this here, or a page of another site asked."""

    status = HTTPStatus.FORBIDDEN
    code = "forbidden"


class UnknownRouteError(FrontError):
    """There is no such route."""

    status = HTTPStatus.NOT_FOUND
    code = "not_found"


class WrongMethodError(FrontError):
    """The route is there, for another method."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    code = "method_not_allowed"


class ConflictError(FrontError):
    """The idempotency key was used for another body."""

    status = HTTPStatus.CONFLICT
    code = "idempotency_conflict"


class TooLargeError(FrontError):
    """The body is beyond the limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "too_large"


class MisdirectedError(FrontError):
    """The Host header names something else than this front."""

    status = HTTPStatus.MISDIRECTED_REQUEST
    code = "misdirected_request"


class BusyError(FrontError):
    """As many requests are under way as are read at a time."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "rate_limit_exceeded"
    headers = (("Retry-After", "1"),)


class UnavailableError(FrontError):
    """It cannot be kept now; the same request may be kept later."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "unavailable"
    headers = (("Retry-After", "5"),)
