"""Queries whose answer over the small training is known: the examples of the language, and more.

The examples are those that the manual begins with; MORE has what else the language can say.
"""

from collections.abc import Callable
from typing import Any

from tests.query_api.tql import training
from tests.query_api.tql.training import MS, RANKS, STEPS

Item = dict[str, Any]
Example = tuple[Callable[[Item], tuple[Any, ...]], list[tuple[Any, ...]]]
"""What is looked at of an item of the answer, and what is seen there."""

DURATIONS = [(rank, (rank + 1) * MS, (rank + 1) * MS) for rank in RANKS]

EXAMPLES: dict[str, Example] = {
    "tensor.nan_count > 0": (lambda item: (item["step"], item["rank"], item["name"]), [(102, 1, "w2")]),
    'layer.type == "attention" and tensor.absmax > 8': (
        lambda item: (item["step"], item["rank"], item["absmax"]),
        [(99, 0, 9.0)],
    ),
    'tensor.role == "grad" and tensor.l2 > 100 and rank in 0..7 | top 10 by tensor.l2': (
        lambda item: (item["step"], item["rank"], item["l2"]),
        [
            (103, 0, 800.0),
            (101, 3, training.w1(101, 3)),
            *[(step, rank, 200.0) for step in (98, 99) for rank in RANKS],
        ],
    ),
    'span.kind == "reward" and span.status == "error" | count() by rank': (
        lambda item: (item["rank"], item["count"]),
        [(2, 2)],
    ),
    'span.name =~ "allreduce.*" and step in 100..200 | p50(span.duration), p99(span.duration) by rank': (
        lambda item: (item["rank"], item["p50_ns"], item["p99_ns"]),
        DURATIONS,
    ),
    'span.duration > 5ms and attr.device == "cuda:0" | select rank, step, span.name, span.duration'
    " | order by span.duration desc | limit 20": (
        lambda item: tuple(item.values()),
        [(0, step, "load", 6 * MS) for step in STEPS],
    ),
    'span.kind == "rollout" >> span.status == "error"                      # spans in error below a rollout': (
        lambda item: (item["step"], item["rank"], item["name"]),
        [(100, 2, "reward"), (102, 2, "reward")],
    ),
    'span.name == "env.step" and metric.reward < 0': (
        lambda item: (item["step"], item["rank"], item["metrics"]["reward"]),
        [(step, 1, -1.0) for step in STEPS if step % 2 == 0],
    ),
    'tensor.role == "grad" | across rank: spread(tensor.l2) by step, tensor.name | where spread > 0.01 | first': (
        lambda item: (item["step"], item["name"], round(item["spread"], 12)),
        [(98, "w2", round(3 / 51.5, 12))],
    ),
    'span.name == "all_reduce" | across rank: skew(span.start) by step | where skew > 5ms': (
        lambda item: (item["step"], item["skew_ns"]),
        [(101, 10 * MS)],
    ),
    'span.name == "all_reduce" | across rank: missing_ranks() by step | where missing_ranks > 0': (
        lambda item: (item["step"], item["missing_ranks"]),
        [(102, [2])],
    ),
    "tensor.l2 > 3 * prev(tensor.l2)                                       # against the previous step": (
        lambda item: (item["step"], item["rank"], item["name"], item["l2"]),
        [(103, 0, "w1", 800.0)],
    ),
    'gap.cause == "ring_full" | sum(gap.count) by rank': (
        lambda item: (item["rank"], item["sum"]),
        [(1, 12), (3, 2)],
    ),
}
"""Each example of `tql.md`, what is looked at of an item, and the answer."""

MORE: dict[str, Example] = {
    '{span.kind == "rollout"} without {span.status == "error"}': (
        lambda item: (int(item["trace_id"][16:], 16), item["span_count"], item["error_count"], item["root_name"]),
        [(step, 28, 0, "step") for step in STEPS if step not in {100, 102}],
    ),
    '{span.name == "all_reduce"} and {span.status == "error"}': (
        lambda item: (item["step"], item["status"], item["rank_count"], item["duration_ns"]),
        [(step, "error", 4, 100 * MS) for step in (100, 102)],
    ),
    'span.name == "env.step" > exists(span.name) | count() by span.name': (
        lambda item: tuple(item.values()),
        [("reward", len(STEPS) * 4)],
    ),
    'span.status == "error" < exists(span.name)': (
        lambda item: (item["step"], item["name"]),
        [(100, "env.step"), (102, "env.step")],
    ),
    'span.status == "error" << exists(span.name) | count() by span.name': (
        lambda item: tuple(item.values()),
        [("env.step", 2), ("rollout", 2), ("step", 2)],
    ),
    'span.name == "all_reduce" ~ span.name == "load" | count() by rank': (
        lambda item: tuple(item.values()),
        [(rank, len(STEPS) - (rank == 2)) for rank in RANKS],
    ),
    'span.name == "rollout" !> exists(span.name) | count() by span.name': (
        lambda item: tuple(item.values()),
        [
            *[("all_reduce", 23), ("allreduce.bucket0", 24), ("load", 24), ("reward", 24), ("rollout", 24)],
            ("step", 24),
        ],
    ),
    'span.name == "rollout" !>> exists(span.name) | count() by span.name': (
        lambda item: tuple(item.values()),
        [("all_reduce", 23), ("allreduce.bucket0", 24), ("load", 24), ("rollout", 24), ("step", 24)],
    ),
    "exists(tensor.l2) and mesh.tp == 1 and run.config.model.depth == 2 | count() by mesh.dp, run.name": (
        lambda item: tuple(item.values()),
        [(0, "small training", 18), (1, "small training", 18)],
    ),
    'span.name == "step" | select step, span.child_count, span.self_duration | top 1 by span.self_duration': (
        lambda item: tuple(item.values()),
        [(102, 3, 41 * MS)],
    ),
    "trace.error_count > 0 | select trace.id, trace.root_name": (
        lambda item: (item["trace_id"][-2:], item["root_name"]),
        [("64", "step"), ("66", "step")],
    ),
    'run.name == "small training"': (lambda item: (item["run_id"], item["name"]), [("run-1", "small training")]),
    "tensor.role == 'grad' | across layer: slope(tensor.l2) by step, rank | where slope > -148 | order by slope": (
        lambda item: tuple(item.values()),
        [
            *[(step, rank, -150.0 + rank) for rank in (3,) for step in STEPS if step != 101],
        ],
    ),
    "tensor.name == 'w2' | across rank: slowest(tensor.l2) by step | limit 2": (
        lambda item: tuple(item.values()),
        [(98, 3), (99, 3)],
    ),
    "tensor.name == 'w1' | across rank: agree(tensor.fingerprint) by step": (
        lambda item: tuple(item.values()),
        [(step, step not in {101, 103}) for step in STEPS],
    ),
    "tensor.name == 'w2' | across mesh.dp: skew(tensor.l2) by step, mesh.tp | first": (
        lambda item: tuple(item.values()),
        [(98, 0, 2.0)],
    ),
    "exists(span.name) | count() every 2 steps": (
        lambda item: tuple(item.values()),
        [(98, 56), (100, 56), (102, 55)],
    ),
    'span.name == "load" | count() by rank every 2s | where rank == 0': (
        lambda item: (item["rank"], item["time_ns"] % (2 * 10**9), item["count"]),
        [(0, 0, 1), (0, 0, 2), (0, 0, 2), (0, 0, 1)],
    ),
    'span.name == "load" | rate()': (lambda item: tuple(item.values()), [(24 / 5.0,)]),
    'span.name =~ "allreduce.*" | first(span.duration), last(span.duration), avg(span.duration), stddev(span.duration),'
    " distinct(rank), min(span.duration), max(span.duration), histogram(span.duration, 3),"
    " quantile(span.duration, 0.25) by step | first": (
        lambda item: tuple(item.values()),
        [(98, MS, 4 * MS, 2_500_000, 1_118_034, 4, MS, 4 * MS, [1, 1, 2], 1_750_000)],
    ),
}
"""Queries with more of the language in them."""
