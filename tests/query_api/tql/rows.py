"""Rows with everything that makes a comparison go wrong: missing values, NaN, infinities, signed zeros, extremes,
empty words, codes newer than this build, unicode, quotes.

Each row is a dictionary by field name, as a query names it; a field that is not in it is missing.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rankscope_proto import columns
from rankscope_proto.declaration import Section, Wire
from rankscope_proto.v1 import batch_pb2 as pb
from tests.proto.batches import SEALED, batch

Row = dict[str, Any]

RUN = "run-1"
FLOATS = (None, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 8.0, -3.0e38, 1.4e-45, 100.5)
COUNTS = (0, None, 1, 2**64 - 1, 7, 2**63)
NAMES = ("layers.0.attn", "", "λ/é.weight", "x'); DROP TABLE spans --", '"q" \\ {p0:String}', "layers.1", "LAYERS.0")
STEPS = (0, None, 5, 2**63 - 1, 6)


def _at(values: Sequence[Any], number: int, stride: int) -> Any:
    """A value of a list for a row; the shift after each round mixes columns of one length."""
    return values[(number * stride + number // len(values)) % len(values)]


def tensors(rank: int) -> list[Row]:
    """Rows of `tensor_stats` of one rank; rank -1 has none."""
    return [
        {
            "name": _at(NAMES, number, 3),
            "module": _at(("", "layers.0", "layers.1"), number, 2),
            "layer_index": _at((None, 0, 3), number, 2),
            "layer_type": _at(("attention", "", "mlp", "norm"), number, 3),
            "role": _at((2, 1, 0, 99, 3), number, 4),
            "dtype": "torch.float32",
            "step": _at(STEPS, number, 3),
            "microstep": number % 2,
            "phase": _at((2, 3, 0, 4), number, 3),
            "time": SEALED + (number * 37) % 11,
            "nan_count": _at(COUNTS, number, 5),
            "nonfinite_count": _at((0, 0, 0, None, 3), number, 2),
            "absmax": _at(FLOATS, number, 5),
            "mean": _at(FLOATS, number, 7),
            "l2": _at((None, math.nan, 100.0, 1e308, 5e-324, -math.inf), number, 5),
            "fingerprint": _at((None, 0, 2**64 - 1), number, 2),
        }
        for number in range(33)
    ]


def spans(rank: int) -> list[Row]:
    """Rows of `spans` of one rank."""
    texts: tuple[dict[str, str], ...] = (
        {"device": "cuda:0", "odd key'": "ü"},
        {},
        {"device": ""},
        {"device": "cuda:1", "x": "true"},
    )
    numbers: tuple[dict[str, float], ...] = ({"x": 3.0, "n": math.nan}, {}, {"n": math.inf}, {"n": -0.0, "x": 2.5})
    return [
        {
            "span_id": 1000 * (rank + 2) + number,
            "trace_hi": 7,
            "trace_lo": number // 5,
            "parent_span_id": 0 if number % 5 == 0 else 1000 * (rank + 2) + number - 1,
            "name": _at(NAMES, number, 2),
            "kind": _at((6, 14, 0, 99), number, 3),
            "status": _at((1, 2, 3, 0), number, 3),
            "start": SEALED + number * 1_000_000,
            "duration": _at((0, 5_000_000, -1, 2**62, 1_000_000_000), number, 3),
            "step": _at(STEPS, number, 2),
            "microstep": 0,
            "phase": _at((0, 2, 3), number, 2),
            "error_type": _at(("", "ValueError"), number, 1),
            "flags": 8 if number % 3 else 0,
            "attributes": _at(texts, number, 3),
            "numbers": _at(numbers, number, 1),
            "metrics": _at(({}, {"reward": -1.0}, {"reward": math.nan}), number, 2),
        }
        for number in range(20)
    ]


def batches() -> list[pb.Batch]:
    """All rows, as three ranks would seal them, and a fourth batch of another project."""
    sealed = [filled(rank, tensors(rank), spans(rank)) for rank in (0, 1, -1)]
    foreign = filled(0, tensors(0), spans(0))
    foreign.header.project = "other"
    return [*sealed, foreign]


def filled(rank: int, tensor_rows: Sequence[Row], span_rows: Sequence[Row]) -> pb.Batch:
    """One batch with these rows."""
    made = batch(rank=rank, strings=[""])
    made.header.incarnation = bytes([rank + 2]) * 16
    index = {"": 0}
    fill(made, columns.TENSOR_STATS, tensor_rows, index)
    fill(made, columns.SPANS, span_rows, index)
    del made.strings[:]
    made.strings.extend(index)
    return made


def fill(made: pb.Batch, section: Section, rows: Sequence[Row], index: dict[str, int], /) -> None:
    """Writes rows into a section; `index` is the batch's dictionary, and grows."""
    message = getattr(made, section.name)
    maps = {known.name: (known.keys, known.values) for known in section.maps}
    for name in rows[0]:
        if name in maps:
            _fill_map(message, section, maps[name], [row[name] for row in rows], index)
        else:
            declared = section.field(name)
            values = [row[name] for row in rows]
            getattr(message, name).extend(_wire(declared.wire, values, index))
    message.present.extend(_masks(section, rows))


def _fill_map(
    message: Any, section: Section, fields: tuple[str, str], maps: Sequence[dict[str, Any]], index: dict[str, int], /
) -> None:
    keys, values = fields
    flat = list(itertools.chain.from_iterable(entries.items() for entries in maps))
    getattr(message, keys).extend(index.setdefault(key, len(index)) for key, _ in flat)
    kept = [value for _, value in flat]
    getattr(message, values).extend(_wire(section.field(values).wire, kept, index))
    getattr(message, str(section.field(keys).count)).extend(len(entries) for entries in maps)


def _wire(wire: Wire, values: Iterable[Any], index: dict[str, int]) -> list[Any]:
    if wire is Wire.DICT:
        return [index.setdefault(value, len(index)) for value in values]
    return [0 if value is None else value for value in values]


def _masks(section: Section, rows: Sequence[Row]) -> list[int]:
    bits = {declared.name: declared.optional for declared in section.fields if declared.optional is not None}
    return [sum(1 << bit for name, bit in bits.items() if row.get(name) is not None) for row in rows]
