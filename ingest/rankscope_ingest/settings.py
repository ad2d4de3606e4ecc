"""The settings of each ingest process: one row a setting, read once, passed down.

Every setting is `RANKSCOPE_` and the field's name in capitals. `read` takes the values from an
environment-like mapping, so `rankscope up` can start several services in one process with
different values; nothing else in this package looks at the environment.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from rankscope_ingest.addresses import broker_url, store_url
from rankscope_ingest.errors import ConfigError

PREFIX = "RANKSCOPE_"
MIB = 2**20

RedisUrl = Annotated[
    SecretStr,
    AfterValidator(broker_url),
    Field(description="Where the broker answers: redis://host:6379/0, rediss://… or unix:///path/to/socket."),
]
ClickHouseUrl = Annotated[
    SecretStr,
    AfterValidator(store_url),
    Field(description="Where the store is: http(s)://user:password@host:8123/database, or chdb:///absolute/folder."),
]
LogFormat = Annotated[str, Field(pattern="^(json|text)$", description="Form of the log lines: json or text.")]
MetricsListen = Annotated[
    str, Field(description="host:port that serves Prometheus metrics under /metrics; empty: none.")
]
RetentionDays = Annotated[
    int | None, Field(ge=1, le=36_500, description="Days for which rows are kept, by week; empty: for ever.")
]

DEFAULT_REDIS_URL = SecretStr("redis://127.0.0.1:6379/0")
DEFAULT_CLICKHOUSE_URL = SecretStr("http://127.0.0.1:8123/default")


class ServiceSettings(BaseSettings):
    """What all ingest settings share: frozen, from one mapping, secrets masked."""

    # Nothing comes from the process's own environment: no variable's name begins with a null.
    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix="\0")

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Settings from an environment-like mapping; an empty value counts as not set.

        Raises:
            ConfigError: Names each setting at fault, its value unless secret, and the rule it breaks.
        """
        given = {name: environ[env_name(name)] for name in cls.model_fields if environ.get(env_name(name))}
        try:
            return cls(**given)
        except ValidationError as error:
            faults = "; ".join(
                f"{env_name(str(fault['loc'][0]))}: {fault['msg'].removeprefix('Value error, ')}"
                for fault in error.errors()
            )
            raise ConfigError(f"cannot use these settings: {faults}") from None  # its text has the values


class LogSettings(ServiceSettings):
    """How a command logs."""

    log_format: LogFormat = "text"


class BrokerSettings(ServiceSettings):
    """Settings of the embedded broker."""

    redis_url: RedisUrl
    broker_folder: Path = Field(description="Folder of the broker's append-only file; made if missing.")
    broker_max_memory_bytes: int = Field(
        default=384 * MIB, ge=64 * MIB, description="Memory at which the broker refuses instead of evicting."
    )


class GatewaySettings(LogSettings):
    """Settings of the gateway."""

    redis_url: RedisUrl = DEFAULT_REDIS_URL
    gateway_listen: str = Field(
        default="127.0.0.1:8471", description="host:port, or unix:/path/to/socket, that speaks gRPC."
    )
    shard_budget_bytes: int = Field(
        default=16 * MIB,
        ge=8 * MIB,
        description="Bytes one of the 16 stream shards may hold before senders are asked to wait.",
    )
    gateway_metrics_listen: MetricsListen = ""
    keys: Path | None = Field(
        default=None, description="File of the API keys that senders need (`rankscope keys create`); none: no keys."
    )
    tls_cert: Path | None = Field(
        default=None, description="PEM file of this server's certificate, the chain behind it; none: no TLS."
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file of its key, not encrypted, where it is not in the same file."
    )
    tls_client_ca: Path | None = Field(
        default=None, description="PEM file of the authorities that sign clients; set: each client needs a certificate."
    )
    insecure: bool = Field(
        default=False, description="Listen beyond this machine without keys or without TLS: the network is closed."
    )


class WriterSettings(LogSettings):
    """Settings of the writer."""

    redis_url: RedisUrl = DEFAULT_REDIS_URL
    clickhouse_url: ClickHouseUrl = DEFAULT_CLICKHOUSE_URL
    migrate: bool = Field(default=False, description="Bring the tables to this version before the first insert.")
    group_rows: int = Field(default=200_000, ge=20_000, le=1_000_000, description="Most rows of one insert.")
    group_bytes: int = Field(default=32 * MIB, ge=5 * MIB, description="Most bytes of one insert.")
    linger_ms: int = Field(
        default=500, ge=0, le=10_000, description="Longest wait in ms for more rows before an insert."
    )
    retention_days: RetentionDays = None
    writer_metrics_listen: MetricsListen = ""


class MigrateSettings(LogSettings):
    """Settings of `rankscope migrate`."""

    clickhouse_url: ClickHouseUrl = DEFAULT_CLICKHOUSE_URL
    retention_days: RetentionDays = None


def env_name(field: str) -> str:
    """The environment variable of a settings field."""
    return PREFIX + field.upper()
