"""The settings of the query service."""

import pytest

from rankscope_query_api.errors import SettingsError
from rankscope_query_api.settings import Settings


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
