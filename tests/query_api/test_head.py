"""HEAD is answered on every route that GET is: the same status and headers, and no body."""

import httpx
import pytest

from tests.query_api.asking import ROLLOUT, RUN

PATHS = [
    *("/healthz", "/readyz", "/api/v1/openapi.json", "/api/v1/runs", f"{RUN}/traces?limit=1", f"{RUN}/steps/14/tree"),
    *(f"{RUN}/traces/{ROLLOUT}/spans", "/api/v1/runs/nobody", f"{RUN}/tensors?role=x", "/api/v1/nothing"),
]


@pytest.mark.parametrize("path", PATHS)
async def test_head_answers_as_get_does_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    whole = await client.get(path)

    head = await client.head(path)

    assert head.status_code == whole.status_code
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert head.headers["content-length"] == str(len(whole.content))
    assert head.content == b""


@pytest.mark.parametrize("path", [f"{RUN}/traces/export", f"{RUN}/traces/{ROLLOUT}/export"])
async def test_a_head_of_what_is_streamed_does_not_say_that_it_is_empty(api: httpx.AsyncClient, path: str) -> None:
    head, whole = await api.head(path), await api.get(path)

    assert head.status_code == whole.status_code == 200
    assert "content-length" not in head.headers
    assert {name: head.headers[name] for name in ("content-type", "content-disposition")} == {
        name: whole.headers[name] for name in ("content-type", "content-disposition")
    }
    assert head.content == b"" != whole.content


async def test_the_connection_lives_on_after_a_head(api: httpx.AsyncClient) -> None:
    head = await api.head("/api/v1/runs")
    whole = await api.get("/api/v1/runs")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))


async def test_the_metrics_have_a_head_too(client: httpx.AsyncClient) -> None:
    head = await client.head("/metrics")

    assert (head.status_code, head.content) == (200, b"")


async def test_a_route_without_get_has_no_head(client: httpx.AsyncClient) -> None:
    assert (await client.head("/api/v1/tql")).status_code == 405
