"""One trace over HTTP: totals over all of it, and its tree a page of siblings at a time, whatever the rows."""

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from rankscope_proto.names import EventKind, RunStatus, Severity, SpanKind, SpanStatus
from rankscope_query_api.trees import build_forest
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import ROLLOUT, RUN, get, refused
from tests.query_api.batches import MS, START, Row, Writer, heard

HI, LO = 0xABC, 0xDEF
TRACE = f"/api/v1/runs/r/traces/{HI:016x}{LO:016x}"


def span(span_id: int, parent: int = 0, *, at: int | None = None, **fields: Any) -> Row:
    """A span of the trace; it begins at the millisecond of its id unless told otherwise."""
    return {
        "span_id": span_id,
        "parent_span_id": parent,
        "trace_hi": HI,
        "trace_lo": LO,
        "name": f"s{span_id}",
        "kind": SpanKind.TOOL.code,
        "status": SpanStatus.OK.code,
        "start": START + (span_id if at is None else at) * MS,
        "duration": MS,
        **fields,
    }


def stored(own: Store, rows: Sequence[Row], events: Sequence[Row] = ()) -> None:
    """Stores spans of one process, and their events."""
    insert(own.client, Writer("r", 0).seal(spans=rows, events=events))


async def walked(api: httpx.AsyncClient, *, limit: int) -> list[tuple[dict[str, Any], int]]:
    """Every span of the trace with its depth, a parent before its children, read in pages of `limit`."""
    detail = await get(api, TRACE, limit=limit)
    found: list[tuple[dict[str, Any], int]] = []
    stack = [(one, 0) for one in reversed(await _siblings(api, detail, limit=limit))]
    while stack:
        one, depth = stack.pop()
        found.append((one, depth))
        assert len(found) < 10_000, "the tree has no end"
        if one["child_count"]:
            first = await get(api, f"{TRACE}/spans", parent=one["span_id"], limit=limit)
            below = await _siblings(api, first, limit=limit, parent=one["span_id"])
            assert len(below) == one["child_count"]
            stack += [(child, depth + 1) for child in reversed(below)]
    return found


async def _siblings(api: httpx.AsyncClient, page: dict[str, Any], *, limit: int, **where: str) -> list[dict[str, Any]]:
    items = list(page["items"])
    while page["next"]:
        page = await get(api, f"{TRACE}/spans", limit=limit, after=page["next"], **where)
        items += page["items"]
    assert page["total"] == len(items)
    return items


async def test_the_status_of_a_trace_is_that_of_all_its_spans_not_of_the_shown_ones(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    failed = span(9, 3, status=SpanStatus.ERROR.code, error_type="ValueError", kind=SpanKind.MODEL.code)
    stored(own, [span(1), span(2), span(3, 1), failed])

    detail = await get(api_of_own, TRACE, limit=1)

    assert [one["name"] for one in detail["items"]] == ["s1"]
    assert (detail["status"], detail["spans"], detail["errors"]) == ("error", 4, 1)
    assert detail["error_types"] == ["ValueError"]
    assert detail["kinds"] == {"model": 1, "tool": 3}
    assert (detail["total"], detail["returned"], detail["truncated"]) == (2, 1, True)


async def test_the_next_of_a_trace_is_taken_by_the_list_of_its_spans(api_of_own: httpx.AsyncClient, own: Store) -> None:
    stored(own, [span(number) for number in range(1, 6)])

    detail = await get(api_of_own, TRACE, limit=2)
    rest = await get(api_of_own, f"{TRACE}/spans", after=detail["next"])
    error = await refused(api_of_own, f"{TRACE}/spans", status=422, after=detail["next"], parent=f"{1:016x}")

    assert [one["name"] for one in rest["items"]] == ["s3", "s4", "s5"]
    assert error["code"] == "invalid_cursor"


async def test_siblings_of_one_moment_come_by_their_ids_and_each_once(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    stored(own, [span(1), *(span(number, 1, at=5) for number in (9, 4, 2**63 + 1, 7, 3))])

    spans = await walked(api_of_own, limit=2)

    assert [int(one["span_id"], 16) for one, _ in spans] == [1, 3, 4, 7, 9, 2**63 + 1]


def tangles() -> Iterator[list[Row]]:
    """Rows that make no tree: parents that are nowhere, cycles, clocks that are behind; each span once."""
    for seed in range(4):
        choose = random.Random(seed)
        yield [
            span(number, choose.choice((0, 99, *range(1, 16))), at=choose.randrange(8))
            for number in choose.sample(range(1, 16), 14)
        ]
    yield [span(1, 3), span(2, 1), span(3, 2), span(4, 2)]
    yield [span(1, 1)]


@pytest.mark.parametrize("rows", list(tangles()))
async def test_a_tangle_is_walked_as_the_tree_of_all_its_spans_has_it(
    rows: list[Row], api_of_own: httpx.AsyncClient, own: Store
) -> None:
    stored(own, rows)
    ordered = sorted(rows, key=lambda row: (row["start"], row["span_id"]))
    forest = build_forest([row["span_id"] for row in ordered], [row["parent_span_id"] for row in ordered])

    spans = await walked(api_of_own, limit=3)
    detail = await get(api_of_own, TRACE)

    assert [(int(one["span_id"], 16), depth) for one, depth in spans] == [
        (ordered[place]["span_id"], depth) for place, depth in forest.preorder()
    ]
    assert {int(one["span_id"], 16) for one, _ in spans if one["orphan"]} == {
        ordered[place]["span_id"] for place in forest.orphans
    }
    assert {int(one["span_id"], 16) for one, _ in spans if one["cycle_cut"]} == {
        ordered[place]["span_id"] for place in forest.cycles_cut
    }
    assert (detail["orphans"], detail["cycles"]) == (len(forest.orphans), len(forest.cycles_cut))
    assert detail["warnings"] == forest.warnings()


async def test_a_span_that_is_stored_thrice_is_shown_and_counted_once(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    rows = [span(1), span(2, 1, status=SpanStatus.ERROR.code)]
    insert(own.client, Writer("r", 0).seal(spans=rows), token="0")
    insert(own.client, Writer("r", 1).seal(spans=rows), token="1")
    insert(own.client, Writer("r", 2).seal(spans=rows), token="2")

    spans = await walked(api_of_own, limit=10)
    detail = await get(api_of_own, TRACE)

    assert [one["name"] for one, _ in spans] == ["s1", "s2"]
    assert (detail["spans"], detail["errors"], detail["copies"], detail["kinds"]) == (2, 1, 4, {"tool": 2})
    assert detail["warnings"] == ["4 rows repeat a span id that was there before; they are not shown"]


async def test_copies_that_name_different_parents_make_no_endless_tree(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    # The second row of span 1 would be a child of its own child.
    insert(own.client, Writer("r", 0).seal(spans=[span(1), span(2, 1)]), token="0")
    insert(own.client, Writer("r", 1).seal(spans=[span(1, 2, at=5)]), token="1")

    roots = await get(api_of_own, f"{TRACE}/spans")
    below = await get(api_of_own, f"{TRACE}/spans", parent=f"{2:016x}")

    assert [one["name"] for one in roots["items"]] == ["s1"]
    assert below["items"] == []


async def test_an_interrupted_copy_does_not_hide_the_finished_span(api_of_own: httpx.AsyncClient, own: Store) -> None:
    insert(own.client, Writer("r", 0).seal(spans=[span(1, status=SpanStatus.INTERRUPTED.code, duration=9)]), token="0")
    insert(own.client, Writer("r", 1).seal(spans=[span(1)]), token="1")

    detail = await get(api_of_own, TRACE)

    assert (detail["status"], detail["items"][0]["status"], detail["copies"]) == ("ok", "ok", 1)


async def test_a_span_is_shown_with_its_events_and_links(api_of_own: httpx.AsyncClient, own: Store) -> None:
    def event(number: int, payload: str) -> Row:
        return {
            "time": START + number * MS,
            "kind": EventKind.SPAN_EVENT.value,
            "name": f"e{number}",
            "severity": Severity.INFO.code,
            "payload": payload,
            "span_id": 1,
            "trace_hi": HI,
            "trace_lo": LO,
        }

    linked: Row = {"link_trace_hi": [5], "link_trace_lo": [6], "link_span_id": [7]}
    elsewhere = {**event(4, ""), "trace_lo": LO + 1}
    stored(own, [span(1, **linked)], events=[event(3, '{"tokens":12}'), event(2, "plain"), elsewhere])

    (root,) = (await get(api_of_own, TRACE))["items"]

    assert [(one["name"], one["attributes"]) for one in root["events"]] == [("e2", "plain"), ("e3", {"tokens": 12})]
    assert (root["events"][0]["time_ns"], root["has_more_events"]) == (str(START + 2 * MS), False)
    assert root["links"] == [{"trace_id": f"{5:016x}{6:016x}", "span_id": f"{7:016x}"}]


def beaten(own: Store, *, rows: Sequence[Row], stack: Sequence[int], names: Sequence[str]) -> None:
    """A process that lives, with these spans stored and these open on one thread."""
    now = time.time_ns()
    heartbeat: Row = {
        "heartbeat": now,
        "thread": "MainThread",
        "step": 7,
        "stack_span_id": list(stack),
        "stack_name": list(names),
        "stack_start": [START + number * MS for number in stack],
        "stack_trace_hi": [HI] * len(stack),
        "stack_trace_lo": [LO] * len(stack),
        "stack_kind": [SpanKind.ROLLOUT.code] * len(stack),
    }
    info: Row = {"status": RunStatus.RUNNING.code, "start": now}
    insert(own.client, Writer("r", 0).seal(sealed_ns=now, spans=rows, open_spans=[heartbeat], run_info=[info]))


async def test_what_a_living_process_has_open_runs_and_keeps_its_children(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    beaten(own, rows=[span(3, 2), span(4, 2)], stack=[1, 2], names=["rollout", "turn"])
    heard(own, seconds_ago=2)

    spans = await walked(api_of_own, limit=10)
    detail = await get(api_of_own, TRACE)

    assert [(one["name"], one["status"], depth) for one, depth in spans] == [
        ("rollout", "running", 0),
        ("turn", "running", 1),
        ("s3", "ok", 2),
        ("s4", "ok", 2),
    ]
    assert (spans[0][0]["duration_ns"], spans[0][0]["step"], spans[0][0]["thread"]) == (None, 7, "MainThread")
    assert (detail["status"], detail["running"], detail["name"], detail["kind"]) == ("running", 2, "rollout", "rollout")
    assert (detail["spans"], detail["orphans"], detail["start_ns"]) == (2, 0, str(START + MS))


async def test_what_is_around_an_orphan_has_the_roots_that_are_open(api_of_own: httpx.AsyncClient, own: Store) -> None:
    beaten(own, rows=[span(3, 77), span(4)], stack=[1, 2], names=["rollout", "turn"])
    heard(own, seconds_ago=2)

    window = await get(api_of_own, f"{TRACE}/window", span=f"{3:016x}")

    assert [one["name"] for one in window["items"]] == ["rollout", "s3", "s4"]
    assert ([one["orphan"] for one in window["items"]], window["total"]) == ([False, True, False], 3)


async def test_what_an_open_span_told_before_its_first_child_ended_is_shown(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    hours = 3_600 * 1_000
    told: Row = {"kind": EventKind.SPAN_EVENT.value, "time": START + 2 * MS, "name": "reset", "span_id": 1}
    stored(own, [span(3, 1, at=5 * hours)], events=[{**told, "trace_hi": HI, "trace_lo": LO}])
    beaten(own, rows=[], stack=[1], names=["rollout"])
    heard(own, seconds_ago=2)

    (root,) = (await get(api_of_own, TRACE))["items"]

    assert (root["status"], root["child_count"]) == ("running", 1)
    assert [event["name"] for event in root["events"]] == ["reset"]


@pytest.mark.parametrize("duration", [-9 * MS, 2**63 - 1])
async def test_a_span_that_ends_before_it_begins_is_still_there(
    duration: int, api_of_own: httpx.AsyncClient, own: Store
) -> None:
    stored(own, [span(1, duration=duration)])

    detail = await get(api_of_own, TRACE)

    assert [(one["name"], one["duration_ns"]) for one in detail["items"]] == [("s1", str(duration))]


async def test_a_trace_that_has_only_begun_is_there(api_of_own: httpx.AsyncClient, own: Store) -> None:
    beaten(own, rows=[], stack=[1], names=["rollout"])
    heard(own, seconds_ago=2)

    detail = await get(api_of_own, TRACE)

    assert (detail["status"], detail["spans"], detail["running"], detail["total"]) == ("running", 0, 1, 1)


async def test_what_a_silent_process_had_open_does_not_run(api_of_own: httpx.AsyncClient, own: Store) -> None:
    beaten(own, rows=[span(3, 2)], stack=[1, 2], names=["rollout", "turn"])
    heard(own, seconds_ago=90)

    detail = await get(api_of_own, TRACE)

    assert (detail["status"], detail["running"], detail["orphans"]) == ("ok", 0, 1)


async def test_a_span_that_ended_since_the_heartbeat_is_shown_as_it_ended(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    beaten(own, rows=[span(1), span(3, 1)], stack=[1], names=["rollout"])
    heard(own, seconds_ago=2)

    spans = await walked(api_of_own, limit=10)

    assert [(one["name"], one["status"]) for one, _ in spans] == [("s1", "ok"), ("s3", "ok")]


async def test_roots_and_children_are_read_as_they_are_opened(api: httpx.AsyncClient) -> None:
    path = f"{RUN}/traces/{ROLLOUT}/spans"

    roots = await get(api, path)
    children = await get(api, path, parent=roots["items"][0]["span_id"])

    [root], [child] = roots["items"], children["items"]
    assert (root["name"], root["child_count"], root["metrics"]) == ("rollout", 1, {"reward": "-Infinity"})
    assert (child["name"], child["error_type"]) == ("search", "TimeoutError")
    assert child["attributes"] == {"Engine": "Harbour"}
    assert child["links"] == [{"trace_id": f"{7:016x}{8:016x}", "span_id": f"{9:016x}"}]


async def test_an_unknown_trace_an_unknown_span_and_an_unknown_run_are_told_apart(api: httpx.AsyncClient) -> None:
    no_trace = await refused(api, f"{RUN}/traces/{'0' * 31}1", status=404)
    no_roots = await refused(api, f"{RUN}/traces/{'0' * 31}1/spans", status=404)
    no_span = await refused(api, f"{RUN}/traces/{ROLLOUT}/spans", status=404, parent="ff" * 8)
    no_run = await refused(api, f"/api/v1/runs/nobody/traces/{ROLLOUT}", status=404)

    assert (no_trace["code"], no_roots["code"]) == ("unknown_trace", "unknown_trace")
    assert (no_span["code"], no_run["code"]) == ("unknown_span", "unknown_run")


async def test_a_page_has_at_most_a_thousand_spans(api: httpx.AsyncClient) -> None:
    error = await refused(api, f"{RUN}/traces/{ROLLOUT}/spans", status=422, limit=1_001)

    assert "limit" in error["message"]


async def test_ids_are_understood_in_either_case(api: httpx.AsyncClient) -> None:
    detail = await get(api, f"{RUN}/traces/{ROLLOUT.upper()}")

    assert detail["trace_id"] == ROLLOUT
