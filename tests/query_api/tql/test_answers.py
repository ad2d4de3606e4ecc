"""What comes back: items under the service's names, pages that continue, joins that reach the right rows."""

import base64
import json
from typing import Any

import pytest

from rankscope_query_api.errors import InvalidRequestError
from tests.proto.batches import LAUNCH
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.rows import Row, spans, tensors

RANKS = (0, 1, -1)


def test_a_tensor_item_has_the_identity_and_only_the_statistics_that_are_there(ask: Asked) -> None:
    item = ask.page("tensor.role == 'grad' and tensor.name == 'layers.1' and rank == 1 | first").items[0]

    row = next(row for row in tensors(1) if row["role"] == 2 and row["name"] == "layers.1" and _is_first(row))
    assert item["role"] == "grad"
    assert (item["run_id"], item["launch_id"], item["rank"]) == ("run-1", LAUNCH.hex(), 1)
    assert item["time"].startswith("2026-11-29T")
    assert item["time_ns"] == row["time"]
    assert "loss_scale" not in item
    assert item["flags"] == []


def _is_first(row: Row) -> bool:
    same = [known for known in tensors(1) if known["role"] == 2 and known["name"] == "layers.1"]
    return row == min(same, key=lambda known: (-1 if known["step"] is None else known["step"], known["microstep"]))


def test_a_span_item_has_ids_in_hexadecimal_and_one_map_of_attributes(ask: Asked) -> None:
    item = ask.page("attr.\"odd key'\" == 'ü' and attr.x == 3 and rank == 0 | first").items[0]

    row = next(row for row in spans(0) if row["span_id"] == int(item["span_id"], 16))
    assert repr(item["attributes"]) == repr({**row["attributes"], **row["numbers"]})
    assert item["trace_id"][:16] == "0000000000000007"
    assert len(item["span_id"]) == 16
    assert item["start"].endswith("Z")
    assert isinstance(item["duration_ns"], int)


def test_a_root_has_no_parent_and_a_missing_step_is_null(ask: Asked) -> None:
    items = ask.page("missing(span.parent_id) and missing(step)").items

    assert items
    assert all(item["parent_span_id"] is None and item["step"] is None for item in items)


def test_counts_keep_the_group_of_rows_without_a_value(ask: Asked) -> None:
    items = ask.page("exists(span.span_id) | count() by attr.device | order by count desc").items

    devices = [row["attributes"].get("device") for rank in RANKS for row in spans(rank)]
    assert {item["attr.device"]: item["count"] for item in items} == {name: devices.count(name) for name in devices}


@pytest.mark.parametrize("function", ["spread", "skew", "zscore", "slowest", "median"])
def test_comparing_ranks_of_which_none_has_a_value_is_missing(ask: Asked, function: str) -> None:
    found = ask.page(f"missing(tensor.mean) | across rank: {function}(tensor.mean)").items

    assert [item[function] for item in found] == [None]


def test_a_join_returns_the_first_scopes_rows_whose_rank_and_step_have_a_span(ask: Asked) -> None:
    query = "tensor.nonfinite_count > 0 and span.duration > 1ms and missing(span.error_type) and step >= 0"

    found = ask.page(query)

    reached = {
        (rank, row["step"])
        for rank in RANKS
        for row in spans(rank)
        if row["flags"] & 8 and row["step"] is not None and row["duration"] > 1_000_000 and not row["error_type"]
    }
    wanted = [
        (rank, row["step"])
        for rank in RANKS
        for row in tensors(rank)
        if (row["nonfinite_count"] or 0) > 0 and (rank, row["step"]) in reached
    ]
    assert sorted((item["rank"], item["step"]) for item in found.items) == sorted(wanted)
    assert wanted


def test_a_join_from_spans_reaches_spans_of_step_traces_only(ask: Asked) -> None:
    found = ask.page("exists(span.span_id) and exists(tensor.dtype)").items

    assert found
    assert all("in_step_trace" in item["flags"] and item["step"] is not None for item in found)


def test_a_limit_holds_over_all_pages_and_total_says_so(ask: Asked) -> None:
    query = "exists(tensor.dtype) | limit 5"
    first = ask.page(query, limit=3)
    second = ask.page(query, limit=3, after=first.next)

    assert (first.total, len(first.rows), len(second.rows), second.next) == (5, 3, 2, None)


def cursor_with(text: str, **changed: Any) -> str:
    values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    for position, value in changed.items():
        values[int(position[1:])] = value
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "changed",
    [
        {"_0": "another query"},
        {"_1": -1},
        {"_1": "3"},
        {"_2": 2**63},
        {"_4": -1},
        {"_5": 256},
        {"_5": True},
        {"_5": 1.5},
        {"_8": None},
        {"_9": "\ud800"},
        {"_9": 7},
    ],
)
def test_a_cursor_that_was_changed_is_refused(ask: Asked, changed: dict[str, Any]) -> None:
    made = ask.page("exists(tensor.dtype)", limit=3).next
    assert made is not None

    with pytest.raises(InvalidRequestError, match="is no cursor of this query"):
        ask.page("exists(tensor.dtype)", after=cursor_with(made, **changed))


@pytest.mark.parametrize("text", ["", "!", "bnVsbA", "W10", "é", "A" * 5000])
def test_a_text_that_is_no_cursor_is_refused(ask: Asked, text: str) -> None:
    with pytest.raises(InvalidRequestError):
        ask.page("exists(tensor.dtype)", after=text)


@pytest.mark.parametrize(
    "other", ["exists(tensor.l2)", "exists(tensor.dtype) | order by rank", "exists(tensor.dtype) | limit 9"]
)
def test_a_cursor_of_another_query_is_refused(ask: Asked, other: str) -> None:
    made = ask.page("exists(tensor.dtype)", limit=3).next

    with pytest.raises(InvalidRequestError):
        ask.page(other, after=made)


def test_the_origin_of_a_fault_comes_first(ask: Asked) -> None:
    steps = [item["step"] for item in ask.page("tensor.nonfinite_count > 0 and exists(step)").items]
    phases = [item["phase"] for item in ask.page("tensor.nonfinite_count > 0 and step == 5 and microstep == 0").items]

    assert steps == sorted(steps)
    order = ["", "input", "forward", "backward", "optimizer"]
    assert phases == sorted(phases, key=order.index)
