"""What one query may cost: the key's limits below the service's, each named with who set it, for TQL and SQL."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from rankscope_proto.key_limits import KeyLimits
from rankscope_proto.keys import KeyFile, KeyRing, Scope
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from tests.ground.processes import wait_until
from tests.ground.stores import Store
from tests.query_api import story
from tests.query_api.asking import error_in
from tests.query_api.sql.cutting import COSTLY

LESS = "ask for fewer steps, ranks or rows, or"
SPANS = "SELECT name, rank FROM spans"


@dataclass(frozen=True, slots=True)
class Service:
    """The service with keys on, in this process."""

    file: KeyFile
    metrics: Metrics
    api: httpx.AsyncClient

    def key(self, **limits: float) -> tuple[str, str]:
        """A new key and its id."""
        key, stored = self.file.create(["default"], [Scope.READ], limits=KeyLimits(**limits))  # pyright: ignore[reportArgumentType]  # as the test names them
        return key, stored.key_id

    async def sql(self, key: str, query: str) -> httpx.Response:
        """The answer to a statement."""
        return await self._post("/api/v1/sql", key, {"query": query})

    async def tql(self, key: str, query: str) -> httpx.Response:
        """The answer to a query."""
        return await self._post("/api/v1/tql", key, {"query": query, "run": story.RUN})

    async def _post(self, path: str, key: str, body: dict[str, str]) -> httpx.Response:
        return await self.api.post(path, json=body, headers={"authorization": f"Bearer {key}"})


@asynccontextmanager
async def serving(told: Store, folder: Path, **settings: object) -> AsyncGenerator[Service]:
    """The service over the story."""
    given = {f"RANKSCOPE_QUERY_{name.upper()}": str(value) for name, value in settings.items()}
    own = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": told.url, **given})
    file, metrics = KeyFile(folder / "keys.json"), Metrics()
    file.create(["first"], [Scope.READ])
    store = ClickHouseStore(ClickHouse(own, metrics))
    app = create_app(store, own, metrics=metrics, ring=KeyRing(folder / "keys.json"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60) as api:
        yield Service(file, metrics, api)
    await store.close()


async def test_each_limit_of_a_key_is_named_with_its_value_and_the_key(told: Store, tmp_path: Path) -> None:
    cases = {
        "seconds": (0.2, COSTLY["timed_out"], "ran longer than 0.2 s and was stopped in the store: --max-seconds"),
        "rows_read": (2, SPANS, "would read more than 2 rows: --max-rows-read"),
        "memory_bytes": (2**20, COSTLY["memory"], "needs more than 1 MiB of memory in the store: --max-memory"),
        "result_rows": (1, SPANS, "the answer would have more than 1 rows: --max-result-rows"),
    }
    async with serving(told, tmp_path, handles=1, timeout_s=600) as service:
        plain, _ = service.key()
        for name, (value, query, said) in cases.items():
            key, key_id = service.key(**{name: value})

            error = error_in(await service.sql(key, query), status=422)
            after = await service.sql(plain, "SELECT count() AS n FROM spans WHERE name = 'step'")

            assert f"{said} of the key {key_id}" in error["message"]
            assert error["hint"] == f"{LESS} make a key with a greater {said.rpartition(' ')[2]}"
            assert after.json()["items"] == [{"n": 4 * story.STEPS + 3}]


@pytest.mark.parametrize("limits", [{"rows_read": 2}, {"result_rows": 1}])
async def test_the_limits_of_a_key_hold_for_tql_too(told: Store, tmp_path: Path, limits: dict[str, float]) -> None:
    async with serving(told, tmp_path) as service:
        key, key_id = service.key(**limits)
        plain, _ = service.key()

        error = error_in(await service.tql(key, 'span.name == "step"'), status=422)

        assert f"of the key {key_id}" in error["message"]
        assert (await service.tql(plain, 'span.name == "step"')).json()["total"] > 1


async def test_no_key_allows_more_than_the_service_does(told: Store, tmp_path: Path) -> None:
    async with serving(told, tmp_path, max_rows_read=2, max_result_bytes=2**16) as service:
        key, _ = service.key(rows_read=10**12, seconds=10**6)

        rows = error_in(await service.sql(key, SPANS), status=422)
        size = error_in(await service.sql(key, "SELECT range(100000) AS l"), status=422)

    assert "more than 2 rows: RANKSCOPE_QUERY_MAX_ROWS_READ of this service" in rows["message"]
    assert "more than 0.0625 MiB: RANKSCOPE_QUERY_MAX_RESULT_BYTES of this service" in size["message"]


async def test_the_service_lists_what_a_key_may_see_whatever_rows_its_queries_may_bring(
    told: Store, tmp_path: Path
) -> None:
    async with serving(told, tmp_path) as service:
        key, _ = service.key(result_rows=1)

        listed = await service.api.get(f"/api/v1/runs/{story.RUN}/steps", headers={"authorization": f"Bearer {key}"})

    assert listed.json()["returned"] > 1


async def test_one_keys_slow_queries_leave_a_handle_for_another_keys(told: Store, tmp_path: Path) -> None:
    async with serving(told, tmp_path, handles=2, handles_per_key=1, timeout_s=600) as service:
        (slow, _), (other, _) = service.key(), service.key()
        waiting = [asyncio.create_task(service.sql(slow, COSTLY["timed_out"])) for _ in range(3)]
        value_of = service.metrics.registry.get_sample_value
        await asyncio.to_thread(wait_until, lambda: value_of("rankscope_query_handles_held") == 1, what="one runs")

        answer = await service.sql(other, "SELECT 1 AS one")

        assert answer.json()["items"] == [{"one": 1}]
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_waits_longer_than_a_query_may_run_is_told_to_ask_again(told: Store, tmp_path: Path) -> None:
    async with serving(told, tmp_path, handles=1, timeout_s=0.3) as service:
        key, _ = service.key()

        answers = await asyncio.gather(*(service.sql(key, COSTLY["timed_out"]) for _ in range(4)))

    told_to_wait = [answer for answer in answers if answer.status_code == 429]
    assert {answer.json()["code"] for answer in answers} == {"timed_out", "too_many_queries"}
    assert {answer.headers["retry-after"] for answer in told_to_wait} == {"1"}
