"""Migrations: once, in order, and never over tables that are not ours."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from rankscope_ingest.clickhouse import TARGETS, Store
from rankscope_ingest.entries import varint
from rankscope_ingest.errors import ConfigError, StoreUncertain, StoreUnfit
from rankscope_ingest.migrate import check_migrated, migrate, run
from rankscope_ingest.retention import keep_for
from rankscope_proto.storage import migrations
from tests.ground.stores import FrontProcess
from tests.ground.stores import Store as Front
from tests.ingest.batches import Sender
from tests.ingest.writing import full


def body_of(sender: Sender) -> bytes:
    """An insert of one batch with rows for every table."""
    payload = full(sender).payload
    return varint(len(payload)) + payload


async def rows_of(store: Store) -> dict[str, int]:
    """How many rows each table has that there is."""
    there = await store.rows("SELECT name FROM system.tables WHERE database = currentDatabase()")
    names = {str(row[0]) for row in there}
    found = {table: await store.rows(f"SELECT count() FROM {table}") for table in TARGETS if table in names}
    return {table: int(str(rows[0][0])) for table, rows in found.items()}


async def test_migrating_makes_every_table_and_migrating_again_does_nothing(clickhouse_front: Front) -> None:
    settings = {"RANKSCOPE_CLICKHOUSE_URL": clickhouse_front.url}

    first = await run(settings)
    second = await run(settings)

    tables = {name for (name,) in clickhouse_front.client.query("SHOW TABLES").result_rows}
    assert first == [migration.name for migration in migrations()]
    assert second == []
    assert set(TARGETS) <= tables


async def test_an_insert_repeated_after_the_store_restarted_adds_nothing_to_tables_just_made(tmp_path: Path) -> None:
    process = FrontProcess(tmp_path)
    store, body = Store(SecretStr(Front(process.url).url)), body_of(Sender())
    try:
        await migrate(store)
        await store.write(body, token="repeated")
        stored = await rows_of(store)

        process.kill()
        process.start()
        process.await_ready()
        await store.write(body, token="repeated")

        assert min(stored.values()) > 0
        assert await rows_of(store) == stored
    finally:
        await store.close()
        process.stop()


async def test_an_insert_repeated_after_a_migration_adds_nothing(
    clickhouse_front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, body = Store(SecretStr(clickhouse_front.url)), body_of(Sender())
    every = migrations()
    monkeypatch.setattr("rankscope_ingest.migrate.migrations", lambda: every[:1])
    await migrate(store)
    await store.write(body, token="repeated")
    stored = await rows_of(store)

    monkeypatch.setattr("rankscope_ingest.migrate.migrations", lambda: every)
    await migrate(store)
    await store.write(body, token="repeated")

    assert min(stored.values()) > 0
    assert stored.items() <= (await rows_of(store)).items()
    await store.close()


async def test_a_migration_that_ended_while_a_view_was_named_anew_is_finished_by_the_next(
    clickhouse_front: Front,
) -> None:
    store = Store(SecretStr(clickhouse_front.url))
    await migrate(store)
    clickhouse_front.client.command("RENAME TABLE spans_from_landing TO spans_from_landing_aside")
    clickhouse_front.client.command("ALTER TABLE schema_migrations DELETE WHERE version = 3 SETTINGS mutations_sync=2")

    await migrate(store)
    await store.write(body_of(Sender()), token="once")

    assert min((await rows_of(store)).values()) > 0
    await store.close()


async def test_another_text_under_an_applied_version_is_refused(clickhouse_front: Front) -> None:
    store = Store(SecretStr(clickhouse_front.url))
    await migrate(store)
    clickhouse_front.client.command(
        "ALTER TABLE schema_migrations UPDATE checksum = 'x' WHERE 1 SETTINGS mutations_sync=2"
    )

    with pytest.raises(StoreUnfit, match="applied with another text"):
        await migrate(store)
    await store.close()


async def test_a_store_from_a_newer_version_is_refused(clickhouse_front: Front) -> None:
    store = Store(SecretStr(clickhouse_front.url))
    await migrate(store)
    clickhouse_front.client.command(
        "INSERT INTO schema_migrations (version, name, checksum) VALUES (999, 'later', 'x')"
    )

    with pytest.raises(StoreUnfit, match="migration 999"):
        await check_migrated(store)
    await store.close()


async def test_a_store_that_was_never_migrated_says_what_to_run(clickhouse_front: Front) -> None:
    store = Store(SecretStr(clickhouse_front.url))

    with pytest.raises(StoreUnfit, match="run `rankscope migrate`"):
        await check_migrated(store)
    await store.close()


async def test_a_store_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreUncertain) as caught:
        await run({"RANKSCOPE_CLICKHOUSE_URL": "http://user:secret@127.0.0.1:1/db"})

    assert "http://user:***@127.0.0.1:1/db" in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "RANKSCOPE_CLICKHOUSE_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://u:secret@host/db",
        "chdb://relative/folder",
        "chdb:///",
        "nonsense",
        "u:secret@host/db",
        "http:///db",
        "http://u:secret@127.0.0.1:abc/db",
        "http://u:secret@127.0.0.1:70000/db",
        "http://u:secret@127.0.0.1:0/db",
        "http://u:secret@[::1/db",
        "http://u:secret@h/db?password=secret",
        "http://u:secret@h/db#secret",
        "http://u:secret@h/db/more",
        "http://u:se/cret@h/db",
    ],
)
async def test_a_url_of_another_kind_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"RANKSCOPE_CLICKHOUSE_URL.*write http") as caught:
        await run({"RANKSCOPE_CLICKHOUSE_URL": url})

    assert "secret" not in str(caught.value)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "is_fit"), [("24.8.1.1", False), ("26.1.9.1", False), ("26.2.1.1", True), ("26.9.2.1", True)]
)
async def test_only_servers_from_the_floor_on_are_fit(
    version: str, is_fit: bool, clickhouse_front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(SecretStr(clickhouse_front.url))

    async def answer(query: str, **_: object) -> list[tuple[str]]:
        return [(version,)]

    monkeypatch.setattr(store, "rows", answer)
    if is_fit:
        await store.check_version()
    else:
        with pytest.raises(StoreUnfit, match=f"version {version}; rankscope needs 26.2 or newer"):
            await store.check_version()


def kept_for(front: Front) -> dict[str, str]:
    """The TTL of each target, as the store has it."""
    found = front.client.query("SELECT name, engine_full FROM system.tables WHERE database = currentDatabase()")
    engines = {str(name): str(engine) for name, engine in found.result_rows}
    return {table: engines[table].partition(" TTL ")[2].partition(" SETTINGS ")[0] for table in TARGETS}


async def test_retention_is_a_ttl_by_week_on_every_table_and_applying_it_again_changes_nothing(
    clickhouse_front: Front,
) -> None:
    settings = {"RANKSCOPE_CLICKHOUSE_URL": clickhouse_front.url}
    await run(settings)
    before = kept_for(clickhouse_front)
    store = Store(SecretStr(clickhouse_front.url))

    await run({**settings, "RANKSCOPE_RETENTION_DAYS": "30"})
    limited = kept_for(clickhouse_front)
    again = await keep_for(store, 30)
    other = await keep_for(store, 60)
    await run(settings)

    assert all("week + toIntervalDay(37)" in limit for limit in limited.values())
    assert "heartbeat" in limited["open_spans"]
    assert (again, other) == ([], list(TARGETS))
    assert kept_for(clickhouse_front) == before
    await store.close()


async def test_rows_stay_for_the_days_asked_for_and_go_after_them(clickhouse_front: Front) -> None:
    store = Store(SecretStr(clickhouse_front.url))
    await migrate(store)
    for age in (1, 2, 6):
        clickhouse_front.client.command(
            "INSERT INTO scalars (name, week, seq) "
            f"SELECT 'loss', toMonday(today() - {age * 7}), {age} SETTINGS async_insert = 0"
        )

    await keep_for(store, 30)
    clickhouse_front.client.command("OPTIMIZE TABLE scalars FINAL")

    assert clickhouse_front.client.query("SELECT seq FROM scalars ORDER BY seq").result_rows == [(1,), (2,)]
    await store.close()
