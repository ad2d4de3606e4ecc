"""Figures of nodes and devices, as a list that says which query it is."""

from http import HTTPStatus

import httpx
import pytest

from tests.query_api import story
from tests.query_api.asking import get
from tests.query_api.batches import START

PATH = f"/api/v1/runs/{story.OTHER_RUN}/system"
CPU, GPU = "cpu.busy", "gpu.temperature"


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, [CPU, GPU]),
        ({"name": CPU}, [CPU]),
        ({"device": "gpu0"}, [GPU]),
        ({"device": ""}, [CPU]),
        ({"node": "node-0", "name": GPU}, [GPU]),
        ({"node": "node-1"}, []),
        ({"from": str(START), "to": str(START + 1)}, [CPU, GPU]),
        ({"from": "2026-11-29T18:21:53.000000001Z"}, []),
        ({"to": str(START)}, []),
    ],
)
async def test_figures_are_found_by_name_device_node_and_time(
    client: httpx.AsyncClient, asked: dict[str, str], names: list[str]
) -> None:
    answer = await get(client, PATH, **asked)

    assert [item["name"] for item in answer["items"]] == names
    again = await client.post("/api/v1/tql", json={"query": answer["query"], "run": story.OTHER_RUN})
    assert again.json()["items"] == answer["items"]


async def test_a_figure_says_whose_it_is_and_pages_go_on(client: httpx.AsyncClient) -> None:
    first = await get(client, PATH, limit=1)
    second = await get(client, PATH, limit=1, after=first["next"])

    (item,) = second["items"]
    assert (item["node"], item["device"], item["value"], item["time_ns"]) == ("node-0", "gpu0", 61.0, str(START))
    assert (second["next"], second["total"]) == (None, 2)


@pytest.mark.parametrize("asked", [{"from": "soon"}, {"to": "0001-01-01"}, {"from": "7"}])
async def test_a_time_that_is_none_or_of_no_row_is_refused(client: httpx.AsyncClient, asked: dict[str, str]) -> None:
    answer = await client.get(PATH, params=asked)

    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert next(iter(asked.values())) in answer.json()["message"]
