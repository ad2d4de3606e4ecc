"""What one statement makes the store remember of a condition hides no row from the next."""

import httpx
import pytest

FILTERED = [
    ("tql", {"query": "exists(tensor.name) | limit 1000 | where tensor.l2 < -1"}),
    ("tql", {"query": "exists(tensor.name) | order by tensor.l2 | limit 1000 | where tensor.l2 < -1 | count()"}),
    ("sql", {"query": "SELECT name FROM (SELECT name FROM tensor_stats LIMIT 1000) AS t WHERE name = 'none'"}),
    ("tql/complete", {"query": 'tensor.name == "no name begins so'}),
    ("tql", {"query": "tensor.l2 < -1"}),
    ("tql", {"query": "tensor.l2 < -1 | order by tensor.l2 | limit 1000"}),
    ("tql", {"query": "tensor.l2 < -1 | count()"}),
]
"""Filters that leave nothing: of the first thousand rows, and of all in one SELECT, which alone is remembered."""


@pytest.mark.parametrize(("route", "body"), FILTERED)
async def test_a_filter_behind_a_limit_hides_no_row_from_later_queries(
    api: httpx.AsyncClient, route: str, body: dict[str, str]
) -> None:
    counted = {"query": "exists(tensor.name) | count()"}
    before = (await api.post("/api/v1/tql", json=counted)).json()["items"]

    for _ in range(2):
        assert (await api.post(f"/api/v1/{route}", json=body)).status_code == 200

    assert before[0]["count"] > 0
    assert (await api.post("/api/v1/tql", json=counted)).json()["items"] == before
    listed = (await api.post("/api/v1/sql", json={"query": "SELECT count() AS n FROM tensor_stats"})).json()["items"]
    assert listed == [{"n": before[0]["count"]}]
