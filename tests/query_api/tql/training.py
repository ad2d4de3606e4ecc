"""A small training whose answers are known: 4 ranks, steps 98 to 103, each with one of everything that goes wrong.

Every rank's part of a step is one tree of spans, and all of them are one trace. What is wrong:

- rank 2 ends a reward below a rollout in error at steps 100 and 102; rank 1 has a negative reward at even steps;
- rank 3 begins `all_reduce` 10 ms late at step 101, else the ranks are 1 ms apart; rank 2 has none at step 102;
- the gradient of w1 is 10 % larger on rank 3 at step 101, and four times what it was on rank 0 from step 103 on;
- the gradient of w2 has a NaN on rank 1 at step 102; an attention activation reaches 9 on rank 0 at step 99;
- rank 1 lost 5 and 7 rows, and rank 3 lost 2.
"""

from collections.abc import Sequence

from rankscope.tql.fields import SECTION, Entity
from rankscope_proto import columns
from rankscope_proto.names import SPAN_FLAGS, Phase, Role, SpanKind, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from tests.proto.batches import SEALED, batch
from tests.query_api.tql.rows import Row, fill

RANKS = range(4)
STEPS = range(98, 104)
MS = 1_000_000
STEP_NS = 1000 * MS
RUN = "run-1"

_ERROR, _OK = SpanStatus.ERROR.code, SpanStatus.OK.code


def start_of(step: int) -> int:
    """When a step begins, ns since the epoch."""
    return SEALED + (step - STEPS[0]) * STEP_NS


def span_id(step: int, rank: int, place: int) -> int:
    """The id of a rank's span of a step, by its place in the tree."""
    return step * 10_000 + rank * 100 + place + 1


def is_in_error(step: int, rank: int) -> bool:
    """Whether the rank's reward of that step ends in error."""
    return rank == 2 and step in {100, 102}


def reward(step: int, rank: int) -> float:
    """What the environment gives."""
    return -1.0 if rank == 1 and step % 2 == 0 else 1.0


def lag(step: int, rank: int) -> int:
    """When the rank begins `all_reduce`, in ns after the first can."""
    return (10 if (step, rank) == (101, 3) else rank) * MS


def w1(step: int, rank: int) -> float:
    """The norm of the gradient of w1."""
    return 200.0 * (1.1 if (step, rank) == (101, 3) else 1.0) * (4.0 if rank == 0 and step >= 103 else 1.0)


def spans(step: int, rank: int) -> list[Row]:
    """A rank's tree of a step."""
    start, error = start_of(step), is_in_error(step, rank)
    tree = [
        _span(step, rank, (0, None), "step", SpanKind.CUSTOM, start, 100 * MS),
        _span(step, rank, (1, 0), "rollout", SpanKind.ROLLOUT, start, 50 * MS),
        _span(step, rank, (2, 1), "env.step", SpanKind.ENV_STEP, start + MS, 20 * MS),
        _span(step, rank, (3, 2), "reward", SpanKind.REWARD, start + 2 * MS, (3 + rank) * MS),
        _span(step, rank, (4, 0), "allreduce.bucket0", SpanKind.SYSTEM, start + 60 * MS, (rank + 1) * MS),
        _span(step, rank, (5, 0), "load", SpanKind.DATASET, start, 6 * MS),
    ]
    tree[2]["metrics"] = {"reward": reward(step, rank)}
    tree[3]["status"] = _ERROR if error else _OK
    tree[3]["error_type"] = "ValueError" if error else ""
    tree[5]["attributes"] = {"device": f"cuda:{rank}"}
    if (step, rank) != (102, 2):
        tree.append(
            _span(step, rank, (6, 0), "all_reduce", SpanKind.SYSTEM, start + 70 * MS + lag(step, rank), 4 * MS)
        )
    return tree


def _span(
    step: int, rank: int, place: tuple[int, int | None], name: str, kind: SpanKind, start: int, duration: int, /
) -> Row:
    own, parent = place
    return {
        "span_id": span_id(step, rank, own),
        "trace_hi": 9,
        "trace_lo": step,
        "parent_span_id": 0 if parent is None else span_id(step, rank, parent),
        "name": name,
        "kind": kind.code,
        "status": _OK,
        "start": start,
        "duration": duration,
        "step": step,
        "microstep": 0,
        "phase": Phase.FORWARD.code,
        "error_type": "",
        "flags": SPAN_FLAGS["in_step_trace"],
        "attributes": {},
        "numbers": {},
        "metrics": {},
    }


def tensors(step: int, rank: int) -> list[Row]:
    """A rank's statistics of a step."""
    nan_count = int((step, rank) == (102, 1))
    grads = [
        _tensor(step, "w1", Role.GRAD, "mlp", 0, w1(step, rank), 0, 1.0),
        _tensor(step, "w2", Role.GRAD, "mlp", 1, 50.0 + rank, nan_count, 1.0),
    ]
    absmax = 9.0 if (step, rank) == (99, 0) else 2.0
    return [*grads, _tensor(step, "layers.0.attn", Role.ACTIVATION, "attention", 0, 10.0, 0, absmax)]


def _tensor(
    step: int, name: str, role: Role, layer: str, index: int, l2: float, nan_count: int, absmax: float, /
) -> Row:
    return {
        "name": name,
        "module": f"layers.{index}",
        "layer_index": index,
        "layer_type": layer,
        "role": role.code,
        "dtype": "torch.float32",
        "step": step,
        "microstep": 0,
        "phase": Phase.BACKWARD.code if role is Role.GRAD else Phase.FORWARD.code,
        "time": start_of(step) + 80 * MS,
        "nan_count": nan_count,
        "nonfinite_count": nan_count,
        "absmax": absmax,
        "l2": l2,
        "fingerprint": int(l2),
    }


def gaps(rank: int) -> list[Row]:
    """What a rank lost."""
    lost = {1: (5, 7), 3: (2,)}.get(rank, ())
    return [
        {
            "class": 1,
            "cause": "ring_full",
            "data_kind": "spans",
            "count": count,
            "step_from": 100,
            "step_to": 101,
            "start": start_of(100) + at,
        }
        for at, count in enumerate(lost)
    ]


def batches() -> list[pb.Batch]:
    """The training, and the same of another project, whose rows must be in no answer."""
    ours = [_batch(rank, project="default") for rank in RANKS]
    return [*ours, *(_batch(rank, project="other") for rank in RANKS)]


def _batch(rank: int, *, project: str) -> pb.Batch:
    made = batch(rank=rank, strings=[""])
    made.header.project = project
    made.header.incarnation = bytes([rank + 1]) * 16
    made.header.mesh_axis.extend(["dp", "tp"])
    made.header.mesh_coordinate.extend([rank // 2, rank % 2])
    index = {"": 0}
    _fill(made, Entity.SPAN, [row for step in STEPS for row in spans(step, rank)], index)
    _fill(made, Entity.TENSOR, [row for step in STEPS for row in tensors(step, rank)], index)
    _fill(made, Entity.GAP, gaps(rank), index)
    fill(made, columns.RUN_INFO, [_run()], index)
    del made.strings[:]
    made.strings.extend(index)
    return made


def _fill(made: pb.Batch, entity: Entity, rows: Sequence[Row], index: dict[str, int], /) -> None:
    if rows:
        fill(made, SECTION[entity], rows, index)


def _run() -> Row:
    return {"status": 1, "name": "small training", "config": '{"lr": 0.5, "model": {"depth": 2}}', "start": SEALED}
