"""torch's flight recorder, read a piece at a time.

The recorder lists every collective of the process, also those of DDP, DTensor and compiled code, which no wrapped
call sees. It is private to torch, so what is used of it is looked for and tried when this object is made, and its
absence is a stated limit. Measured with torch 2.13: it records for nothing; a dump is always the whole ring, 4.4 µs
an entry at 512 entries (8.7 at 2,000) with the GIL held, and 1.8 µs to unpickle, which may be done later; a dump
without entries takes 3.6 µs.
"""

import marshal
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

MOST_SHAPES = 16
"""Shapes of one input that are written out."""

_MOST_TRAITS = 4_096
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


class Traits(NamedTuple):
    """What a collective does; the same ones come again and again.

    Attributes:
        op: Operation, without the back end.
        backend: The back end.
        shape: Shapes of the inputs, as text.
        dtype: Element type of the first, as torch names it.
        size: Bytes of the inputs.
    """

    op: str
    backend: str
    shape: str
    dtype: str
    size: int


class Entry(NamedTuple):
    """One collective of the recorder.

    Attributes:
        record: Counts the entries of the process.
        pg: Counts the process's groups: a name that is given anew has another.
        group: Name of the group.
        number: What `_get_sequence_number_for_group` said after it; with gloo it counts p2p calls, too.
        cseq: Number among the group's collectives, from 1.
        created_ns: Wall clock (of C++, ns since 1970) when it was put in.
        traits: What it does.
        device_ns: How long it took on its device, where that is timed.
        is_over: Whether it has finished.
        is_p2p: Whether it is between two ranks.
    """

    record: int
    pg: int
    group: str
    number: int
    cseq: int
    created_ns: int
    traits: Traits
    device_ns: int | None
    is_over: bool
    is_p2p: bool


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
        self._traits: dict[tuple[str, bytes, str], Traits] = {}
        self.lack = ""
        self.size = _size()
        self._dump = _dump_of(module)
        if self._dump is None:
            self.lack = "this torch has no flight recorder"
        elif not self.size:
            self.lack = "torch's flight recorder is switched off (TORCH_FR_BUFFER_SIZE=0)"
        else:
            self.held()

    def decline(self, why: str) -> None:
        """Read it no more."""
        self.lack = why

    def status(self) -> Mapping[int, tuple[int, int]]:
        """Of each group by its `pg`: the number last put in and the one last over."""
        found = self._loaded(self._dumped(entries=False)).get("pg_status", {})
        try:
            return {
                int(pg): (int(each["last_enqueued_collective"]), int(each["last_completed_collective"]))
                for pg, each in found.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._give_up(error)
            return {}

    def dump(self) -> bytes:
        """The ring as it is now, for `fresh`, whose work may be done later and in another thread."""
        return self._dumped(entries=True)

    def fresh(self, dump: bytes) -> tuple[Sequence[Entry], bool]:
        """What is new in a dump.

        Args:
            dump: What `dump` returned; to be given in the same order.

        Returns:
            The entries that were in no dump before, oldest first, and whether none was overwritten before them.
        """
        entries = self._entries(dump, after=self._last)
        is_whole = not entries or entries[0].record == self._last + 1
        if entries:
            self._last = entries[-1].record
        return entries, is_whole

    def skip(self, record: int) -> None:
        """Take entries up to this one as known."""
        self._last = max(self._last, record)

    def held(self) -> Sequence[Entry]:
        """All the entries that are there, oldest first; they stay fresh."""
        return self._entries(self.dump(), after=-1)

    def _entries(self, dump: bytes, *, after: int) -> Sequence[Entry]:
        try:
            entries = self._loaded(dump).get("entries", ())
            self.size = max(self.size, len(entries))  # it was made before anybody said how large
            return [self._entry(raw) for raw in entries if raw["record_id"] > after]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            self._give_up(error)
            return ()

    def _entry(self, raw: Mapping[str, Any]) -> Entry:
        name, sizes, types = raw["profiling_name"], raw["input_sizes"], raw["input_dtypes"]
        key = (name, marshal.dumps(sizes), types[0] if types else "")
        traits = self._traits.get(key)
        if traits is None:
            if len(self._traits) >= _MOST_TRAITS:
                self._traits.clear()
            traits = self._traits[key] = _traits_of(name, sizes, types=types)
        cseq, took_ms = raw["collective_seq_id"], raw.get("duration_ms")
        return Entry(
            raw["record_id"],
            raw["pg_id"],
            raw["process_group"][0],
            raw["op_id"] if traits.backend == "gloo" else cseq,
            cseq,
            raw["time_created_ns"],
            traits,
            None if took_ms is None else int(took_ms * 1e6),
            raw["retired"],
            raw["is_p2p"],
        )

    def _dumped(self, *, entries: bool) -> bytes:
        if self.lack or self._dump is None:
            return b""
        try:
            return self._dump(entries, False, False)
        except Exception as error:  # noqa: BLE001  # private to torch: whatever it does is its absence to us
            self._give_up(error)
            return b""

    def _loaded(self, dump: bytes) -> Mapping[str, Any]:
        if not dump:
            return {}
        try:
            loaded = pickle.loads(dump)  # noqa: S301  # made by this process, just now
        except Exception as error:  # noqa: BLE001  # likewise
            self._give_up(error)
            return {}
        return cast("Mapping[str, Any]", loaded) if isinstance(loaded, dict) else {}

    def _give_up(self, error: Exception) -> None:
        self.decline(f"torch's flight recorder is not as expected: {type(error).__name__}: {error}")


def ask_for_size() -> None:
    """Have the recorder small enough to be read often, where the user has not said how large it is."""
    if not any(variable in os.environ for variable in SIZE_VARIABLES):
        os.environ[SIZE_VARIABLES[0]] = str(OURS)


def shapes_text(shapes: Sequence[Sequence[int]]) -> str:
    """Shapes as a row has them: 1000, 64x64;64; a scalar is 1; of very many the first ones and how many there are."""
    text = ";".join(["x".join(map(str, shape)) or "1" for shape in shapes[:MOST_SHAPES]])
    return f"{text};… {len(shapes)} in all" if len(shapes) > MOST_SHAPES else text


def _size() -> int:
    told = [os.environ[variable] for variable in SIZE_VARIABLES if variable in os.environ]
    return int(told[0]) if told and told[0].isascii() and told[0].isdigit() else USUAL


def _dump_of(module: object | None) -> Callable[[bool, bool, bool], bytes] | None:
    if module is None:
        try:
            module = import_module("torch._C._distributed_c10d")
        except ImportError:
            return None
    return next((dump for name in _DUMPS if (dump := getattr(module, name, None)) is not None), None)


def _traits_of(name: str, sizes: Sequence[Sequence[int]], *, types: Sequence[str]) -> Traits:
    backend, _, op = name.rpartition(":")
    kinds = [_TYPES.get(kind, (kind.lower(), 0)) for kind in types]
    size = sum(prod(shape) * each for shape, (_, each) in zip(sizes, kinds, strict=False))
    return Traits(_OPS.get(op, op), backend, shapes_text(sizes), kinds[0][0] if kinds else "", size)


_OPS = {"_all_gather_base": "all_gather_single", "_reduce_scatter_base": "reduce_scatter_single"}
"""What NCCL calls by other names than torch does."""
