"""How the tree of a step and a window of a trace are drawn: who is missing and why, groups, what is known of clocks."""

from typing import Any

from rankscope.cli._step_tree import REASONS_DRAWN, merged_lines, rank_tree_lines
from rankscope.cli._window import window_lines

CLOCK: dict[str, Any] = {"applied": True, "server": "gateway", "error_ns": "300000", "unmeasured_ranks": [3]}


def node(name: str, depth: int, **more: Any) -> dict[str, Any]:
    """A place of a step."""
    times = {"min_ns": "1000000", "median_ns": "2000000", "max_ns": "3000000", "slowest_rank": 1}
    return {"name": name, "depth": depth, **times, "charged_wait_ns": None, "missing_ranks": [], **more}


def tree(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A step over its ranks."""
    return {"run_id": "r", "step": 7, "items": nodes, "ranks": [], "missing_ranks": [], "clock": CLOCK, **more}


def test_each_missing_rank_is_told_with_its_reason() -> None:
    missing = [{"rank": 2, "reason": "silent", "detail": "nothing was heard of it for 90 s"}]

    lines = merged_lines(tree(node("step", 0, missing_ranks=[{"rank": 3, "reason": "no_span"}]), missing_ranks=missing))

    assert lines[0].endswith("MISSING 2")
    assert lines[1] == "  rank 2: silent: nothing was heard of it for 90 s"
    assert lines[-1].endswith("rank 1  not on rank 3")


def test_of_many_missing_ranks_the_first_are_told_and_how_many_more_there_are() -> None:
    missing = [{"rank": rank, "reason": "silent", "detail": "so"} for rank in range(REASONS_DRAWN + 3)]

    lines = merged_lines(tree(missing_ranks=missing))

    assert lines[REASONS_DRAWN] == f"  rank {REASONS_DRAWN - 1}: silent: so"
    assert lines[REASONS_DRAWN + 1] == "  and 3 more: --json has their reasons"


def test_groups_are_drawn_below_their_place_and_a_wait_beside_it() -> None:
    group = {"group": 1, "ranks": 4, **node("", 0, charged_wait_ns="50000000")}
    nameless = {**group, "group": None, "charged_wait_ns": None}

    lines = merged_lines(tree(node("step", 0, groups=[group, nameless], groups_total=5)))

    assert lines[-3].split()[:4] == ["=", "1", "(4", "ranks)"]
    assert lines[-3].endswith("rank 1  held others up 50 ms")
    assert lines[-2].split()[:3] == ["=", "not", "said"]
    assert lines[-1].strip() == "and 3 more groups, none of them slower"


def test_what_is_known_of_clocks_is_said_above_a_tree() -> None:
    unmeasured = {**CLOCK, "applied": False}

    assert merged_lines(tree())[1] == "clocks: put on the server's, within 300 µs, but not those of rank 3"
    assert rank_tree_lines({**tree(), "rank": 0, "clock": unmeasured})[1].startswith("clocks: not measured")


def span(name: str) -> dict[str, Any]:
    """A span of a trace."""
    return {"name": name, "duration_ns": "1000000", "rank": 0, "child_count": 0, "events": [], "links": []}


def test_a_span_is_drawn_among_its_siblings_below_its_ancestors_and_above_its_children() -> None:
    window = {
        "run_id": "r",
        "trace_id": "t",
        "span_id": "s",
        "ancestors": [span("root")],
        "items": [span("before"), span("meant"), span("after")],
        "at": 1,
        "children": [span("child")],
        "total": 9,
        "children_total": 1,
        "is_whole_above": False,
    }

    head, counts, _, *drawn = window_lines(window)

    assert (head, counts) == ("run r  trace t  span s", "3 of 9 siblings, 1 of 1 children, only the nearest ancestors")
    assert [line.split("  ")[0] for line in drawn[:1]] == ["root"]
    assert [line.strip("│├└─ ").split("  ")[0] for line in drawn[1:]] == ["before", "→ meant", "child", "after"]
