"""Who may ask, and how much a request may bring."""

from collections.abc import AsyncIterator

import httpx
import pytest

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.guarding import MAX_BODY_BYTES
from rankscope_query_api.settings import Settings
from tests.query_api.asking import error_in


@pytest.mark.parametrize("host", ["localhost:8470", "127.0.0.1", "127.9.9.9:1", "[::1]:8470", "LOCALHOST."])
async def test_a_service_on_loopback_answers_to_loopback_names(client: httpx.AsyncClient, host: str) -> None:
    answer = await client.get("/healthz", headers={"host": host})

    assert answer.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8470", "localhost.evil.example", "[::1", ""])
async def test_a_name_that_was_made_to_resolve_to_loopback_is_refused(client: httpx.AsyncClient, host: str) -> None:
    error = error_in(await client.get("/api/v1/runs", headers={"host": host}), status=421)

    assert error["code"] == "misdirected_request"
    assert "RANKSCOPE_QUERY_LISTEN" in error["hint"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "http://[::1"])
async def test_a_page_of_another_site_may_not_ask(client: httpx.AsyncClient, origin: str) -> None:
    answer = await client.post("/api/v1/tql", content=b'{"query": "rank == 0"}', headers={"origin": origin})

    assert error_in(answer, status=403)["code"] == "foreign_request"


async def test_a_page_of_the_service_itself_may_ask(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/runs", headers={"origin": "http://localhost"})

    assert answer.status_code == 200


async def test_a_service_for_others_answers_to_any_name_but_to_no_foreign_page(store: ClickHouseStore) -> None:
    app = create_app(store, Settings.from_environment({"RANKSCOPE_QUERY_LISTEN": "0.0.0.0:8470"}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://traces.example") as api:
        asked = await api.get("/healthz")
        foreign = await api.get("/healthz", headers={"origin": "https://evil.example"})

    assert asked.status_code == 200
    error_in(foreign, status=403)


async def _endless(sent: list[int]) -> AsyncIterator[bytes]:
    while True:
        sent.append(1)
        yield b"x" * 65_536


async def test_a_body_beyond_the_limit_is_refused_by_its_announced_length(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/tql", content=b" " * (MAX_BODY_BYTES + 1))

    assert error_in(answer, status=413)["code"] == "too_large"


async def test_a_body_without_an_announced_length_is_refused_once_it_passes_the_limit(
    client: httpx.AsyncClient,
) -> None:
    sent: list[int] = []

    answer = await client.post("/api/v1/tql", content=_endless(sent))

    assert error_in(answer, status=413)["code"] == "too_large"
    assert len(sent) <= MAX_BODY_BYTES // 65_536 + 1


async def test_the_longest_body_is_read(client: httpx.AsyncClient) -> None:
    body, headers = b'{"query": "rank == 0"}'.ljust(MAX_BODY_BYTES), {"content-type": "application/json"}

    answer = await client.post("/api/v1/tql", content=body, headers=headers)

    assert error_in(answer, status=400)["code"] == "no_entity"
