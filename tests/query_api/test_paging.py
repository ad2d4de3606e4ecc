"""A cursor belongs to one list: to a route, a run and its filters. Every other list refuses it."""

import base64
import json
from typing import TypeAlias

import httpx
import pytest

from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.routes.paging import Listing
from tests.query_api import story
from tests.query_api.asking import ROLLOUT, RUN, get, refused

MARK = "0123456789ab"
OTHER = f"/api/v1/runs/{story.OTHER_RUN}"
TREE = f"{RUN}/steps/14/tree"

Query: TypeAlias = dict[str, str | int]

STRANGERS: list[tuple[tuple[str, Query], tuple[str, Query]]] = [
    (("/api/v1/runs", {}), ("/api/v1/runs", {"project": "other"})),
    ((f"{RUN}/metrics", {"name": "loss"}), (f"{OTHER}/metrics", {"name": "loss"})),
    ((f"{RUN}/metrics", {"name": "loss"}), (f"{RUN}/metrics", {})),
    ((f"{RUN}/traces", {}), (f"{OTHER}/traces", {})),
    ((f"{RUN}/traces", {}), (f"{RUN}/traces", {"rank": 1})),
    ((f"{RUN}/traces", {"step": 14}), (f"{RUN}/traces", {"step": 15})),
    ((f"{RUN}/traces", {"q": "step"}), (f"{RUN}/traces", {"q": "layers"})),
    ((f"{RUN}/traces", {"status": "ok"}), (f"{RUN}/traces", {"kind": "system"})),
    ((f"{RUN}/steps", {}), (f"{RUN}/steps", {"launch": "1"})),
    ((f"{RUN}/steps", {"launch": "1"}), (f"{RUN}/steps", {"launch": "0"})),
    ((TREE, {}), (f"{RUN}/steps/15/tree", {})),
    ((TREE, {}), (TREE, {"rank": 0})),
    ((TREE, {"rank": 0}), (TREE, {"rank": 1})),
    ((f"{RUN}/tensors", {}), (f"{RUN}/tensors", {"role": "grad"})),
    ((f"{RUN}/tensors", {"rank": 0}), (f"{RUN}/tensors", {"rank": 1})),
    ((f"{RUN}/tensors", {}), (f"{OTHER}/tensors", {})),
    ((f"{RUN}/tensors", {}), (f"{RUN}/traces", {})),
]
"""A list that has two pages, and another list that its cursor means nothing to."""


@pytest.mark.parametrize(("one", "other"), STRANGERS)
async def test_a_cursor_of_one_list_is_refused_by_every_other(
    client: httpx.AsyncClient, one: tuple[str, Query], other: tuple[str, Query]
) -> None:
    path, query = one
    after = (await get(client, path, limit=1, **query))["next"]

    error = await refused(client, other[0], status=422, limit=1, after=after, **other[1])

    assert error["code"] == "invalid_cursor"
    assert "same run and the same filters" in error["hint"]


async def test_a_cursor_of_one_trace_is_refused_by_another(client: httpx.AsyncClient) -> None:
    traces = (await get(client, f"{RUN}/traces", kind="system", limit=2))["items"]
    one, other = (f"{RUN}/traces/{trace['trace_id']}/spans" for trace in traces)
    after = (await get(client, one, limit=1))["next"]

    error = await refused(client, other, status=422, after=after)
    children = await refused(client, one, status=422, after=after, parent=await first_span(client, one))

    assert error["code"] == children["code"] == "invalid_cursor"


async def first_span(client: httpx.AsyncClient, path: str) -> str:
    """The id of the first root of a trace."""
    return (await get(client, path, limit=1))["items"][0]["span_id"]


async def test_a_page_may_be_longer_than_the_one_before_and_name_the_project_that_was_meant(
    client: httpx.AsyncClient,
) -> None:
    whole = (await get(client, f"{RUN}/traces", limit=4))["items"]
    after = (await get(client, f"{RUN}/traces", limit=1))["next"]

    rest = await get(client, f"{RUN}/traces", limit=3, after=after, project="default")

    assert rest["items"] == whole[1:]


async def test_a_cursor_of_a_run_is_refused_in_the_run_of_the_same_name_of_another_project(
    client: httpx.AsyncClient,
) -> None:
    after = (await get(client, f"{RUN}/traces", limit=1))["next"]

    assert (await refused(client, f"{RUN}/traces", status=422, after=after, project="other"))[
        "code"
    ] == "invalid_cursor"
    assert (await get(client, f"{RUN}/traces/{ROLLOUT}/spans", project="other"))["total"] == 1


def test_a_cursor_brings_its_key_back() -> None:
    text = Listing(MARK).cursor((2**64 - 1, -1, "läuft"))

    assert Listing(MARK, text).begin((int, int, str)) == (2**64 - 1, -1, "läuft")
    assert Listing(MARK, None).begin((int,)) is None
    assert Listing(MARK).cursor(None) is None


def spelled(value: object) -> str:
    """A value as a cursor spells it."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize("text", ["", "%", "bm9wZQ", "WzFd", "W10", "eyJhIjoxfQ", "é"])
def test_anything_else_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no cursor of this list"):
        Listing(MARK, text).begin((int, int))


@pytest.mark.parametrize(
    "values",
    [
        *([], [MARK], [MARK, 1], [MARK, 1, 2, 3], [MARK, 1, "2"], [MARK, True, 2], [MARK, 1, 2**64]),
        *([1, 2], ["x", 1, 2], [None, 1, 2], None, {}, 5),
    ],
)
def test_what_is_spelled_like_a_cursor_and_fits_no_key_is_none(values: object) -> None:
    with pytest.raises(InvalidRequestError, match="is no cursor of this list"):
        Listing(MARK, spelled(values)).begin((int, int))
