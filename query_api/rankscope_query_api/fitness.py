"""Whether a store is one that this version can read: its version, its tables, what was migrated."""

from collections.abc import Set as AbstractSet

from rankscope_proto.columns import SECTIONS
from rankscope_proto.storage import migrations
from rankscope_query_api.errors import StoreUnavailableError

FLOOR = (26, 2)
"""The same as the writer's: older servers cannot be written to, so what they hold is not ours."""

TABLES = (*(section.table for section in SECTIONS), "batches", "trace_index")
"""What the service reads."""

_MIGRATE = "run `rankscope migrate` once"


def problem(version: str, tables: AbstractSet[str], *, migrated: int | None) -> StoreUnavailableError | None:
    """What stands between a store and this service, as the error that says so; None: nothing.

    Args:
        version: The server's version, as `25.8.1.1`.
        tables: Names of the tables in the database.
        migrated: The last migration that was applied; None: unknown.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < FLOOR:
        floor = ".".join(map(str, FLOOR))
        return StoreUnavailableError(
            f"the store is ClickHouse {version}, and rankscope needs {floor} or newer",
            hint="upgrade the server, or name another one in RANKSCOPE_CLICKHOUSE_URL",
            code="store_too_old",
        )
    if missing := [name for name in TABLES if name not in tables]:
        what = "no table of rankscope" if len(missing) == len(TABLES) else f"no table {', '.join(missing)}"
        return StoreUnavailableError(f"the database has {what}", hint=_MIGRATE, code="not_migrated")
    latest = migrations()[-1].version
    if migrated is not None and migrated < latest:
        return StoreUnavailableError(
            f"the tables are of migration {migrated}, and this version reads those of {latest}",
            hint=_MIGRATE,
            code="not_migrated",
        )
    return None
