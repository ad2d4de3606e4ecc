"""One shape for every error, whatever went wrong."""

import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import LimitExceededError, StoreUnavailableError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import RunKey
from tests.ground.processes import free_port
from tests.ground.stores import FrontProcess, Store
from tests.query_api import story
from tests.query_api.asking import RUN, ask, error_in, get, refused


@pytest.mark.parametrize(
    ("path", "query", "named"),
    [
        ("/api/v1/runs", {"limit": 0}, "limit"),
        ("/api/v1/runs", {"limit": "many"}, "not 'many'"),
        ("/api/v1/runs", {"after": "!"}, "is no cursor"),
        (f"{RUN}/traces", {"kind": "rolout"}, "kind is 'rolout'"),
        (f"{RUN}/traces", {"q": "a b c d e f g h i"}, "at most 8 words"),
        (f"{RUN}/traces", {"rank": 2**31}, "rank"),
        (f"{RUN}/traces/zz/spans", {}, "trace"),
        (f"{RUN}/steps/-1/tree", {}, "step"),
        (f"{RUN}/steps/{2**63}/tree", {}, "step"),
        (f"{RUN}/tensors", {"role": "gradient"}, "role is 'gradient'"),
        (f"{RUN}/tensors", {"step": 2**64}, "step"),
    ],
)
async def test_a_parameter_that_cannot_be_meant_is_named(
    client: httpx.AsyncClient, path: str, query: dict[str, str | int], named: str
) -> None:
    error = await refused(client, path, status=422, **query)

    assert named in error["message"]


async def test_an_unknown_parameter_names_the_nearest(client: httpx.AsyncClient) -> None:
    error = await refused(client, f"{RUN}/tensors", status=422, rnak=1)

    assert error["message"] == "no parameter 'rnak' here"
    assert error["hint"] == "the nearest known one is 'rank'"
    assert "step" in error["expected"]


async def test_a_word_that_is_none_shows_the_words_there_are(client: httpx.AsyncClient) -> None:
    kind = await refused(client, f"{RUN}/traces", status=422, kind="x")

    assert kind["code"] == "invalid_request"
    assert "rollout" in kind["expected"]


@pytest.mark.parametrize("body", [{}, {"query": 5}, {"query": "rank == 1", "run": 7}, {"query": "rank", "more": 1}, []])
async def test_a_body_that_cannot_be_meant_is_named(client: httpx.AsyncClient, body: object) -> None:
    error = error_in(await client.post("/api/v1/tql", json=body), status=422)

    assert error["code"] == "invalid_request"


async def test_a_body_that_is_no_json_says_where(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json"}

    error = error_in(await client.post("/api/v1/tql", content=b'{"query":\n  oops}', headers=headers), status=422)

    assert error["code"] == "invalid_json"
    assert error["position"] == {"line": 2, "column": 3, "length": 1}


async def test_an_unknown_route_and_a_wrong_method_are_told(client: httpx.AsyncClient) -> None:
    route = await refused(client, "/api/v2/runs", status=404)
    method = error_in(await client.delete("/api/v1/runs"), status=405)

    assert (route["code"], method["code"]) == ("unknown_route", "method_not_allowed")


async def test_a_regular_expression_that_the_store_refuses_is_the_callers_error(client: httpx.AsyncClient) -> None:
    answer = await ask(client, "span.name =~ '(?P<x'")

    assert answer.status_code == 400
    error_in(answer, status=400)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("MAX_ROWS_READ", "the query would read more than 2 rows: RANKSCOPE_QUERY_MAX_ROWS_READ of this service"),
        ("MAX_RESULT_ROWS", "the answer would have more than 2 rows: RANKSCOPE_QUERY_MAX_RESULT_ROWS of this service"),
    ],
)
async def test_a_query_that_costs_too_much_says_what_to_ask_instead(told: Store, limit: str, said: str) -> None:
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": told.url, f"RANKSCOPE_QUERY_{limit}": "2"})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))

    with pytest.raises(LimitExceededError, match=said) as raised:
        await store.ledger.entries(RunKey("default", story.RUN))
    await store.close()

    assert raised.value.hint == f"ask for fewer steps, ranks or rows, or raise RANKSCOPE_QUERY_{limit}"


async def test_a_database_without_tables_says_how_they_are_made(front_process: FrontProcess) -> None:
    empty = Store(front_process.url)
    store = ClickHouseStore(ClickHouse(Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": empty.url}), Metrics()))

    with pytest.raises(StoreUnavailableError) as raised:
        await store.ping()
    await store.close()
    empty.drop()

    assert raised.value.hint == "run `rankscope migrate` once"


async def test_a_store_that_is_not_there_is_named_with_its_setting(caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://me:hush@127.0.0.1:{free_port()}/default"
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": url})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    transport = httpx.ASGITransport(create_app(store, settings), raise_app_exceptions=False)

    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        error = await refused(api, "/readyz", status=503)
        health = await get(api, "/healthz")
        probed = [record for record in caplog.records if record.levelname == "ERROR"]
        await refused(api, "/api/v1/runs", status=503)
    await store.close()

    assert error["message"] == f"the store at {url.replace('me:hush@', '')} did not answer: Connection refused"
    assert "RANKSCOPE_CLICKHOUSE_URL" in error["hint"]
    assert health["status"] == "ok"
    assert not probed  # a probe is answered, and nothing failed
    assert "a request failed" in caplog.text


async def test_what_the_service_counts_names_routes_and_no_runs(client: httpx.AsyncClient) -> None:
    await get(client, RUN)

    text = (await client.get("/metrics")).text

    assert 'rankscope_query_requests_total{route="/api/v1/runs/{run}",status="200"} 1.0' in text
    assert "bright-otter" not in text


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        *((code, 500, "the store failed at a query") for code in (202, 439, 516)),
        (497, 503, "the store denies this service what it needs"),
    ],
)
async def test_a_store_that_is_busy_or_lets_nobody_in_is_not_the_statements_fault(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, code: int, status: int, message: str
) -> None:
    def refuse(*_given: object, **_named: object) -> None:
        error = DatabaseError(f"Code: {code}. DB::Exception: not now")
        vars(error)["code"] = code
        raise error

    monkeypatch.setattr("clickhouse_connect.driver.httpclient.HttpClient.query", refuse)

    error = error_in(await client.post("/api/v1/sql", json={"query": "SELECT 1 AS one"}), status=status)

    assert error["message"].startswith(message)
