"""What is around one span of a trace: ancestors, siblings on both sides, children, whatever the rows."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.names import SpanKind, SpanStatus
from rankscope_query_api.routes.span_window import MOST_ANCESTORS
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import get, refused
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.conftest import over

WIDE, DEEP, TORN = 1, 2, 3
DEEPEST = 300
CHILDREN = 60


def span(trace: int, span_id: int, parent: int = 0, *, at: int | None = None, lasts: int = 1, **more: Any) -> Row:
    """A span that begins at the millisecond of its id, unless told otherwise."""
    return {
        "span_id": span_id,
        "parent_span_id": parent,
        "trace_hi": 7,
        "trace_lo": trace,
        "name": f"s{span_id}",
        "kind": SpanKind.TOOL.code,
        "status": SpanStatus.OK.code,
        "start": START + (span_id if at is None else at) * MS,
        "duration": lasts * MS,
        **more,
    }


def rows() -> Iterator[Row]:
    """A root with sixty children of which one has three; a chain; and a trace that nothing holds together."""
    yield span(WIDE, 1, lasts=1000)
    yield from (span(WIDE, number, 1) for number in range(2, CHILDREN + 2))
    yield from (span(WIDE, number, 30, at=30) for number in (900, 901, 902))
    yield span(WIDE, 30, 1)  # a copy
    yield from (span(DEEP, number, number - 1, lasts=1000) for number in range(1, DEEPEST + 1))
    yield from (span(TORN, 1), span(TORN, 2, 77), span(TORN, 3, 2), span(TORN, 4))
    yield from (span(TORN, 11, 12), span(TORN, 12, 11), span(TORN, 13, 12, lasts=9))
    yield from (span(TORN, 21, 4, at=900), span(TORN, 22, 21, at=5))  # begins long before its parent


@pytest.fixture(scope="module")
def traces(front_process: FrontProcess) -> Iterator[Store]:
    """A database with all of it."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, Writer("r", 0).seal(spans=list(rows())))
    yield store
    store.drop()


@pytest_asyncio.fixture
async def windows(traces: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(traces) as client:
        yield client


def window_of(trace: int) -> str:
    """The route of a trace's windows."""
    return f"/api/v1/runs/r/traces/{7:016x}{trace:016x}/window"


async def window(api: httpx.AsyncClient, trace: int, span_id: int, *, around: int = 100) -> dict[str, Any]:
    """What is around a span."""
    return await get(api, window_of(trace), span=f"{span_id:016x}", around=around)


def named(spans: list[dict[str, Any]]) -> list[str]:
    """Their names."""
    return [one["name"] for one in spans]


@pytest.mark.parametrize("span_id", [2, 5, 30, 58, 61])
async def test_a_span_is_shown_among_its_siblings_wherever_it_stands(windows: httpx.AsyncClient, span_id: int) -> None:
    shown = await window(windows, WIDE, span_id, around=5)

    expected = list(range(max(2, span_id - 5), min(CHILDREN + 1, span_id + 5) + 1))
    assert named(shown["items"]) == [f"s{number}" for number in expected]
    assert shown["items"][shown["at"]]["name"] == f"s{span_id}"
    assert (shown["has_before"], shown["has_after"]) == (expected[0] > 2, expected[-1] < CHILDREN + 1)
    assert (shown["total"], named(shown["ancestors"]), shown["is_whole_above"]) == (CHILDREN, ["s1"], True)


async def test_its_first_children_are_shown_and_all_are_counted(windows: httpx.AsyncClient) -> None:
    shown = await window(windows, WIDE, 30, around=2)

    assert (named(shown["children"]), shown["children_total"]) == (["s900", "s901"], 3)


async def test_the_nearest_ancestors_of_a_deep_span_are_shown(windows: httpx.AsyncClient) -> None:
    shown = await window(windows, DEEP, DEEPEST)

    assert named(shown["ancestors"]) == [f"s{number}" for number in range(DEEPEST - MOST_ANCESTORS, DEEPEST)]
    assert shown["is_whole_above"] is False


async def test_the_siblings_of_an_orphan_are_the_roots(windows: httpx.AsyncClient) -> None:
    shown = await window(windows, TORN, 2)

    assert named(shown["items"]) == ["s1", "s2", "s4"]
    assert [one["orphan"] for one in shown["items"]] == [False, True, False]
    assert shown["warnings"] == ["spans that name a parent that is not stored are shown among the roots"]


async def test_a_span_below_a_cycle_has_its_ancestors_once(windows: httpx.AsyncClient) -> None:
    shown = await window(windows, TORN, 13)

    assert (named(shown["ancestors"]), shown["warnings"]) == (
        *(["s11", "s12"], ["its ancestors lead back to it: they are shown once"]),
    )


async def test_ancestors_are_found_whose_clock_says_that_they_came_later(windows: httpx.AsyncClient) -> None:
    shown = await window(windows, TORN, 22)

    assert named(shown["ancestors"]) == ["s4", "s21"]
    assert [one["late"] for one in shown["items"]] == [True]


@pytest.mark.parametrize(("span_id", "status"), [("00000000000000ff", 404), ("ff", 422), ("", 422)])
async def test_a_span_that_is_not_there_is_refused(windows: httpx.AsyncClient, span_id: str, status: int) -> None:
    error = await refused(windows, window_of(WIDE), status=status, span=span_id)

    assert error["code"] == ("unknown_span" if status == 404 else "invalid_request")
