"""Batches as trainers seal them: what the ingest benchmarks send, and the generator insert as it is.

A body holds the sections of a real sealed batch of 2,000 rows; each sent batch is a fresh header
and one of sixteen bodies (concatenation is legal protobuf), so that making it costs the
generator little beside the tiers it shares two cores with.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

from rankscope._block import Block, Column
from rankscope._clock import SystemClock
from rankscope._export import SealedBatch
from rankscope._identity import Identity
from rankscope._seal import SEAL_ROWS, Sealer
from rankscope_proto.columns import TENSOR_STATS
from rankscope_proto.identity import payload_digest, step_trace_id, uuid7
from rankscope_proto.names import Capture, Phase, Role, SpanKind, SpanStatus
from rankscope_proto.v1.batch_pb2 import Batch

Kind = Literal["spans", "tensor_stats"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BODIES = 16
LAYERS = 30
STEP_ROWS = 300
_PRESENT = sum(
    1 << field.optional
    for field in TENSOR_STATS.fields
    if field.optional is not None
    and field.name in {"step", "layer_index", "nonfinite_count", "nan_count", "inf_count", "absmax", "l2"}
)


def kind_named(text: str) -> Kind:
    """The kind of that name."""
    return next(kind for kind in KINDS if kind == text)


def identity(run: str, rank: int, *, ranks: int) -> Identity:
    """A trainer of the simulated launch."""
    return Identity(
        project="default",
        run_id=run,
        launch_id=payload_digest(run.encode()),
        incarnation=uuid7(time.time_ns(), os.urandom(10)),
        rank=rank,
        local_rank=rank,
        world_size=ranks,
        node="node-0",
        pid=1000 + rank,
        boot_id="boot-0",
    )


class Trainer:
    """One simulated rank: an endless sequence of sealed batches of one kind.

    Args:
        who: The rank.
        kind: Section its rows are of.
    """

    def __init__(self, who: Identity, kind: Kind) -> None:
        self._who = who
        self._kind = kind
        self._bodies = [_body(who, kind, number) for number in range(BODIES)]
        self._header = Batch.FromString(_sealed(who, kind, 0).payload).header
        self._seq = 0

    def next_batch(self) -> SealedBatch:
        """The next batch, of 2,000 rows."""
        header = self._header
        header.seq = self._seq
        header.sealed = time.time_ns()
        header.emitted_spans = header.emitted_tensor_stats = 0
        setattr(header, f"emitted_{self._kind}", (self._seq + 1) * SEAL_ROWS)
        payload = Batch(header=header).SerializeToString() + self._bodies[self._seq % BODIES]
        sealed = SealedBatch(
            payload,
            self._who.incarnation,
            self._seq,
            payload_digest(payload),
            SEAL_ROWS,
            header.week,
            {self._kind: SEAL_ROWS},
        )
        self._seq += 1
        return sealed


def delimited(batches: Sequence[SealedBatch]) -> bytes:
    """The payloads as ClickHouse's format Protobuf has them."""
    return b"".join(_varint(len(batch.payload)) + batch.payload for batch in batches)


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])


def _body(who: Identity, kind: Kind, number: int) -> bytes:
    batch = Batch.FromString(_sealed(who, kind, number).payload)
    batch.ClearField("header")
    return batch.SerializeToString()


def _sealed(who: Identity, kind: Kind, number: int) -> SealedBatch:
    sealer = Sealer(replace(who), clock=SystemClock())
    sealer.add(Block(kind, SEAL_ROWS, _COLUMNS[kind](who, number)))
    sealed = sealer.seal()
    assert sealed is not None
    return sealed


def _paths() -> Iterator[tuple[str, str, int]]:
    for layer in range(LAYERS):
        for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.0"):
            module = f"blocks.{layer}.{part}"
            yield f"{module}.weight", module, layer
            yield f"{module}.bias", module, layer


def _tensor_stats(who: Identity, number: int) -> dict[str, Column]:
    """Rows of level 1, with the columns `rankscope.watch` fills at it."""
    rows = range(SEAL_ROWS)
    paths = list(_paths())
    picked = [paths[row % STEP_ROWS] for row in rows]
    now = time.time_ns()
    return {
        "name": [name for name, _, _ in picked],
        "module": [module for _, module, _ in picked],
        "layer_index": [layer for _, _, layer in picked],
        "layer_type": ["mlp"] * SEAL_ROWS,
        "role": [Role.GRAD.code] * SEAL_ROWS,
        "dtype": ["float32"] * SEAL_ROWS,
        "shape": [768, 3072] * SEAL_ROWS,
        "shape_n": [2] * SEAL_ROWS,
        "placement": [""] * SEAL_ROWS,
        "numel_local": [768 * 3072] * SEAL_ROWS,
        "numel_global": [768 * 3072] * SEAL_ROWS,
        "step": [10 * (number * SEAL_ROWS + row) // STEP_ROWS for row in rows],
        "microstep": [0] * SEAL_ROWS,
        "phase": [Phase.BACKWARD.code] * SEAL_ROWS,
        "time": [now + row for row in rows],
        "flags": [4] * SEAL_ROWS,
        "nonfinite_count": [0] * SEAL_ROWS,
        "nan_count": [0] * SEAL_ROWS,
        "inf_count": [0] * SEAL_ROWS,
        "absmax": [abs(math.sin(row + number)) for row in rows],
        "l2": [math.exp(math.cos(row + who.rank)) for row in rows],
        "present": [_PRESENT] * SEAL_ROWS,
    }


def _spans(who: Identity, number: int) -> dict[str, Column]:
    """Spans with two text attributes, twenty to a step's trace."""
    rows = range(SEAL_ROWS)
    steps = [(number * SEAL_ROWS + row) // 20 for row in rows]
    traces = {step: step_trace_id(who.run_id, who.launch_id, step) for step in set(steps)}
    now = time.time_ns()
    return {
        "span_id": [(who.rank << 48) + (number << 32) + row + 1 for row in rows],
        "trace_hi": [traces[step][0] for step in steps],
        "trace_lo": [traces[step][1] for step in steps],
        "parent_span_id": [(who.rank << 48) + (number << 32) + max(row // 20 * 20, 1) for row in rows],
        "name": [f"op {row % 50}" for row in rows],
        "kind": [SpanKind.SYSTEM.code] * SEAL_ROWS,
        "status": [SpanStatus.OK.code] * SEAL_ROWS,
        "start": [now + 1_000 * row for row in rows],
        "duration": [1_000 + row for row in rows],
        "step": steps,
        "phase": [Phase.FORWARD.code] * SEAL_ROWS,
        "depth": [2] * SEAL_ROWS,
        "path": [f"step/forward/op {row % 50}" for row in rows],
        "attribute_keys": ["device", "shape"] * SEAL_ROWS,
        "attribute_values": [text for row in rows for text in (f"cuda:{row % 2}", f"{row % 20}x768")],
        "attribute_n": [2] * SEAL_ROWS,
        "capture": [Capture.OFF.code] * SEAL_ROWS,
        "flags": [8] * SEAL_ROWS,
    }


def first_statistics(who: Identity, rows: int) -> Block:
    """The first rows of a batch of level-1 statistics."""
    lengths = {"shape": 2 * rows}
    columns = {name: column[: lengths.get(name, rows)] for name, column in _tensor_stats(who, 0).items()}
    return Block("tensor_stats", rows, columns)


_COLUMNS = {"spans": _spans, "tensor_stats": _tensor_stats}
