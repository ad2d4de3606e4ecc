"""The settings of the query service, read once at its start and passed down.

Each is an environment variable with the prefix `RANKSCOPE_`; nothing else reads the environment.
"""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rankscope_query_api.addresses import checked_store_url, host_and_port
from rankscope_query_api.errors import SettingsError
from rankscope_query_api.webhook_address import checked_webhook_url

PREFIX = "RANKSCOPE_"


class Settings(BaseSettings):
    """Where the store is, where to listen, and how much one query may cost."""

    # Nothing comes from the process's own environment: no variable's name begins with a null.
    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix="\0")

    clickhouse_url: SecretStr = Field(
        default=SecretStr("http://default:@127.0.0.1:8123/default"),
        description="The store: `chdb:///absolute/folder` or `http(s)://user:password@host:port/database`.",
    )
    query_listen: str = Field(
        default="127.0.0.1:8470",
        description="Address and port of the HTTP interface; IPv6 in brackets, as `[::1]:8470`; port 0: any free one.",
    )
    keys: str = Field(
        default="", description="File of API keys, as `rankscope keys` makes it; empty: no key is asked for."
    )
    tls_cert: str = Field(default="", description="File of the service's certificate (PEM); empty: plain HTTP.")
    tls_key: str = Field(default="", description="File of the certificate's private key (PEM).")
    tls_client_ca: str = Field(
        default="", description="File of the authorities (PEM) one of which a client's certificate must be from."
    )
    insecure: bool = Field(default=False, description="Listen beyond loopback without keys or without TLS.")
    query_handles: int = Field(default=4, ge=1, le=64, description="Queries that may run at a time.")
    query_handles_per_key: int = Field(
        default=3, ge=1, le=64, description="Of these, the most that run for one key, where keys are on."
    )
    query_timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="Longest time one query may run, and wait for a handle."
    )
    query_max_rows_read: int = Field(
        default=2_000_000_000, ge=1, le=2**62, description="Rows one query may read from the tables."
    )
    query_max_memory_bytes: int = Field(
        default=2 * 2**30, ge=2**20, le=2**62, description="Memory one query may take in the store."
    )
    query_max_result_rows: int = Field(
        default=500_000, ge=1, le=2**31, description="Rows one query may bring back to the service."
    )
    query_max_result_bytes: int = Field(
        default=64 * 2**20, ge=2**16, le=2**62, description="Bytes one query may bring back to the service."
    )
    query_max_answers_bytes: int = Field(
        default=512 * 2**20,
        ge=2**20,
        le=2**62,
        description="Memory that all answers may take together which their readers have not taken yet; "
        "while they take more, queries wait.",
    )
    query_send_timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="Longest time a reader may take nothing of its answer."
    )

    vigil_every_s: float = Field(
        default=2.0, ge=0, le=3600, description="Pause between two looks at whether runs hang that go on; 0: none."
    )
    webhook_url: SecretStr = Field(
        default=SecretStr(""),
        description="Where a hang is told when it is found: `https`, or an address of this machine; empty: nowhere.",
    )

    @field_validator("webhook_url")
    @classmethod
    def _may_be_told(cls, url: SecretStr) -> SecretStr:
        checked_webhook_url(url.get_secret_value())
        return url

    @field_validator("clickhouse_url")
    @classmethod
    def _names_a_store(cls, url: SecretStr) -> SecretStr:
        checked_store_url(url.get_secret_value())
        return url

    @field_validator("query_listen")
    @classmethod
    def _can_be_listened_on(cls, listen: str) -> str:
        host_and_port(listen)
        return listen

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """The settings an environment-like mapping holds; an empty value counts as not set.

        Raises:
            SettingsError: A value is not usable; the message names the variable.
        """
        given = {name: text for name in cls.model_fields if (text := environ.get(PREFIX + name.upper()))}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = PREFIX + str(first["loc"][0]).upper()
            what = first["msg"].removeprefix("Value error, ")
            raise SettingsError(f"{name} is not usable: {what}", hint="correct it, or leave it out") from None

    @property
    def host(self) -> str:
        """The address to listen on, without brackets."""
        return host_and_port(self.query_listen)[0]

    @property
    def port(self) -> int:
        """The port to listen on; 0: any free one."""
        return host_and_port(self.query_listen)[1]
