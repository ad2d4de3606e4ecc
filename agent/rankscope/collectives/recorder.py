"""torch's flight recorder, read a piece at a time.

The recorder lists every collective of the process, also those of DDP, DTensor and compiled code, which no wrapped
call sees. It is private to torch, so what is used of it is looked for and tried when this object is made, and its
absence is a stated limit. Measured with torch 2.13: it records for nothing; a dump is always the whole ring, 4.4 µs
an entry at 512 entries (8.7 at 2,000) with the GIL held, and 1.8 µs to unpickle; a dump without entries takes 3.6 µs.
"""

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any, NamedTuple, cast

SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Either says how many entries there are; torch reads them when the first process group is made."""

OURS = 512
"""Entries asked for where nobody said how many."""

USUAL = 2_000
"""Entries where nobody said it before the first process group was made."""

_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")
_TYPES: Mapping[str, tuple[str, int]] = {
    "Byte": ("uint8", 1),
    "Char": ("int8", 1),
    "Bool": ("bool", 1),
    "Short": ("int16", 2),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Int": ("int32", 4),
    "Float": ("float32", 4),
    "Long": ("int64", 8),
    "Double": ("float64", 8),
    "ComplexFloat": ("complex64", 8),
    "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1),
    "Float8_e5m2": ("float8_e5m2", 1),
}


class Entry(NamedTuple):
    """One collective of the recorder.

    Attributes:
        record: Counts the entries of the process.
        pg: Counts the process's groups: a name that is given anew has another.
        group: Name of the group.
        number: What `_get_sequence_number_for_group` said after it; with gloo it counts p2p calls too.
        cseq: Number among the group's collectives, from 1.
        op: Operation, without the back end.
        backend: The back end.
        created_ns: Wall clock (of C++, ns since 1970) when it was put in.
        sizes: Shapes of the inputs.
        types: Element types of the inputs, as the recorder names them.
        device_ns: How long it took on its device, where that is timed.
        is_over: Whether it has finished.
        is_p2p: Whether it is between two ranks.
    """

    record: int
    pg: int
    group: str
    number: int
    cseq: int
    op: str
    backend: str
    created_ns: int
    sizes: Sequence[Sequence[int]]
    types: Sequence[str]
    device_ns: int | None
    is_over: bool
    is_p2p: bool

    @property
    def dtype(self) -> str:
        """Element type, as torch names it."""
        return _TYPES.get(self.types[0], (self.types[0].lower(), 0))[0] if self.types else ""

    @property
    def size(self) -> int:
        """Bytes of the inputs."""
        kinds = [_TYPES.get(kind, ("", 0))[1] for kind in self.types]
        return sum(prod(shape) * each for shape, each in zip(self.sizes, kinds, strict=False))


class FlightRecorder:
    """Reads the recorder of this process.

    Args:
        module: Where torch keeps it; default: where it does.

    Attributes:
        lack: Why it cannot be read; "" where it can.
        size: Entries it holds at most, as far as is known.
    """

    def __init__(self, module: object | None = None) -> None:
        self._last = -1
        self.lack = ""
        self.size = _size()
        self._dump = _dump_of(module)
        if self._dump is None:
            self.lack = "this torch has no flight recorder"
        elif not self.size:
            self.lack = "torch's flight recorder is switched off (TORCH_FR_BUFFER_SIZE=0)"
        else:
            self.read()
            self._last = -1

    def status(self) -> Mapping[int, tuple[int, int]]:
        """Of each group by its `pg`: the number last put in and the one last over."""
        found = self._loaded(entries=False).get("pg_status", {})
        try:
            return {
                int(pg): (int(each["last_enqueued_collective"]), int(each["last_completed_collective"]))
                for pg, each in found.items()
            }
        except (KeyError, TypeError, ValueError) as error:
            self._give_up(error)
            return {}

    def read(self) -> Sequence[Entry]:
        """The entries since the last reading, oldest first; a jump of `record` tells of those that were overwritten."""
        entries = self.held()
        fresh = [entry for entry in entries if entry.record > self._last]
        if fresh:
            self._last = fresh[-1].record
        return fresh

    def held(self) -> Sequence[Entry]:
        """All the entries that are there, oldest first; changes nothing."""
        try:
            return [_entry(each) for each in self._loaded(entries=True).get("entries", ())]
        except (KeyError, TypeError, ValueError) as error:
            self._give_up(error)
            return ()

    def _loaded(self, *, entries: bool) -> Mapping[str, Any]:
        if self.lack or self._dump is None:
            return {}
        try:
            loaded = pickle.loads(self._dump(entries, False, False))  # noqa: S301  # made by this process, just now
        except Exception as error:  # noqa: BLE001  # private to torch: whatever it does is its absence to us
            self._give_up(error)
            return {}
        return cast("Mapping[str, Any]", loaded) if isinstance(loaded, dict) else {}

    def _give_up(self, error: Exception) -> None:
        self.lack = f"torch's flight recorder is not as expected: {type(error).__name__}: {error}"


def ask_for_size() -> None:
    """Have the recorder small enough to be read often, where the user has not said how large it is."""
    if not any(variable in os.environ for variable in SIZE_VARIABLES):
        os.environ[SIZE_VARIABLES[0]] = str(OURS)


def shapes_text(shapes: Sequence[Sequence[int]]) -> str:
    """Shapes as a row has them: 1000, 64x64;64; a scalar is 1."""
    return ";".join("x".join(map(str, shape)) or "1" for shape in shapes)


def _size() -> int:
    told = [os.environ[variable] for variable in SIZE_VARIABLES if variable in os.environ]
    return int(told[0]) if told and told[0].isascii() and told[0].isdigit() else USUAL


def _dump_of(module: object | None) -> Callable[[bool, bool, bool], bytes] | None:
    if module is None:
        try:
            module = import_module("torch._C._distributed_c10d")
        except ImportError:
            return None
    return next((getattr(module, name) for name in _DUMPS if hasattr(module, name)), None)


def _entry(raw: Mapping[str, Any]) -> Entry:
    backend, _, op = str(raw["profiling_name"]).rpartition(":")
    cseq, number = raw["collective_seq_id"], raw["op_id"]
    took_ms = raw.get("duration_ms")
    return Entry(
        record=raw["record_id"],
        pg=raw["pg_id"],
        group=raw["process_group"][0],
        number=number if backend == "gloo" else cseq,
        cseq=cseq,
        op=_OPS.get(op, op),
        backend=backend,
        created_ns=raw["time_created_ns"],
        sizes=raw["input_sizes"],
        types=raw["input_dtypes"],
        device_ns=None if took_ms is None else int(took_ms * 1e6),
        is_over=bool(raw["retired"]),
        is_p2p=bool(raw["is_p2p"]),
    )


_OPS = {"_all_gather_base": "all_gather_single", "_reduce_scatter_base": "reduce_scatter_single"}
"""What NCCL calls by other names than torch does."""
