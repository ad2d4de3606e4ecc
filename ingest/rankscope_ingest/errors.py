"""Every error of the ingest tiers, each with its remedy in the text.

    IngestError (a RankscopeError: the command line renders it)
    ├── ConfigError        a setting cannot be used (also the SDK's ConfigError: called wrongly)
    ├── CannotStart        the settings are right, and the process cannot start all the same
    ├── Refused            one batch, for ever; names the field
    ├── Busy               one batch, for now; says how long
    ├── NoSuchLetter       of the batches that could not be stored
    ├── Idle               a stream in which nothing comes; another one may be opened at any time
    ├── Unauthenticated    a call without a valid key
    ├── Denied             a call whose key may not do that, or not there
    ├── BrokerError
    │   ├── BrokerUnavailable   did not answer, or not in time
    │   ├── LeaseLost           shards went to another writer
    │   └── BrokerUnfit         answers, but would lose or refuse data
    └── StoreError
        ├── StoreUncertain      an insert may or may not have happened: the same bytes again
        ├── StoreRefused        it cannot parse what it was given; nothing happened
        └── StoreUnfit          answers, but the tables or the version are not ours

Foreign exceptions are mapped at the rim: redis in `buffer.py`, clickhouse-connect in
`clickhouse.py`, and these to gRPC statuses in `statuses.py`.
"""

# ruff: noqa: N818 # errors are named for what happened, as in the SDK

from typing import TYPE_CHECKING

from rankscope import errors as sdk

if TYPE_CHECKING:
    from collections.abc import Sequence


class IngestError(sdk.RankscopeError):
    """Root of what the ingest tiers raise on purpose.

    Attributes:
        code: One word for programs, the same in every release.
    """

    code = "ingest"


class ConfigError(IngestError, sdk.ConfigError):
    """A setting cannot be used; the text names it and says what to do."""

    code = "config"


class CannotStart(IngestError):
    """Something outside the settings is in the way: a port or a folder that another process holds."""

    code = "cannot_start"


class Refused(IngestError):
    """A batch that can never be accepted.

    Attributes:
        field: Dotted name of the first field at fault, as `spans.name` or `header.rank`.
        reason: What is wrong with it.
    """

    code = "refused"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Busy(IngestError):
    """A batch that cannot be accepted now.

    Attributes:
        retry_after_ms: Milliseconds to wait before the same batch is sent again.
    """

    code = "busy"

    def __init__(self, reason: str, *, retry_after_ms: int) -> None:
        super().__init__(reason)
        self.retry_after_ms = retry_after_ms


class Idle(IngestError):
    """A stream in which nothing came for long."""

    code = "idle"


class Unauthenticated(IngestError):
    """A call without a key, or with one that is unknown, expired or revoked."""

    code = "unauthenticated"


class Denied(IngestError):
    """A call whose key lacks the scope or the project; says nothing of what exists."""

    code = "denied"


class NoSuchLetter(IngestError):
    """No batch of that id is among those that could not be stored."""

    code = "no_such_letter"


class BrokerError(IngestError):
    """Something about the broker (Redis or Valkey)."""


class BrokerUnavailable(BrokerError):
    """The broker did not answer; what was asked may or may not have happened."""

    code = "broker_unavailable"


class LeaseLost(BrokerError):
    """Shards are not the caller's any more: their entries are another writer's to move.

    Attributes:
        shards: Which, 0-based.
    """

    code = "lease_lost"

    def __init__(self, shards: "Sequence[int]") -> None:
        super().__init__(f"another writer holds the shards {', '.join(map(str, shards))} now")
        self.shards = tuple(shards)


class BrokerUnfit(BrokerError):
    """The broker answers, but is set so that it would lose or refuse data."""

    code = "broker_unfit"


class StoreError(IngestError):
    """Something about the store (ClickHouse or chDB)."""


class StoreUncertain(StoreError):
    """A statement failed and may still have taken effect: repeat it with the same token.

    Attributes:
        why: `overloaded`, `no_space` or `uncertain`.
        number: The store's error code; 0: it gave none.
    """

    code = "store_unavailable"

    def __init__(self, reason: str, *, why: str = "uncertain", number: int = 0) -> None:
        super().__init__(reason)
        self.why = why
        self.number = number


class StoreRefused(StoreError):
    """An insert whose bytes the store says it cannot parse.

    Attributes:
        number: The store's error code.
    """

    code = "store_refused"

    def __init__(self, reason: str, *, number: int) -> None:
        super().__init__(reason)
        self.number = number


class StoreUnfit(StoreError):
    """The store answers, but is too old, not migrated, or lacks a deduplication window."""

    code = "store_unfit"
