"""`TraceStore` over ClickHouse or chDB: the readers, put together."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.reading.ledger import ClickHouseLedger
from rankscope_query_api.reading.runs import ClickHouseRuns
from rankscope_query_api.reading.spans import ClickHouseSpans
from rankscope_query_api.reading.tensors import ClickHouseTensors
from rankscope_query_api.store import Table, TraceStore, Value

PING = "SELECT 1 FROM batches WHERE project = '' LIMIT 1"


class ClickHouseStore:
    """The readers over one `ClickHouse`.

    Args:
        clickhouse: The handles; closed with the store.
    """

    def __init__(self, clickhouse: ClickHouse) -> None:
        self._clickhouse = clickhouse
        self.runs = ClickHouseRuns(clickhouse)
        self.spans = ClickHouseSpans(clickhouse)
        self.tensors = ClickHouseTensors(clickhouse)
        self.ledger = ClickHouseLedger(clickhouse)

    async def query(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """See `TraceStore`."""
        return await self._clickhouse.select(statement, parameters)

    async def ping(self) -> None:
        """See `TraceStore`."""
        await self._clickhouse.select(PING, {})

    async def close(self) -> None:
        """See `TraceStore`."""
        await self._clickhouse.close()


if TYPE_CHECKING:
    _conforms: Callable[[ClickHouse], TraceStore] = ClickHouseStore
