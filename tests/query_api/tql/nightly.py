"""A run that failed in the night, for the examples of the manual: two ranks, two steps, two rollouts.

- Step 3 ends before 2026-11-29T12:00:00Z and takes 2 s on rank 0 and 1.5 s on rank 1; step 4 begins then, takes 100 ms,
  and ends in error on rank 1.
- Rank 1's gradient of `w` has a NaN at step 3 and an infinity at step 4; rank 0's weight is large.
- Rollout 1 takes 1.5 s, its tool ends in error on cuda:0, and it has a reward; rollout 2 has neither.
- The loss of a step is its number, for twelve steps.
- At step 4 the ranks meet in two all_reduces of 4 MiB: rank 1 is late by 50 ms, then by 1 ms; both are over 1 ms later.
- The node uses 4e9 bytes of memory, then 6e9.
- A breakpoint on `w` fires three times on rank 1, twice over 100.
"""

from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import SPAN_FLAGS, Phase, ProcessRole, Role, RunStatus, SpanKind, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from tests.query_api.batches import MS, Row, Writer

RUN = "nightly-7"
LAUNCH = b"N" * 16
NOON = 1_795_953_600_000_000_000
"""2026-11-29T12:00:00Z in ns."""

BEGUN = {3: NOON - 5000 * MS, 4: NOON + 1}
"""Step -> when it begins."""

TOOK_MS = {(3, 0): 2000, (3, 1): 1500, (4, 0): 100, (4, 1): 100}
"""(step, rank) -> how long it takes."""

ROLLOUTS = (0xA, 0xB)
"""Low halves of the traces of the rollouts."""


def batches() -> list[pb.Batch]:
    """What both ranks sealed."""
    writers = [Writer(RUN, rank, launch=LAUNCH, world_size=2) for rank in (0, 1)]
    agent = Writer(RUN, -1, launch=LAUNCH, world_size=2, role=ProcessRole.AGENT)
    information: Row = {"status": RunStatus.FAILED.code, "name": "night", "tags": ["nightly"], "start": BEGUN[3]}
    losses = [{"name": "loss", "step": step, "value": float(step), "time": NOON + step} for step in range(12)]
    return [
        writers[0].seal(
            run_info=[information],
            spans=[_step(3, 0), _step(4, 0), *_first_rollout(), *_second_rollout()],
            tensor_stats=[*_activations(3, 1.0, 3.0), *_activations(4, 1.0, 1.5), _weight()],
            scalars=losses,
            collectives=[_all_reduce(1, 0), _all_reduce(2, 0)],
        ),
        writers[1].seal(
            spans=[_step(3, 1), {**_step(4, 1), "status": SpanStatus.ERROR.code}],
            tensor_stats=[
                _gradient(3, nan_count=1, mean=float("nan"), absmax=1.0),
                _gradient(4, inf_count=1, mean=0.0, absmax=float("inf"), l2=1.0),
            ],
            hits=[_hit(3, 99.0), _hit(3, 101.0), _hit(4, 250.0)],
            collectives=[_all_reduce(1, 50), _all_reduce(2, 1)],
        ),
        agent.seal(
            system_stats=[
                {"name": "memory.used", "value": used, "time": NOON + at} for at, used in enumerate((4e9, 6e9))
            ]
        ),
    ]


def _all_reduce(number: int, late_ms: int) -> Row:
    called = BEGUN[4] + number * 1000 * MS
    over = called + (51 if number == 1 else 2) * MS
    group = {"group": "0", "group_ranks": "0-1", "cseq": number, "op": "all_reduce", "bytes": 4 << 20}
    return {**group, "step": 4, "entry": called + late_ms * MS, "exit": over}


def _step(step: int, rank: int) -> Row:
    hi, lo = step_trace_id(RUN, LAUNCH, step)
    return {
        "trace_hi": hi,
        "trace_lo": lo,
        "span_id": 100 * step + rank + 1,
        "name": "step",
        "path": "step",
        "kind": SpanKind.SYSTEM.code,
        "status": SpanStatus.OK.code,
        "step": step,
        "start": BEGUN[step],
        "duration": TOOK_MS[step, rank] * MS,
        "flags": SPAN_FLAGS["in_step_trace"],
    }


def _first_rollout() -> list[Row]:
    rollout, tool = _rollout(0, took_ms=1500)
    reward = {**tool, "span_id": 0x903, "name": "score", "kind": SpanKind.REWARD.code, "duration": 5 * MS}
    failed = {**tool, "status": SpanStatus.ERROR.code, "error_type": "OSError", "attributes": {"device": "cuda:0"}}
    return [rollout, failed, reward]


def _second_rollout() -> list[Row]:
    return _rollout(1, took_ms=200)


def _rollout(number: int, *, took_ms: int) -> list[Row]:
    """A rollout and the tool that it calls."""
    shared: Row = {
        "trace_hi": 9,
        "trace_lo": ROLLOUTS[number],
        "status": SpanStatus.OK.code,
        "start": NOON - 60_000 * MS + number,
    }
    root = 0x901 + 0x100 * number
    return [
        {**shared, "span_id": root, "name": "rollout", "kind": SpanKind.ROLLOUT.code, "duration": took_ms * MS},
        {
            **shared,
            "span_id": root + 1,
            "parent_span_id": root,
            "depth": 1,
            "name": "search",
            "kind": SpanKind.TOOL.code,
            "duration": (20 + 10 * number) * MS,
        },
    ]


def _activations(step: int, *rms: float) -> list[Row]:
    """One of each layer."""
    return [
        _tensor(f"layers.{layer}", Role.ACTIVATION, step, layer_index=layer, rms=value)
        for layer, value in enumerate(rms)
    ]


def _weight() -> Row:
    return _tensor("w", Role.WEIGHT, 4, l2=8.0)


def _gradient(step: int, **statistics: float) -> Row:
    return _tensor("w", Role.GRAD, step, nonfinite_count=1, **statistics)


def _hit(step: int, norm: float) -> Row:
    return {
        "time": BEGUN[step] + 50 * MS,
        "breakpoint": "big gradient",
        "predicate": "tensor.l2 > 50",
        "name": "w",
        "module": "w",
        "role": Role.GRAD.code,
        "step": step,
        "phase": Phase.BACKWARD.code,
        "mode": "relaxed",
        "action": "nothing",
        "count": 1,
        "seen": {"tensor.l2": norm},
    }


def _tensor(name: str, role: Role, step: int, /, **statistics: float) -> Row:
    return {
        "name": name,
        "module": name,
        "role": role.code,
        "step": step,
        "phase": Phase.BACKWARD.code,
        "time": BEGUN[step] + 50 * MS,
        "numel_local": 4,
        "numel_global": 4,
        **statistics,
    }
