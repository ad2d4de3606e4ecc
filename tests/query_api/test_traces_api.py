"""Traces, spans, steps and tensors over HTTP."""

import itertools

import httpx
import pytest

from rankscope_proto.identity import step_trace_id
from tests.query_api import story
from tests.query_api.asking import ROLLOUT, RUN, get, refused, walked

STEP_14 = f"{RUN}/steps/14/tree"


async def test_traces_come_the_latest_first_and_every_one_once(api: httpx.AsyncClient) -> None:
    traces = await walked(api, f"{RUN}/traces", limit=7)

    assert len({trace["trace_id"] for trace in traces}) == len(traces) == story.STEPS + 2
    assert all(one["start_ns"] >= other["start_ns"] for one, other in itertools.pairwise(traces))
    assert traces[0]["ranks"] == [0, 1, 2, 3]
    assert traces[0]["spans"] == 24


@pytest.mark.parametrize(
    "query",
    [{"kind": "rollout"}, {"status": "error"}, {"q": "HARBOUR tides"}, {"kind": "tool", "rank": 0, "step": 5}],
)
async def test_a_trace_is_found_by_one_span_that_fits_all_filters(
    api: httpx.AsyncClient, query: dict[str, str | int]
) -> None:
    page = await get(api, f"{RUN}/traces", **query)

    [trace] = page["items"]
    assert (trace["trace_id"], trace["name"], trace["status"], trace["errors"]) == (ROLLOUT, "rollout", "error", 1)


@pytest.mark.parametrize("query", [{"kind": "rollout", "name": "search"}, {"q": "100%"}, {"rank": 3, "step": 999}])
async def test_no_trace_is_found_where_no_single_span_fits(api: httpx.AsyncClient, query: dict[str, str | int]) -> None:
    page = await get(api, f"{RUN}/traces", **query)

    assert (page["items"], page["total"], page["truncated"]) == ([], 0, False)


async def test_the_trace_of_a_step_has_the_id_that_every_rank_computes(api: httpx.AsyncClient) -> None:
    page = await get(api, f"{RUN}/traces", step=14)

    hi, lo = step_trace_id(story.RUN, story.LAUNCH, 14)
    assert [trace["trace_id"] for trace in page["items"]] == [f"{hi:016x}{lo:016x}"]


async def test_the_roots_of_a_step_are_one_a_rank_and_paged(api: httpx.AsyncClient) -> None:
    hi, lo = step_trace_id(story.RUN, story.LAUNCH, 3)

    roots = await walked(api, f"{RUN}/traces/{hi:016x}{lo:016x}/spans", limit=3)

    assert [(root["name"], root["rank"], root["child_count"]) for root in roots] == [
        ("step", rank, 4) for rank in range(4)
    ]


async def test_steps_show_the_slowest_rank_of_each_launch(api: httpx.AsyncClient) -> None:
    steps = await walked(api, f"{RUN}/steps", limit=4)
    second = await walked(api, f"{RUN}/steps", limit=100, launch="1")

    assert [(step["step"], step["attempt"]) for step in steps[:3]] == [(0, 0), (0, 1), (1, 1)]
    assert len(second) == story.STEPS
    assert second[14]["ranks"] == 4
    assert int(second[14]["min_ns"]) <= int(second[14]["median_ns"]) <= int(second[14]["max_ns"])


async def test_the_tree_of_a_step_is_merged_over_its_ranks(api: httpx.AsyncClient) -> None:
    tree = await get(api, STEP_14)

    nodes = {node["path"]: node for node in tree["items"]}
    assert list(nodes)[:3] == ["step", "step/input", "step/forward"]
    assert nodes["step/input"]["slowest_rank"] == story.SLOW_RANK
    assert nodes["step/input"]["max_ns"] == str(81_000_000)
    assert nodes["step/forward/layers.2"]["depth"] == 2
    assert (tree["attempt"], tree["world_size"], tree["missing_ranks"]) == (1, 4, [])
    waits = {rank["rank"]: int(rank["wait_ns"]) for rank in tree["ranks"]}
    assert waits[story.SLOW_RANK] == 0
    assert min(wait for rank, wait in waits.items() if rank != story.SLOW_RANK) > 70_000_000


async def test_the_tree_is_of_the_latest_launch_that_has_the_step_unless_another_is_named(
    api: httpx.AsyncClient,
) -> None:
    latest = await get(api, f"{RUN}/steps/0/tree")
    first = await get(api, f"{RUN}/steps/0/tree", launch=story.FIRST_LAUNCH.hex())

    assert (latest["attempt"], latest["missing_ranks"]) == (1, [])
    assert (first["attempt"], [(one["rank"], one["reason"]) for one in first["missing_ranks"]]) == (
        *(0, [(2, "other_launch")]),
    )


async def test_one_ranks_tree_lists_parents_before_their_children(api: httpx.AsyncClient) -> None:
    nodes = await walked(api, STEP_14, limit=2, rank=1)

    assert [(node["name"], node["depth"]) for node in nodes] == [
        *(("step", 0), ("input", 1), ("forward", 1), ("layers.2", 2), ("backward", 1), ("optimizer", 1))
    ]
    assert nodes[3]["parent_span_id"] == nodes[2]["span_id"]


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        (f"{RUN}/steps/99/tree", {}, "unknown_step"),
        (f"{RUN}/steps/14/tree", {"launch": "0"}, "unknown_step"),
        (f"{RUN}/steps/14/tree", {"launch": "7"}, "unknown_launch"),
        (f"{RUN}/steps/14/tree", {"rank": 4}, "unknown_rank"),
    ],
)
async def test_a_tree_that_is_not_there_says_what_is_missing(
    api: httpx.AsyncClient, path: str, query: dict[str, str | int], code: str
) -> None:
    error = await refused(api, path, status=404, **query)

    assert error["code"] == code


async def test_tensors_are_read_by_module_step_rank_and_role(api: httpx.AsyncClient) -> None:
    page = await get(api, f"{RUN}/tensors", path=story.NONFINITE_MODULE, step=14, rank=1, role="grad")

    [tensor] = page["items"]
    assert (tensor["name"], tensor["l2"], tensor["absmax"]) == ("layers.2.mlp.weight", "NaN", "Infinity")
    assert (tensor["flags"], tensor["shape"], tensor["phase"]) == (["reduced"], [4, 16], "backward")
    assert "mean" not in tensor


async def test_every_tensor_row_is_on_one_page_in_the_order_of_its_making(api: httpx.AsyncClient) -> None:
    rows = await walked(api, f"{RUN}/tensors", limit=90)

    assert len(rows) == 4 * 4 * story.STEPS // 2
    order = [(row["step"], ["forward", "backward", "optimizer"].index(row["phase"])) for row in rows]
    assert order == sorted(order)


async def test_a_step_that_was_not_captured_has_a_gap_and_a_captured_one_has_none(api: httpx.AsyncClient) -> None:
    skipped = await get(api, f"{RUN}/tensors", step=13)
    captured = await get(api, f"{RUN}/tensors", step=14)

    assert skipped["total"] == 0
    assert [(gap["cause"], gap["step_stride"], gap["ranks"]) for gap in skipped["gaps"]] == [
        ("sampled", 2, [0, 1, 2, 3])
    ]
    assert captured["gaps"] == []
