"""A trace by its id in a terminal: walked a page at a time, drawn with its events and links."""

from typing import Any

from rankscope.cli._one_trace import trace_lines
from rankscope.client import TraceWalk
from rankscope.up import Json

DETAIL: Json = {
    "run_id": "r",
    "trace_id": "ab",
    "name": "rollout",
    "status": "error",
    "duration_ns": "2000000",
    "spans": 2,
    "running": 1,
    "errors": 1,
    "kinds": {"rollout": 1, "tool": 1},
    "input_tokens": 12,
    "output_tokens": None,
    "cost_usd": 0.5,
}


def span(number: int, **fields: Any) -> Json:
    """A span as the service answers it."""
    return {
        "span_id": f"{number:016x}",
        "name": f"s{number}",
        "status": "ok",
        "start_ns": "1000000",
        "duration_ns": "2000000",
        "child_count": 0,
        **fields,
    }


def test_a_trace_is_drawn_with_what_happened_in_its_spans_and_what_they_link_to() -> None:
    event: Json = {"name": "retry", "time_ns": "2500000", "attributes": {"attempt": 2}}
    link: Json = {"trace_id": "cd", "span_id": "ef"}
    running: Json = {"status": "running", "duration_ns": None, "heartbeat_ns": "5000000"}
    items = [
        span(1, depth=0, rank=3, child_count=2, events=[event], links=[link]),
        span(2, depth=1, status="error", error_type="TimeoutError"),
        span(3, depth=1, **running),
    ]

    lines = trace_lines({**DETAIL, "items": items})

    assert lines[1] == "rollout  error  2 ms  2 spans, 1 running, 1 error"
    assert lines[2:4] == ["kinds: rollout 1, tool 1", "usage: 12 input tokens, 0.5 USD"]
    assert lines[5].split() == ["s1", "2", "ms", "rank", "3"]
    assert lines[6:8] == ["│  * retry  +1.5 ms  attempt=2", "│  -> trace cd  span ef"]
    assert lines[8].split() == ["├─", "s2", "2", "ms", "error", "TimeoutError"]
    assert lines[9].split() == ["└─", "s3", "4", "ms", "running"]


def test_a_trace_deeper_than_pythons_stack_is_walked_to_its_end() -> None:
    depth = 3_000

    def read(below: str, **parameters: str | int | None) -> Json:
        number = int(str(parameters["parent"]), 16) + 1 if below else 1
        items = [span(number, child_count=int(number < depth))]
        return {"items": items, "next": None, "spans": depth, "running": 0}

    tree = TraceWalk(read, first=10)

    assert tree.total == depth
    assert [row["depth"] for row in tree.rows(depth - 2, depth)] == [depth - 2, depth - 1]


def test_siblings_of_many_pages_are_read_to_the_last() -> None:
    def read(below: str, **parameters: str | int | None) -> Json:
        page = int(str(parameters.get("after") or 0))
        following = str(page + 1) if page < 4 else None
        return {"items": [span(page + 1)], "next": following, "spans": 5, "running": 0}

    assert [row["name"] for row in TraceWalk(read, first=1).rows(0, 9)] == ["s1", "s2", "s3", "s4", "s5"]
