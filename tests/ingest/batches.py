"""Sealed batches as a trainer would send them, small, and easy to spoil."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from rankscope_proto.identity import payload_digest, uuid7, week_of
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Sealed

NOW = 1_795_000_000_000_000_000
"""A moment in November 2026, ns since the epoch."""

Spoil = Callable[[Batch], object]


def new_incarnation() -> bytes:
    """A fresh process start."""
    return uuid7(NOW, os.urandom(10))


def batch(seq: int = 0, *, incarnation: bytes = b"i" * 16, rank: int = 0, run_id: str = "run") -> Batch:
    """A valid batch: two spans with attributes, three statistics, one scalar."""
    message = Batch(strings=["", "step", "device", "cuda:0", "layers.0.weight", "loss"])
    header = message.header
    header.schema_version, header.project, header.run_id = 1, "default", run_id
    header.launch_id, header.incarnation, header.seq = b"l" * 16, incarnation, seq
    header.process_role, header.rank, header.local_rank, header.world_size = 1, rank, rank, 4
    header.worker_index = header.parent_rank = -1
    header.node, header.sdk_version = "node0", "0.1.0"
    header.sealed, header.week = NOW, week_of(NOW, now_ns=NOW)
    header.emitted_spans, header.emitted_tensor_stats, header.emitted_scalars = 2, 3, 1
    spans = message.spans
    spans.span_id.extend([seq * 10 + 1, seq * 10 + 2])
    spans.name.extend([1, 1])
    spans.kind.extend([13, 13])
    spans.start.extend([NOW, NOW + 5])
    spans.duration.extend([1, -1])
    spans.step.extend([seq, seq])
    spans.attribute_keys.append(2)
    spans.attribute_values.append(3)
    spans.attribute_n.extend([1, 0])
    stats = message.tensor_stats
    stats.name.extend([4, 4, 4])
    stats.role.extend([1, 2, 2])
    stats.time.extend([NOW] * 3)
    stats.l2.extend([1.0, float("nan"), float("inf")])
    stats.shape.extend([2, 3, 4])
    stats.shape_n.extend([2, 1, 0])
    scalars = message.scalars
    scalars.name.append(5)
    scalars.value.append(0.5)
    scalars.time.append(NOW)
    return message


def seal(message: Batch, *, base: int = 0) -> Sealed:
    """The envelope that fits a batch."""
    return seal_bytes(message.SerializeToString(), message, base=base)


def seal_bytes(payload: bytes, message: Batch, *, base: int = 0) -> Sealed:
    """An envelope for those bytes, with the header of `message`."""
    rows = len(message.spans.span_id) + len(message.tensor_stats.name) + len(message.scalars.name)
    header = message.header
    return Sealed(
        payload=payload,
        incarnation=header.incarnation,
        seq=header.seq,
        digest=payload_digest(payload),
        rows=rows,
        week=header.week,
        base=base,
    )


def spoiled(spoil: Spoil) -> Sealed:
    """A sealed batch after `spoil` changed its message."""
    message = batch()
    spoil(message)
    return seal(message)


@dataclass
class Sender:
    """A process that seals batches one after the other."""

    rank: int = 0
    run_id: str = "run"
    incarnation: bytes = field(default_factory=new_incarnation)
    seq: int = 0

    def next(self) -> Sealed:
        """The next batch: 6 rows."""
        message = batch(self.seq, incarnation=self.incarnation, rank=self.rank, run_id=self.run_id)
        self.seq += 1
        return seal(message)
