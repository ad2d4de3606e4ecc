"""A store with the awkward rows, and a way to ask it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from rankscope import tql
from rankscope_query_api.tql_sql import Compiled, compile_query
from tests.ground.stores import FrontProcess, Store, server_url
from tests.proto.batches import insert, migrate
from tests.query_api.tql.rows import batches


@dataclass(frozen=True)
class Answer:
    """One page."""

    compiled: Compiled
    rows: list[tuple[Any, ...]]
    count: int

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.compiled.items(self.rows)

    @property
    def total(self) -> int:
        return self.compiled.total(self.count)

    @property
    def next(self) -> str | None:
        return self.compiled.next(self.rows, count=self.count)


@dataclass(frozen=True)
class Asked:
    """Asks one project of a store."""

    client: Client

    def page(
        self,
        text: str,
        *,
        project: str = "default",
        run: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Answer:
        checked = tql.check(tql.parse(text))
        compiled = compile_query(checked, project=project, run=run, limit=limit, after=after)
        rows = self.client.query(compiled.sql, parameters=compiled.parameters).result_rows
        counted = self.client.query(compiled.count_sql, parameters=compiled.count_parameters).result_rows
        answer = Answer(compiled, [tuple(row) for row in rows], int(counted[0][0]))
        # Every answer of these tests says whether the service may leave out the count.
        assert not compiled.is_whole(len(rows)) or compiled.total(len(rows)) == answer.total
        return answer

    def pages(self, text: str, *, limit: int) -> list[tuple[Any, ...]]:
        """The rows of all pages of a size."""
        answer = self.page(text, limit=limit)
        rows = answer.rows
        while answer.next is not None:
            assert len(answer.rows) == limit
            answer = self.page(text, limit=limit, after=answer.next)
            rows = [*rows, *answer.rows]
        return rows


@pytest.fixture(scope="session", params=["chdb", pytest.param("server", marks=pytest.mark.clickhouse)])
def ask(request: pytest.FixtureRequest) -> Iterator[Asked]:
    """The awkward rows in a database that nobody else writes to."""
    if request.param == "server":
        url = server_url()
        if url is None:
            pytest.skip("RANKSCOPE_TEST_CLICKHOUSE_URL names no ClickHouse server")
    else:
        front: FrontProcess = request.getfixturevalue("front_process")
        url = front.url
    store = Store(url)
    migrate(store.client)
    insert(store.client, *batches())
    yield Asked(store.client)
    store.drop()
