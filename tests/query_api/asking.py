"""How the tests ask the service."""

from typing import Any

import httpx

from tests.query_api import story

RUN = f"/api/v1/runs/{story.RUN}"
ROLLOUT = f"{story.ROLLOUT[0]:016x}{story.ROLLOUT[1]:016x}"


async def get(api: httpx.AsyncClient, path: str, /, **query: str | int) -> dict[str, Any]:
    """The JSON of a successful answer."""
    answer = await api.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(api: httpx.AsyncClient, path: str, /, *, status: int, **query: str | int) -> dict[str, Any]:
    """The JSON of an answer that is an error, after a look at its shape."""
    answer = await api.get(path, params=query)
    return error_in(answer, status=status)


def error_in(answer: httpx.Response, *, status: int) -> dict[str, Any]:
    """The error an answer holds; every error has the same shape."""
    error = answer.json()
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert list(error) == ["code", "message", "hint", "position", "expected"]
    assert error["code"]
    assert error["message"]
    assert error["hint"]
    return error


async def ask(api: httpx.AsyncClient, query: str, *, project: str = "default", **body: str | int) -> httpx.Response:
    """The answer to a TQL query."""
    return await api.post("/api/v1/tql", params={"project": project}, json={"query": query, **body})


async def walked(api: httpx.AsyncClient, path: str, /, *, limit: int, **query: str | int) -> list[dict[str, Any]]:
    """All items of a list, page by page, after a look at each page's envelope."""
    items: list[dict[str, Any]] = []
    page = await get(api, path, limit=limit, **query)
    while True:
        items += page["items"]
        assert page["returned"] == len(page["items"]) <= limit
        assert page["truncated"] == (page["next"] is not None)
        if page["next"] is None:
            assert page["total"] == len(items)
            return items
        page = await get(api, path, limit=limit, after=page["next"], **query)
