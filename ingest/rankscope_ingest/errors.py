"""Every error of the ingest tiers, each with its remedy in the text.

    IngestError
    ├── ConfigError        a setting cannot be used; the process does not start
    ├── Refused            one batch, for ever; names the field
    ├── Busy               one batch, for now; says how long
    ├── BrokerError
    │   ├── BrokerUnavailable   did not answer, or not in time
    │   └── BrokerUnfit         answers, but would lose or refuse data
    └── StoreError
        ├── StoreUncertain      an insert may or may not have happened: the same bytes again
        └── StoreUnfit          answers, but the tables or the version are not ours

Foreign exceptions are mapped at the rim: redis in `buffer.py`, clickhouse-connect in
`clickhouse.py`, and these to gRPC statuses in `statuses.py`.
"""

# ruff: noqa: N818 # errors are named for what happened, as in the SDK


class IngestError(Exception):
    """Root of what the ingest tiers raise on purpose."""


class ConfigError(IngestError):
    """A setting cannot be used; the text names it and says what to do."""


class Refused(IngestError):
    """A batch that can never be accepted.

    Attributes:
        field: Dotted name of the first field at fault, as `spans.name` or `header.rank`.
        reason: What is wrong with it.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Busy(IngestError):
    """A batch that cannot be accepted now.

    Attributes:
        retry_after_ms: Milliseconds to wait before the same batch is sent again.
    """

    def __init__(self, reason: str, *, retry_after_ms: int) -> None:
        super().__init__(reason)
        self.retry_after_ms = retry_after_ms


class BrokerError(IngestError):
    """Something about the broker (Redis or Valkey)."""


class BrokerUnavailable(BrokerError):
    """The broker did not answer; what was asked may or may not have happened."""


class BrokerUnfit(BrokerError):
    """The broker answers, but is set so that it would lose or refuse data."""


class StoreError(IngestError):
    """Something about the store (ClickHouse or chDB)."""


class StoreUncertain(StoreError):
    """A statement failed and may still have taken effect: repeat it with the same token."""


class StoreUnfit(StoreError):
    """The store answers, but is too old, not migrated, or lacks a deduplication window."""
