"""How the tests send statements."""

from typing import Any

import httpx

from tests.query_api.asking import error_in


async def send(api: httpx.AsyncClient, query: str, /, *, project: str = "default", **body: Any) -> httpx.Response:
    """The answer to a statement."""
    return await api.post("/api/v1/sql", params={"project": project}, json={"query": query, **body})


async def rows(api: httpx.AsyncClient, query: str, /, **body: Any) -> list[dict[str, Any]]:
    """The rows of an answer."""
    answer = await send(api, query, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def row(api: httpx.AsyncClient, query: str, /, **body: Any) -> dict[str, Any]:
    """The only row of an answer."""
    (only,) = await rows(api, query, **body)
    return only


async def refused(api: httpx.AsyncClient, query: str, /, *, status: int = 400, **body: Any) -> dict[str, Any]:
    """The error that a statement is answered with."""
    return error_in(await send(api, query, **body), status=status)
