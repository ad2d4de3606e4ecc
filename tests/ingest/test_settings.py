"""Settings: documented, read from what is handed over, named when wrong, secret where they must be."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from rankscope_ingest.addresses import host_and_port, shown
from rankscope_ingest.errors import ConfigError
from rankscope_ingest.settings import (
    BrokerSettings,
    GatewaySettings,
    MigrateSettings,
    ServiceSettings,
    WriterSettings,
    env_name,
)
from tests.house.tree import text_of

ALL: list[type[ServiceSettings]] = [BrokerSettings, GatewaySettings, WriterSettings, MigrateSettings]


@pytest.mark.parametrize("settings", ALL)
def test_every_setting_says_what_it_is(settings: type[ServiceSettings]) -> None:
    silent = [name for name, field in settings.model_fields.items() if not field.description]

    assert not silent


@pytest.mark.parametrize("settings", ALL)
def test_every_setting_is_documented(settings: type[ServiceSettings]) -> None:
    documented = set(re.findall(r"`(RANKSCOPE_[A-Z_]+)`", text_of("ingest/README.md")))

    missing = {env_name(name) for name in settings.model_fields} - documented

    assert not missing


def test_values_come_from_the_mapping_and_not_from_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_GATEWAY_LISTEN", "10.0.0.1:1")
    monkeypatch.setenv("gateway_listen", "10.0.0.2:2")

    assert GatewaySettings.read({}).gateway_listen == "127.0.0.1:8471"
    assert GatewaySettings.read({"RANKSCOPE_GATEWAY_LISTEN": "127.0.0.1:9"}).gateway_listen == "127.0.0.1:9"


def test_an_empty_value_is_no_value() -> None:
    assert WriterSettings.read({"RANKSCOPE_LINGER_MS": ""}).linger_ms == 500


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (WriterSettings, "RANKSCOPE_LINGER_MS", "-1"),
        (WriterSettings, "RANKSCOPE_GROUP_ROWS", "many"),
        (WriterSettings, "RANKSCOPE_MIGRATE", "perhaps"),
        (GatewaySettings, "RANKSCOPE_LOG_FORMAT", "xml"),
        (GatewaySettings, "RANKSCOPE_SHARD_BUDGET_BYTES", "1"),
    ],
)
def test_a_wrong_value_is_named(settings: type[ServiceSettings], name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        settings.read({name: value})


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ConfigError, match="RANKSCOPE_BROKER_FOLDER"):
        BrokerSettings.read({"RANKSCOPE_REDIS_URL": "unix:///x"})


def test_passwords_are_in_no_representation() -> None:
    settings = WriterSettings.read(
        {"RANKSCOPE_REDIS_URL": "redis://:hush@r", "RANKSCOPE_CLICKHOUSE_URL": "http://u:hush@c/d"}
    )

    assert "hush" not in repr(settings) + str(settings)
    assert shown(settings.redis_url) == "redis://:***@r"
    assert shown(settings.clickhouse_url) == "http://u:***@c/d"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h/0?password=hush", "redis://h/0?***"),
        ("http://u:hu@sh@h/d", "http://u:***@h/d"),
        ("http://u:hush@[::1/d", "***"),
        ("u:hush@h/d", "***"),
        ("http://h:8123/d", "http://h:8123/d"),
    ],
)
def test_a_shown_url_has_no_password_wherever_it_is(url: str, expected: str) -> None:
    assert shown(SecretStr(url)) == expected


@pytest.mark.parametrize("url", ["http://:hush@h", "redis://:hush@h:abc", "redis://:hush@[::1", "unix://", "redis://"])
def test_a_url_that_names_no_broker_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"RANKSCOPE_REDIS_URL.*write redis://") as caught:
        GatewaySettings.read({"RANKSCOPE_REDIS_URL": url})

    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("listen", "expected"), [("127.0.0.1:8471", ("127.0.0.1", 8471)), ("[::1]:1", ("::1", 1))])
def test_an_address_is_host_and_port(listen: str, expected: tuple[str, int]) -> None:
    assert host_and_port(listen, setting="X") == expected


@pytest.mark.parametrize("listen", ["8471", "host:", ":1", "host:port", "host:70000", "host:²"])
def test_another_address_is_refused_with_an_example(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"X is .*127\.0\.0\.1:8471"):
        host_and_port(listen, setting="X")


def test_a_path_is_a_path() -> None:
    assert BrokerSettings.read(
        {"RANKSCOPE_REDIS_URL": "unix:///x", "RANKSCOPE_BROKER_FOLDER": "/y"}
    ).broker_folder == Path("/y")
