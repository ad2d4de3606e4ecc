"""The settings of the query service."""

import re

import pytest
from pydantic import SecretStr

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import SettingsError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.routes.asking import PREFIX
from rankscope_query_api.settings import Settings
from tests.ground.processes import ROOT


def test_settings_come_from_the_mapping_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_QUERY_LISTEN", "0.0.0.0:1")

    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": "chdb:///data/store", "HOME": "/root"})

    assert settings.query_listen == "127.0.0.1:8470"
    assert (settings.host, settings.port) == ("127.0.0.1", 8470)
    assert settings.clickhouse_url.get_secret_value() == "chdb:///data/store"


def test_a_setting_that_is_not_usable_is_named() -> None:
    with pytest.raises(SettingsError, match="RANKSCOPE_QUERY_HANDLES is not usable"):
        Settings.from_environment({"RANKSCOPE_QUERY_HANDLES": "none"})


def test_a_password_is_not_in_the_settings_text() -> None:
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": "http://me:hush@db:8123/default"})

    assert "hush" not in repr(settings)


def test_every_setting_is_described() -> None:
    assert not [name for name, field in Settings.model_fields.items() if not field.description]


@pytest.mark.parametrize(
    "url",
    [
        *("http://u:s3cr3t@127.0.0.1:abc/db", "http://u:s3cr3t@[::1/db", "http://u@h/db?password=s3cr3t"),
        *("ftp://u:s3cr3t@h/db", "http:///db", "chdb://host/s3cr3t", "chdb://", "127.0.0.1:8123", "http://h:99999/"),
        *("http://h:8123/db#s3cr3t", "chdb:///data?x=s3cr3t", "http://h:0/db"),
    ],
)
def test_a_url_that_names_no_store_is_refused_at_once_without_its_secrets(url: str) -> None:
    with pytest.raises(
        SettingsError, match=r"RANKSCOPE_CLICKHOUSE_URL is not usable: .*chdb:///absolute/folder"
    ) as found:
        Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": url})

    assert "s3cr3t" not in str(found.value)
    assert found.value.__cause__ is None


@pytest.mark.parametrize("url", ["http://u:p@[::1]:8123/db", "https://clickhouse.example/traces", "chdb:///data/store"])
def test_a_url_that_names_a_store_is_taken(url: str) -> None:
    assert Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": url}).clickhouse_url.get_secret_value() == url


@pytest.mark.parametrize(
    ("listen", "address"),
    [("[::1]:8470", ("::1", 8470)), ("10.0.0.7:0", ("10.0.0.7", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_is_read_with_ipv6_in_brackets(listen: str, address: tuple[str, int]) -> None:
    settings = Settings.from_environment({"RANKSCOPE_QUERY_LISTEN": listen})

    assert (settings.host, settings.port) == address


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "::1:8470", "127.0.0.1", ":8470", "[::g]:1", "[1.2.3.4]:1"])
def test_an_address_that_cannot_be_listened_on_is_refused(listen: str) -> None:
    with pytest.raises(SettingsError, match="RANKSCOPE_QUERY_LISTEN is not usable"):
        Settings.from_environment({"RANKSCOPE_QUERY_LISTEN": listen})


def test_the_manual_has_every_setting_with_its_default_and_every_route() -> None:
    manual = (ROOT / "query_api" / "README.md").read_text()
    rows = re.findall(r"^\| `(RANKSCOPE_\w+)` \| `?([^`|]+?)`? \|", manual, re.MULTILINE)
    routes = set(re.findall(r"^\| `([A-Z]+ /\S*)` \|", manual, re.MULTILINE))

    app = create_app(ClickHouseStore(ClickHouse(Settings(), Metrics())), Settings())

    assert dict(rows) == {f"RANKSCOPE_{name.upper()}": _default(name) for name in Settings.model_fields}
    assert len(rows) == len(Settings.model_fields)
    assert routes == {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }


def _default(name: str) -> str:
    value = Settings.model_fields[name].default
    if isinstance(value, SecretStr):
        return value.get_secret_value() or "none"
    return str(int(value)) if isinstance(value, bool) else str(value) or "none"
