"""Random events, as several processes of one run would send them: series over many steps, with everything in them
that makes a comparison, an arithmetic or a history go wrong.
"""

import math
import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.tql.fields import SECTION, Entity
from rankscope_proto.v1 import batch_pb2 as pb
from tests.proto.batches import SEALED, batch
from tests.query_api.tql.rows import Row, fill

SEED = 20_260_115
RANKS = (0, 1, -1)
BATCHES = 3
"""Batches of each process."""

NAMES = ("w", "layers.0.attn", "λ/é\U0001f600", "a\nb'\"\\", "")
TEXTS = ("", "ok", "ü", "cuda:0", "cuda:1", "a\nb", "true", "{p0:String}", "\U0001f600")
FLOATS = (
    *(None, None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 1.5, 0.1, 100.0),
    *(2.0**53, 2.0**63, 2.0**64, 1e16, -3.0e38, 1e308, -1e308, 1.7976931348623157e308, 5e-324, 1.4e-45),
)  # fmt: skip
WHOLE = (None, 0, 1, 2, 3, 7, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
DURATIONS = (0, 1, -1, 3, 7, 5_000_000, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 1_000_000_000)
FLAGS = (4, 4, 4, 4 | 64, 0, 8 | 64)
"""Of tensors: local, skipped, reduced; mostly of one series."""

STEPS = (None, 0, 0, 1, 1, 2, 2**53 + 1, 2**63 - 1)


@dataclass(frozen=True)
class Process:
    """What one process sends.

    Attributes:
        rank: Its rank, -1: none.
        batches: Of each batch, the rows by entity, in the order they were made.
    """

    rank: int
    batches: Sequence[Mapping[Entity, list[Row]]]

    @property
    def incarnation(self) -> bytes:
        """Which process it is."""
        return bytes([self.rank + 2]) * 16

    def sealed(self) -> list[pb.Batch]:
        """Its batches, as it would seal them."""
        return [_sealed(self, number) for number in range(len(self.batches))]


def _sealed(process: Process, number: int) -> pb.Batch:
    made = batch(rank=process.rank, seq=number, strings=[""])
    made.header.incarnation = process.incarnation
    index = {"": 0}
    for entity, rows in process.batches[number].items():
        fill(made, SECTION[entity], rows, index)
    del made.strings[:]
    made.strings.extend(index)
    return made


def processes(seed: int = SEED) -> list[Process]:
    """The processes of the run."""
    chance = random.Random(seed)
    return [Process(rank, [_batch(chance, rank, number) for number in range(BATCHES)]) for rank in RANKS]


def foreign(seed: int = SEED) -> list[pb.Batch]:
    """Batches of another project, under the same names."""
    made = [sealed for process in processes(seed + 1) for sealed in process.sealed()]
    for sealed in made:
        sealed.header.project = "other"
    return made


def _batch(chance: random.Random, rank: int, number: int, /) -> dict[Entity, list[Row]]:
    """Rows of all entities; each row's time, or span id, is its own."""
    base = (rank + 2) * 1_000_000 + number * 10_000
    return {
        Entity.TENSOR: [_tensor(chance, base + at) for at in range(40)],
        Entity.SPAN: [_span(chance, base + at) for at in range(30)],
        Entity.SCALAR: [_scalar(chance, base + at) for at in range(40)],
    }


def _float(chance: random.Random) -> float | None:
    """Half of them of one size, so that histories have a spread."""
    return chance.choice(FLOATS) if chance.random() < 0.5 else chance.gauss(10, 2)


def _float32(chance: random.Random) -> float | None:
    value = _float(chance)
    if value is None or not math.isfinite(value):
        return value
    kept: float = struct.unpack("<f", struct.pack("<f", max(-3e38, min(3e38, value))))[0]
    return kept


def _whole(chance: random.Random) -> int | None:
    return chance.choice(WHOLE) if chance.random() < 0.5 else chance.randrange(50)


def _tensor(chance: random.Random, own: int) -> Row:
    return {
        "name": chance.choice(NAMES[:3]),
        "module": chance.choice(("", "layers.0", "layers.1")),
        "layer_index": chance.choice((None, 0, 3, 2**32 - 1)),
        "layer_type": chance.choice(("attention", "", "mlp")),
        "role": chance.choice((2, 2, 1, 99)),
        "dtype": "torch.float32",
        "numel_local": chance.choice((0, 1, 2**64 - 1)),
        "step": chance.choice(STEPS),
        "microstep": chance.choice((0, 0, 1)),
        "microbatch": chance.choice((None, None, 0)),
        "phase": chance.choice((2, 2, 3)),
        "flags": chance.choice(FLAGS),
        "call": chance.choice((0, 0, 0, 0, 0, 1)),
        "time": SEALED + own,
        "nan_count": _whole(chance),
        "zero_count": _whole(chance),
        "absmax": _float32(chance),
        "mean": _float32(chance),
        "l1": _float(chance),
        "l2": _float(chance),
        "fingerprint": chance.choice((None, 0, 1, 2**64 - 1)),
    }


def _span(chance: random.Random, own: int) -> Row:
    return {
        "span_id": own,
        "trace_hi": 7,
        "trace_lo": chance.randrange(3),
        "parent_span_id": chance.choice((0, own - 1)),
        "name": chance.choice(NAMES),
        "kind": chance.choice((6, 14, 0, 99)),
        "status": chance.choice((1, 2, 0)),
        "start": SEALED + chance.choice((0, 1, own)),
        "duration": chance.choice(DURATIONS),
        "step": chance.choice(STEPS),
        "microstep": 0,
        "phase": chance.choice((0, 2)),
        "depth": chance.choice((0, 1, 65535)),
        "path": chance.choice(("a/b", "")),
        "thread_id": "",
        "error_type": chance.choice(("", "ValueError")),
        "attributes": {key: chance.choice(TEXTS) for key in ("device", "odd key'", "x") if chance.random() < 0.5},
        "numbers": {key: value for key in ("n", "x") if (value := _float(chance)) is not None},
        "metrics": {key: value for key in ("reward",) if (value := _float(chance)) is not None},
    }


def _scalar(chance: random.Random, own: int) -> Row:
    value = _float(chance)
    return {
        "name": chance.choice(("loss", "λ")),
        "step": chance.choice(STEPS),
        "value": 0.25 if value is None else value,
        "time": SEALED + own,
    }
