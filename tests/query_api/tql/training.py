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
    """When the rank begins `all_reduce`, in ms after the first can."""
    return 10 if (step, rank) == (101, 3) else rank


def w1(step: int, rank: int) -> float:
    """The norm of the gradient of w1."""
    return 200.0 * (1.1 if (step, rank) == (101, 3) else 1.0) * (4.0 if rank == 0 and step >= 103 else 1.0)


def spans(step: int, rank: int) -> list[Row]:
    """A rank's tree of a step."""
    error = is_in_error(step, rank)
    tree = [
        _span(step, rank, (0, None), name="step", kind=SpanKind.CUSTOM, during=(0, 100)),
        _span(step, rank, (1, 0), name="rollout", kind=SpanKind.ROLLOUT, during=(0, 50)),
        _span(step, rank, (2, 1), name="env.step", kind=SpanKind.ENV_STEP, during=(1, 21)),
        _span(step, rank, (3, 2), name="reward", kind=SpanKind.REWARD, during=(2, 5 + rank)),
        _span(step, rank, (4, 0), name="allreduce.bucket0", kind=SpanKind.SYSTEM, during=(60, 61 + rank)),
        _span(step, rank, (5, 0), name="load", kind=SpanKind.DATASET, during=(0, 6)),
    ]
    tree[2]["metrics"] = {"reward": reward(step, rank)}
    tree[3]["status"] = _ERROR if error else _OK
    tree[3]["error_type"] = "ValueError" if error else ""
    tree[5]["attributes"] = {"device": f"cuda:{rank}"}
    if (step, rank) != (102, 2):
        begun = 70 + lag(step, rank)
        tree.append(_span(step, rank, (6, 0), name="all_reduce", kind=SpanKind.SYSTEM, during=(begun, begun + 4)))
    return tree


def _span(
    step: int, rank: int, place: tuple[int, int | None], *, name: str, kind: SpanKind, during: tuple[int, int]
) -> Row:
    """A span at a place of the tree, below another, for a while in ms after the step's begin."""
    own, parent = place
    return {
        "span_id": span_id(step, rank, own),
        "trace_hi": 9,
        "trace_lo": step,
        "parent_span_id": 0 if parent is None else span_id(step, rank, parent),
        "name": name,
        "kind": kind.code,
        "status": _OK,
        "start": start_of(step) + during[0] * MS,
        "duration": (during[1] - during[0]) * MS,
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
    found = [
        _tensor(step, "w1", Role.GRAD, layer=("mlp", 0), l2=w1(step, rank)),
        _tensor(step, "w2", Role.GRAD, layer=("mlp", 1), l2=50.0 + rank),
        _tensor(step, "layers.0.attn", Role.ACTIVATION, layer=("attention", 0), l2=10.0),
    ]
    if (step, rank) == (102, 1):
        found[1] |= {"nan_count": 1, "nonfinite_count": 1}
    if (step, rank) == (99, 0):
        found[2]["absmax"] = 9.0
    return found


def _tensor(step: int, name: str, role: Role, *, layer: tuple[str, int], l2: float) -> Row:
    kind, index = layer
    return {
        "name": name,
        "module": f"layers.{index}",
        "layer_index": index,
        "layer_type": kind,
        "role": role.code,
        "dtype": "torch.float32",
        "step": step,
        "microstep": 0,
        "phase": Phase.BACKWARD.code if role is Role.GRAD else Phase.FORWARD.code,
        "time": start_of(step) + 80 * MS,
        "nan_count": 0,
        "nonfinite_count": 0,
        "absmax": 2.0,
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
