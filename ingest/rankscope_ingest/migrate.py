"""Brings the store's tables to this version: every migration once, in order, checked afterwards.

What was applied is in `schema_migrations` (version, name, checksum of the statements). Applying
again does nothing; finding another text under a version that was applied is refused, because the
tables are then not the ones this version writes.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from rankscope_ingest.clickhouse import Store
from rankscope_ingest.errors import StoreUnfit
from rankscope_ingest.retention import keep_for
from rankscope_ingest.settings import MigrateSettings
from rankscope_proto.storage import Migration, migrations

logger = logging.getLogger(__name__)

_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    version UInt32,
    name String,
    checksum String,
    applied DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY version
SETTINGS non_replicated_deduplication_window = 100
"""
_NEW_QUERY = re.compile(r"ALTER TABLE (\w+) MODIFY QUERY\b")
_APPLIED = "SELECT version, any(checksum), uniqExact(checksum) FROM schema_migrations GROUP BY version"
_NOTE = """
INSERT INTO schema_migrations (version, name, checksum)
VALUES ({version:UInt32}, {name:String}, {checksum:String})
"""


class Tables(Protocol):
    """The store as migrations need it."""

    async def command(self, statement: str, **parameters: object) -> None:
        """Runs a statement."""
        ...

    async def rows(self, query: str, **parameters: object) -> Sequence[Sequence[object]]:
        """Runs a query."""
        ...


async def run(settings: Mapping[str, str]) -> list[str]:
    """Migrates the store that the settings name.

    Args:
        settings: An environment-like mapping; see `MigrateSettings`.

    Returns:
        Names of the migrations applied now.

    Raises:
        StoreError: The store cannot be reached, is too old, or was migrated by another version.
    """
    config = MigrateSettings.read(settings)
    store = Store(config.clickhouse_url)
    try:
        await store.check_version()
        applied = [migration.name for migration in await migrate(store)]
        await store.check_tables()
        await keep_for(store, config.retention_days)
    finally:
        await store.close()
    return applied


async def migrate(tables: Tables) -> list[Migration]:
    """Applies what is missing.

    Returns:
        The migrations applied now.

    Raises:
        StoreUnfit: A migration was applied with another text, or the store is newer than this version.
    """
    await tables.command(_TABLE)
    applied = await _applied(tables)
    missing = [migration for migration in migrations() if migration.version not in applied]
    for migration in missing:
        for statement in migration.statements:
            await _apply(tables, statement)
        checksum = checksum_of(migration)
        await tables.command(_NOTE, version=migration.version, name=migration.name, checksum=checksum)
        logger.info("applied migration %s", migration.version, extra={"migration": migration.name})
    return missing


async def _apply(tables: Tables, statement: str) -> None:
    """Runs a statement; a view with a new query is named anew at once.

    The store makes each table's token of an insert's and of the view's name, and after MODIFY QUERY it has another
    idea of that name until the view is loaded again (ClickHouse 26.9: the same insert, repeated before and after a
    restart of the store, doubled the rows of these views' tables and of no other). Inserts go on through the view
    under whatever name; a writer that misses it meanwhile waits.
    """
    altered = _NEW_QUERY.match(statement)
    if altered is None:
        await tables.command(statement)
        return
    view, aside = altered[1], f"{altered[1]}_aside"
    # Where the store was killed between the two names.
    await tables.command(f"RENAME TABLE IF EXISTS {aside} TO {view}")
    await tables.command(statement)
    await tables.command(f"RENAME TABLE {view} TO {aside}, {aside} TO {view}")


async def check_migrated(tables: Tables) -> None:
    """Refuses a store that `migrate` would change.

    Raises:
        StoreUnfit: Migrations are missing, or it was migrated by another version.
    """
    exists = await tables.rows(
        "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'"
    )
    applied = await _applied(tables) if exists[0][0] else set[int]()
    if missing := [migration.name for migration in migrations() if migration.version not in applied]:
        raise StoreUnfit(f"migration {', '.join(missing)} is not applied: run `rankscope migrate`, then start again")


def checksum_of(migration: Migration) -> str:
    """The digest of a migration's statements, in hex."""
    return hashlib.sha256(";\n".join(migration.statements).encode()).hexdigest()


async def _applied(tables: Tables) -> set[int]:
    known = {migration.version: migration for migration in migrations()}
    versions: set[int] = set()
    for version, checksum, texts in await tables.rows(_APPLIED):
        number = int(str(version))
        if number not in known:
            raise StoreUnfit(f"the store has migration {number}, this rankscope knows up to {max(known)}: upgrade it")
        if texts != 1 or checksum != checksum_of(known[number]):
            raise StoreUnfit(
                f"migration {number} ({known[number].name}) was applied with another text than this rankscope has: "
                "use the version that made these tables, or start with an empty database or folder"
            )
        versions.add(number)
    return versions
