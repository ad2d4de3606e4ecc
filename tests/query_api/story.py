"""The data that most tests read, and that the documented examples were recorded from.

Run `bright-otter` of project `default`: two launches of four ranks. In the second, rank 2 is slow in its input phase
from step 12 on, and at step 14 rank 1 overflows in `layers.2.mlp`. Project `other` has a run of the same id.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence

from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import SPAN_FLAGS, TENSOR_FLAGS, GapClass, Phase, Role, RunStatus, SpanKind, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from tests.query_api.batches import MS, START, Row, Writer

RUN = "bright-otter"
OTHER_RUN = "quiet-heron"
FIRST_LAUNCH = b"\x0a" * 16
LAUNCH = b"\x0b" * 16
STEPS = 30
SLOW_RANK, SLOW_SINCE = 2, 12
NONFINITE_RANK, NONFINITE_STEP, NONFINITE_MODULE = 1, 14, "layers.2.mlp"
STEP_NS = 300 * MS
ROLLOUT = (0xFEED, 0x42)
SECOND_START = START + 60_000 * MS
KEPT = struct.pack("<2f", 0.5, float("inf"))
DIGEST = hashlib.blake2b(KEPT, digest_size=16).hexdigest()
"""Values that the other run has kept of its head's weight."""
LONG_AGO = 1_700_000_000_000_000_000
"""When the first launch was heard last: it is silent on any day the tests run."""

_PHASES = (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def span_id(rank: int, step: int, place: int, *, launch: bytes = LAUNCH) -> int:
    """The id of a span of a step: place 0 is the step, 1..4 its phases, 5 the layer in forward."""
    return (launch[0] << 56) + ((rank + 1) << 40) + (step << 8) + place + 1


def step_spans(rank: int, step: int, *, launch: bytes = LAUNCH, times: Sequence[int], start: int) -> list[Row]:
    """One rank's spans of one step, from the durations of its phases in ns."""
    hi, lo = step_trace_id(RUN, launch, step)
    shared: Row = {
        "trace_hi": hi,
        "trace_lo": lo,
        "kind": SpanKind.SYSTEM.code,
        "status": SpanStatus.OK.code,
        "step": step,
        "flags": SPAN_FLAGS["in_step_trace"],
        "capture": 1,
    }
    root = span_id(rank, step, 0, launch=launch)
    rows: list[Row] = [
        {**shared, "span_id": root, "name": "step", "path": "step", "start": start, "duration": sum(times)}
    ]
    begin = start
    for place, (phase, duration) in enumerate(zip(_PHASES, times, strict=True), start=1):
        rows.append(
            {
                **shared,
                "span_id": span_id(rank, step, place, launch=launch),
                "parent_span_id": root,
                "name": phase.value,
                "path": f"step/{phase.value}",
                "phase": phase.code,
                "depth": 1,
                "start": begin,
                "duration": duration,
            }
        )
        begin += duration
    rows.append(
        {
            **shared,
            "span_id": span_id(rank, step, 5, launch=launch),
            "parent_span_id": span_id(rank, step, 2, launch=launch),
            "name": "layers.2",
            "path": "step/forward/layers.2",
            "phase": Phase.FORWARD.code,
            "depth": 2,
            "start": start + times[0] + MS,
            "duration": times[1] // 2,
            "attributes": {"device": f"cuda:{rank}"},
            "numbers": {"batch": 8.0},
        }
    )
    return rows


def phase_times(rank: int, step: int) -> tuple[int, int, int, int]:
    """Durations of a rank's phases: the ranks meet in backward, the slow one waits least."""
    jitter = ((rank * 7 + step * 13) % 5) * MS // 2
    late = 80 * MS if rank == SLOW_RANK and step >= SLOW_SINCE else 0
    held_up = 80 * MS if step >= SLOW_SINCE else 0
    return MS + late, 40 * MS + jitter, 60 * MS + held_up - late - jitter, 2 * MS


def tensors(rank: int, step: int) -> list[Row]:
    """One rank's statistics of a captured step: two activations, a reduced gradient, a weight."""
    fault = rank == NONFINITE_RANK and step == NONFINITE_STEP
    count = 3 if fault else 0
    time = SECOND_START + step * STEP_NS + 50 * MS
    shared = {"step": step, "dtype": "float32", "time": time, "layer_type": "mlp", "layer_index": 2}

    def row(name: str, module: str, role: Role, phase: Phase, flag: str, **numbers: float | None) -> Row:
        shape = [4, 16]
        return {
            **shared,
            **numbers,
            "name": name,
            "module": module,
            "role": role.code,
            "phase": phase.code,
            "flags": TENSOR_FLAGS[flag],
            "shape": shape,
            "numel_local": 64,
            "numel_global": 64,
        }

    norm = float("nan") if fault else 0.5 + rank
    return [
        row("layers.0", "layers.0", Role.ACTIVATION, Phase.FORWARD, "local", nonfinite_count=0),
        row(NONFINITE_MODULE, NONFINITE_MODULE, Role.ACTIVATION, Phase.FORWARD, "local", nonfinite_count=count),
        row(
            "layers.2.mlp.weight",
            NONFINITE_MODULE,
            Role.GRAD,
            Phase.BACKWARD,
            "reduced",
            nonfinite_count=64 if step == NONFINITE_STEP else 0,
            l2=norm,
            absmax=float("inf") if fault else 1.0,
        ),
        row("layers.2.mlp.weight", NONFINITE_MODULE, Role.WEIGHT, Phase.OPTIMIZER, "local", nonfinite_count=0, l2=2.0),
    ]


def _rollout() -> list[Row]:
    shared = {"trace_hi": ROLLOUT[0], "trace_lo": ROLLOUT[1], "step": 5, "capture": 2, "redaction_state": 2}
    start = SECOND_START + 5 * STEP_NS
    return [
        {
            **shared,
            "span_id": 0x1,
            "name": "rollout",
            "path": "rollout",
            "kind": SpanKind.ROLLOUT.code,
            "status": SpanStatus.OK.code,
            "start": start,
            "duration": 900 * MS,
            "rollout_id": "42",
            "metrics": {"reward": float("-inf")},
        },
        {
            **shared,
            "span_id": 0x2,
            "parent_span_id": 0x1,
            "name": "search",
            "path": "rollout/search",
            "depth": 1,
            "kind": SpanKind.TOOL.code,
            "status": SpanStatus.ERROR.code,
            "start": start + MS,
            "duration": 30 * MS,
            "error_type": "TimeoutError",
            "error_preview": "no answer within 30 ms",
            "attributes": {"Engine": "Harbour"},
            "inputs": '{"query":"tides"}',
            "link_trace_hi": [7],
            "link_trace_lo": [8],
            "link_span_id": [9],
        },
    ]


def _second_launch(rank: int) -> Iterator[pb.Batch]:
    writer = Writer(RUN, rank, launch=LAUNCH)
    information: Row = {
        "status": RunStatus.RUNNING.code,
        "name": "otter study",
        "config": '{"lr":0.001,"layers":4}',
        "tags": ["char", "ddp"],
        "command": "train.py --lr 0.001",
        "facts": {"gpu": "none"},
        "start": SECOND_START,
    }
    yield writer.seal(sealed_ns=SECOND_START, run_info=[information])
    for step in range(STEPS):
        start = SECOND_START + step * STEP_NS + rank * 1000
        rows = step_spans(rank, step, times=phase_times(rank, step), start=start)
        if rank == 0 and step == 5:
            rows += _rollout()
        yield writer.seal(
            sealed_ns=start + STEP_NS,
            spans=rows,
            tensor_stats=tensors(rank, step) if step % 2 == 0 else [],
            scalars=[{"name": "loss", "step": step, "value": 4.0 - step / 10, "time": start}],
        )
    yield _last_batch(writer, information)


def _last_batch(writer: Writer, information: Row) -> pb.Batch:
    end = SECOND_START + STEPS * STEP_NS
    stride: Row = {
        "class": GapClass.NOT_CAPTURED.code,
        "cause": "sampled",
        "data_kind": "tensor_stats",
        "step_from": 0,
        "step_stride": 2,
        "start": SECOND_START,
    }
    lost: Row = {
        "class": GapClass.LOST.code,
        "cause": "ring_full",
        "data_kind": "spans",
        "count": 3,
        "step_from": 20,
        "step_to": 21,
        "start": end - MS,
        "end": end,
    }
    gaps = [stride, lost] if writer.rank == 3 else [stride]
    return writer.seal(
        sealed_ns=end,
        lost={"spans": 3} if writer.rank == 3 else None,
        gaps=gaps,
        events=[_end_of_stream(end)],
        run_info=[{**information, "status": RunStatus.FINISHED.code, "end": end}],
    )


def _end_of_stream(time_ns: int) -> Row:
    return {"time": time_ns, "kind": "end_of_stream", "name": "end", "severity": 2}


def _first_launch() -> Iterator[pb.Batch]:
    for rank in (0, 1, 3):
        writer = Writer(RUN, rank, launch=FIRST_LAUNCH)
        spans = step_spans(rank, 0, launch=FIRST_LAUNCH, times=(MS, 30 * MS, 50 * MS, MS), start=START)
        batch = writer.seal(spans=spans)
        batch.received = LONG_AGO
        yield batch


def _kept_values() -> Row:
    return {
        "name": "head.weight",
        "module": "head",
        "role": Role.WEIGHT.code,
        "step": 0,
        "phase": Phase.BACKWARD.code,
        "time": START + 50 * MS,
        "dtype": "float32",
        "shape": [2],
        "full_shape": [64, 16],
        "part": "sample",
        "part_of": '{"elements": 2, "seed": 7, "of": 1024}',
        "digest_hi": int(DIGEST[:16], 16),
        "digest_lo": int(DIGEST[16:], 16),
        "bytes": len(KEPT),
        "chunks": 1,
        "data": KEPT,
        "cause": "weights blow up",
    }


def _modules() -> list[Row]:
    """A head, and the model it is the whole of."""
    weight: Row = {
        "parameters": ["weight"],
        "parameter_shapes": ["2x2"],
        "parameter_dtypes": ["float32"],
        "parameter_trainable": [1],
    }
    return [
        {"path": "", "class": "Tiny", "type": "other", "time": START},
        {"path": "head", "class": "Linear", "type": "head", "time": START, **weight},
    ]


def _hit() -> Row:
    return {
        "breakpoint": "weights blow up",
        "predicate": "tensor.absmax > 8",
        "name": "head.weight",
        "module": "head",
        "role": Role.WEIGHT.code,
        "step": 0,
        "time": START,
        "mode": "relaxed",
        "action": "capture",
        "count": 1,
        "seen": {"tensor.absmax": 9.5},
    }


def _clock(server: str, time_ns: int) -> Row:
    """The clock of the only process of the other run, which measures it itself."""
    return {
        "time": time_ns,
        "of_hi": int.from_bytes(b"L" * 8, "big"),
        "of_lo": 1,
        "offset": -1_832_000,
        "error": 212_000,
        "drift": 3_100,
        "rtt": 380_000,
        "samples": 24,
        "server": server,
    }


def _figure(name: str, value: float, *, device: str = "") -> Row:
    return {"name": name, "device": device, "value": value, "time": START}


def _all_reduce(group: str) -> Row:
    return {
        "entry": START,
        "exit": START + MS,
        "group": group,
        "group_ranks": "0",
        "cseq": 1,
        "op": "all_reduce",
        "entry_source": "call",
        "exit_source": "call",
        "bytes": 4096,
        "dtype": "float32",
        "shape": "1024",
        "reduction": "sum",
        "step": 0,
        "phase": Phase.BACKWARD.code,
    }


def _neighbours() -> Iterator[pb.Batch]:
    yield Writer(OTHER_RUN, 0, world_size=1).seal(
        sealed_ns=START - 10**12,
        scalars=[{"name": "loss", "step": 0, "value": 1.0, "time": START}],
        captures=[_kept_values()],
        modules=_modules(),
        hits=[_hit()],
        clocks=[_clock("gateway-0 boot-7", START - 10**12)],
        collectives=[_all_reduce("0")],
        system_stats=[_figure("cpu.busy", 0.75), _figure("gpu.temperature", 61.0, device="gpu0")],
        events=[_end_of_stream(START)],
    )
    secret = Writer(RUN, 0, project="other", world_size=1, launch=b"\x0c" * 16)
    hi, lo = ROLLOUT
    span: Row = {
        "trace_hi": hi,
        "trace_lo": lo,
        "span_id": 0x3,
        "name": "secret",
        "path": "step",
        "kind": 1,
        "status": 1,
        "start": START,
        "duration": MS,
        "step": 5,
        "flags": SPAN_FLAGS["in_step_trace"],
    }
    tensor: Row = {"name": "secret", "module": "secret", "role": 1, "step": 0, "time": START, "nonfinite_count": 9}
    scalar: Row = {"name": "secret", "step": 0, "value": 1.0, "time": START}
    gap: Row = {"class": 1, "cause": "secret", "data_kind": "spans", "count": 1, "start": START}
    yield secret.seal(
        spans=[span],
        tensor_stats=[tensor],
        scalars=[scalar],
        gaps=[gap],
        clocks=[_clock("secret", START)],
        collectives=[_all_reduce("secret")],
        system_stats=[_figure("secret", 9.0)],
    )
    yield Writer("secret-run", 0, project="other", world_size=1).seal(scalars=[scalar])


def batches() -> list[pb.Batch]:
    """The whole story."""
    second = [batch for rank in range(4) for batch in _second_launch(rank)]
    return [*_first_launch(), *second, *_neighbours()]
