"""`TraceStore` over ClickHouse or chDB: the readers, put together."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rankscope_query_api import fitness
from rankscope_query_api.clickhouse import ClickHouse, Selecting
from rankscope_query_api.doors import AskedBy, NobodysProject
from rankscope_query_api.limits import Asker
from rankscope_query_api.reading.captures import ClickHouseCaptures
from rankscope_query_api.reading.clocks import ClickHouseClocks
from rankscope_query_api.reading.collectives import ClickHouseCollectives
from rankscope_query_api.reading.deletion import COUNTED, DELETED
from rankscope_query_api.reading.export import ClickHouseExport
from rankscope_query_api.reading.failures import ClickHouseFailures
from rankscope_query_api.reading.findings import ClickHouseFindings
from rankscope_query_api.reading.ledger import ClickHouseLedger
from rankscope_query_api.reading.meetings import ClickHouseMeetings
from rankscope_query_api.reading.model import ClickHouseModel
from rankscope_query_api.reading.nonfinite import ClickHouseNonfinite
from rankscope_query_api.reading.runs import ClickHouseRuns
from rankscope_query_api.reading.span_window import ClickHouseSpanWindow
from rankscope_query_api.reading.spans import ClickHouseSpans
from rankscope_query_api.reading.standings import ClickHouseStandings
from rankscope_query_api.reading.step_trees import ClickHouseStepTrees
from rankscope_query_api.reading.storage import ClickHouseStorage
from rankscope_query_api.reading.tensors import ClickHouseTensors
from rankscope_query_api.reading.trace_detail import ClickHouseTraceDetail
from rankscope_query_api.reading.trace_steps import ClickHouseTraceSteps
from rankscope_query_api.reading.traces import ClickHouseTraces
from rankscope_query_api.values import RunKey, Table, Value

FITNESS = """
SELECT version() AS version, groupArray(name) AS names FROM system.tables
WHERE database = currentDatabase()"""

MOST_PASSES = 4
"""Of a deletion: a run that goes on writing would be deleted for as long as it runs."""

MIGRATED = "SELECT max(version) AS migrated FROM schema_migrations"


class ClickHouseStore:
    """The readers over one `ClickHouse`.

    Args:
        clickhouse: The handles; closed with the store.
        door: What the readers read through; None: the handles themselves.
        queries: What TQL and SQL run through; None: the same.
    """

    def __init__(
        self, clickhouse: ClickHouse, door: Selecting | None = None, *, queries: Selecting | None = None
    ) -> None:
        self._clickhouse = clickhouse
        self._door = door or clickhouse
        self._queries = queries or self._door
        self.runs = ClickHouseRuns(self._door)
        self.traces = ClickHouseTraces(self._door)
        self.detail = ClickHouseTraceDetail(self._door)
        self.window = ClickHouseSpanWindow(self._door)
        self.trace_steps = ClickHouseTraceSteps(self._door)
        self.export = ClickHouseExport(self._door)
        self.spans = ClickHouseSpans(self._door)
        self.step_trees = ClickHouseStepTrees(self._door)
        self.tensors = ClickHouseTensors(self._door)
        self.captures = ClickHouseCaptures(self._door)
        self.model = ClickHouseModel(self._door)
        self.collectives = ClickHouseCollectives(self._door)
        self.meetings = ClickHouseMeetings(self._door)
        self.ledger = ClickHouseLedger(self._door)
        self.clocks = ClickHouseClocks(self._door)
        self.failing = ClickHouseFailures(self._door)
        self.findings = ClickHouseFindings(self._door)
        self.nonfinite = ClickHouseNonfinite(self._door)
        self.standing = ClickHouseStandings(self._door)
        self.storage = ClickHouseStorage(self._door)

    async def query(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """See `TraceStore`."""
        return await self._queries.select(statement, parameters)

    async def delete(self, key: RunKey) -> Mapping[str, int]:
        """See `TraceStore`."""
        where = {"project": key.project, "run": key.run}
        deleted = Counter[str]()
        # A batch that comes while the tables are gone through stays in those done before: looked for until none is.
        for _ in range(MOST_PASSES):
            found = {row["table"]: row["rows"] for row in (await self._door.select(COUNTED, where)).records()}
            deleted.update(found)
            if not any(found.values()):
                break
            await self._door.erase(DELETED, where)
        return dict(deleted)

    def asked_by(self, asker: Asker, *, is_foreign: bool) -> "ClickHouseStore":
        """See `TraceStore`."""
        door: Selecting = AskedBy(self._clickhouse, asker.reading())
        queries: Selecting = AskedBy(self._clickhouse, asker)
        if is_foreign:
            door, queries = NobodysProject(door), NobodysProject(queries)
        return ClickHouseStore(self._clickhouse, door, queries=queries)

    async def ping(self) -> None:
        """See `TraceStore`."""
        (found,) = (await self._clickhouse.select(FITNESS, {})).records()
        names = frozenset[str](found["names"])
        # Tables that something else than `rankscope migrate` made are taken as they are.
        noted = (await self._clickhouse.select(MIGRATED, {})).columns[0][0] if "schema_migrations" in names else None
        if unfit := fitness.problem(found["version"], names, migrated=noted):
            raise unfit

    async def close(self) -> None:
        """See `TraceStore`."""
        await self._clickhouse.close()


if TYPE_CHECKING:
    from rankscope_query_api.store import TraceStore

    _conforms: Callable[[ClickHouse], TraceStore] = ClickHouseStore
