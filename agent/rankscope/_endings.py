"""What an exception says of the span, the operation or the task that it ends."""

from rankscope_proto.names import SpanStatus

OK, ERROR, INTERRUPTED, CANCELLED = (status.code for status in SpanStatus)

_CANCELLATIONS = frozenset({"CancelledError", "Cancelled"})
"""Classes beside `Exception` that tell a task to stop: asyncio's and trio's, which are not imported for it."""


def status_of(error_class: type[BaseException], error: BaseException | None) -> int:
    """The code of the status: what goes through a span that is no `Exception` does not mean that it failed."""
    if issubclass(error_class, Exception):
        return ERROR
    if error_class.__name__ in _CANCELLATIONS:
        return CANCELLED
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return OK
    return INTERRUPTED
