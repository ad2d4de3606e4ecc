"""Foreign errors are mapped, and every error of ours has a status that says permanent or temporary."""

import grpc
import pytest
import redis.exceptions
from pydantic import SecretStr

from rankscope_ingest import errors
from rankscope_ingest.connection import Connection
from rankscope_ingest.statuses import retry_details, status_of

OURS: list[errors.IngestError] = [
    errors.Refused("field", "reason"),
    errors.Busy("full", retry_after_ms=1_500),
    errors.BrokerUnavailable("gone"),
    errors.BrokerUnfit("evicts"),
    errors.Idle("silent"),
    errors.Unauthenticated("no key"),
    errors.Denied("another project"),
]
LASTING = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
def test_a_status_lasts_or_carries_a_delay(error: errors.IngestError) -> None:
    code, retry_after_ms = status_of(error)

    assert (code in LASTING) == (retry_after_ms is None)


def test_an_error_that_no_sender_can_mend_is_internal() -> None:
    assert status_of(errors.StoreUnfit("x"))[0] is grpc.StatusCode.INTERNAL


def test_every_error_class_is_in_the_picture() -> None:
    classes = [name for name, value in vars(errors).items() if isinstance(value, type)]

    assert not [name for name in classes if name not in (errors.__doc__ or "")]


def test_retry_info_is_what_the_sdk_reads() -> None:
    from rankscope._retry_info import retry_after_s

    assert retry_after_s(retry_details(grpc.StatusCode.UNAVAILABLE, "gone", retry_after_ms=1_500)) == 1.5


def all_errors(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(error for child in root.__subclasses__() for error in all_errors(child))]


class Failing:
    """A driver that raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def execute_command(self, *args: object) -> object:
        raise self._error


@pytest.mark.parametrize("error", all_errors(redis.exceptions.RedisError), ids=lambda error: error.__name__)
async def test_every_error_of_the_driver_becomes_ours(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(SecretStr("redis://127.0.0.1:1"))
    raised = error.__new__(error)
    monkeypatch.setattr(connection, "_client", Failing(raised))

    with pytest.raises((errors.BrokerError, errors.Busy), match=r"127\.0\.0\.1"):
        await connection.command("PING")
