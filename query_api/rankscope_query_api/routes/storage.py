"""How much room the store takes, and for how long that goes well."""

from collections.abc import Sequence

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.routes.asking import PREFIX, store_of
from rankscope_query_api.values import WEEK_DAYS, StorageState, TableSize

router = APIRouter(prefix=PREFIX, tags=["storage"])


@router.get("/storage")
async def show_storage(request: Request) -> Response:
    """Shows what each table takes and grows by, how long it keeps rows, and when the disk will be full.

    Where keys are on, this asks for the scope `admin` over all projects: sizes tell of everybody's runs.
    """
    state = await store_of(request).storage.state()
    return json_answer(
        {
            "bytes": sum(table.size_bytes for table in state.tables),
            "bytes_per_day": sum(table.bytes_per_day for table in state.tables),
            "free_bytes": _free(state),
            "full_in_days": full_in_days(state),
            "tables": [_table_json(table) for table in state.tables],
            "disks": [
                {"name": disk.name, "free_bytes": disk.free_bytes, "total_bytes": disk.total_bytes}
                for disk in state.disks
            ],
        }
    )


def full_in_days(state: StorageState) -> float | None:
    """Days until the disk is full at the rate of the last day; None: it never is.

    Where every table that grows has a retention, it stops growing at its rate times that time.
    """
    growing = [table for table in state.tables if table.bytes_per_day > 0]
    if not growing or _peak(growing) <= sum(table.size_bytes for table in growing) + _free(state):
        return None
    return _free(state) / sum(table.bytes_per_day for table in growing)


def _peak(growing: Sequence[TableSize]) -> float:
    """Bytes that growing tables come to at last; infinite where one keeps rows for good."""
    days = (float("inf") if table.retention_days is None else table.retention_days + WEEK_DAYS for table in growing)
    return sum(table.bytes_per_day * kept for table, kept in zip(growing, days, strict=True))


def _free(state: StorageState) -> int:
    return sum(disk.free_bytes for disk in state.disks)


def _table_json(table: TableSize) -> dict[str, Json]:
    return {
        "table": table.table,
        "rows": table.rows,
        "bytes": table.size_bytes,
        "bytes_per_day": table.bytes_per_day,
        "retention_days": table.retention_days,
    }
