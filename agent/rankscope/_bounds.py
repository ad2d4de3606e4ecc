"""How long text may be that travels: every text column once, cut where a block enters a batch.

Text comes from people and from programs, and any of it may be megabytes: a name built from a prompt, an
exception class, a metric per file. The gateway refuses a batch for one text that is too long, so it is cut
here, whoever produced it; where the section has the flag `truncated`, the row carries it.
"""

from collections.abc import Sequence
from itertools import accumulate, chain, repeat
from typing import cast

from rankscope._block import Block, Column
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.names import SPAN_FLAGS
from rankscope_proto.sections_ranks import STACK_BYTES

NAME = 512
PATH = 2_048
PREDICATE = 8_192
VALUE = 32_768
DOCUMENT = 1024 * 1024

TEXT_BYTES: dict[str, dict[str, int]] = {
    "spans": {
        "name": NAME,
        "path": PATH,
        "thread_id": NAME,
        "rollout_id": NAME,
        "error_type": NAME,
        "attribute_keys": NAME,
        "attribute_values": VALUE,
        "number_keys": NAME,
        "metric_keys": NAME,
        "inputs": VALUE,
        "outputs": VALUE,
        "error_preview": VALUE,
    },
    "tensor_stats": {"name": NAME, "module": NAME, "layer_type": NAME, "dtype": NAME, "placement": NAME},
    "scalars": {"name": NAME},
    "modules": {
        "path": NAME,
        "parent": NAME,
        "class": NAME,
        "type": NAME,
        "parameters": NAME,
        "parameter_shapes": NAME,
        "parameter_dtypes": NAME,
        "aliases": NAME,
    },
    "events": {"kind": NAME, "name": NAME, "payload": DOCUMENT},
    "gaps": {"cause": NAME, "data_kind": NAME, "detail": NAME},
    "run_info": {
        "name": NAME,
        "config": DOCUMENT,
        "tags": NAME,
        "command": VALUE,
        "fact_keys": NAME,
        "fact_values": PATH,
    },
    "open_spans": {"thread": NAME, "stack_name": NAME},
    "hits": {
        "breakpoint": NAME,
        "predicate": PREDICATE,
        "name": NAME,
        "module": NAME,
        "mode": NAME,
        "action": NAME,
        "seen_names": NAME,
        "text_names": NAME,
        "text_values": NAME,
    },
    "captures": {
        "name": NAME,
        "module": NAME,
        "dtype": NAME,
        "part": NAME,
        "part_of": NAME,
        "cause": NAME,
    },
    "collectives": {
        "group": NAME,
        "group_ranks": PATH,
        "op": NAME,
        "entry_source": NAME,
        "exit_source": NAME,
        "dtype": NAME,
        "shape": PATH,
        "reduction": NAME,
        "module": NAME,
    },
    "clocks": {"server": NAME},
    "system_stats": {"name": NAME, "device": NAME},
    "standings": {"state": NAME, "group": NAME, "op": NAME, "shape": PATH, "stack": STACK_BYTES},
}
"""Most UTF-8 bytes of a text, by section and column."""

ATTRIBUTES = 32_768
METRICS = 16_384
"""Most bytes of a span's labels, and of its metrics, keys included."""

LINKS = 256
TAGS = 256
"""Most links of a span, and tags of a run."""

NUMBER_BYTES = 8
"""What a number counts in those bounds."""

PART_ROWS = 2_000
PART_TEXT = 1024 * 1024
"""Most rows of a part of a block, and characters of all its text, each written out wherever it is said."""

_CHARACTER = 4
"""The most bytes a character takes: most text needs no encoding to be seen short."""

_TRUNCATED = {"spans": SPAN_FLAGS["truncated"]}


def cut(text: str, max_bytes: int) -> str:
    """The text, or its longest beginning that takes at most so many bytes in UTF-8."""
    if len(text) * _CHARACTER <= max_bytes:
        return text
    encoded = text[:max_bytes].encode("utf-8", "replace")
    if len(encoded) <= max_bytes and len(text) <= max_bytes:
        return text
    return encoded[:max_bytes].decode("utf-8", "ignore")


def bytes_of(value: str | float) -> int:
    """What a label's key or value counts in its bound."""
    return len(value.encode("utf-8", "replace")) if isinstance(value, str) else NUMBER_BYTES


def path_under(path: str, name: str) -> str:
    """The path of a span of this name below a path; "": it is a root. A name's own "/" and "%" are escaped."""
    if "%" in name or "/" in name:
        name = name.replace("%", "%25").replace("/", "%2F")
    own = cut(name, NAME)
    return cut(f"{path}/{own}", PATH) if path else own


def bounded(block: Block) -> Block:
    """The block with every text within its bound: itself where all are already.

    Raises:
        KeyError, TypeError: the section is not one, or a text is none.
    """
    shorter: dict[str, Column] = {}
    for name, most in TEXT_BYTES[block.section].items():
        texts = cast("Sequence[str]", block.columns.get(name, ()))
        if texts and max(map(len, texts)) * _CHARACTER > most:
            kept = [cut(text, most) for text in texts]
            if any(map(str.__ne__, kept, texts)):
                shorter[name] = kept
    if not shorter:
        return block
    columns = {**block.columns, **shorter}
    flag = _TRUNCATED.get(block.section, 0)
    if flag:
        columns["flags"] = _flagged(block, shorter, flag=flag)
    return Block(block.section, block.count, columns)


def _flagged(block: Block, shorter: dict[str, Column], *, flag: int) -> Column:
    flags = list(cast("Sequence[int]", block.columns.get("flags", (0,) * block.count)))
    for name, kept in shorter.items():
        count = SECTION_BY_NAME[block.section].field(name).count
        rows = range(block.count) if count is None else _rows(cast("Sequence[int]", block.columns[count]))
        for row, old, new in zip(rows, block.columns[name], kept, strict=True):
            if old != new:
                flags[row] |= flag
    return flags


def _rows(counts: Sequence[int]) -> chain[int]:
    """The row of every element of a list column."""
    return chain.from_iterable(repeat(row, count) for row, count in enumerate(counts))


def text_size(block: Block) -> int:
    """Characters of the block's text, each written out wherever it is said."""
    names = TEXT_BYTES[block.section]
    return sum(sum(map(len, cast("Sequence[str]", block.columns.get(name, ())))) for name in names)


def parts(block: Block) -> list[Block]:
    """The block, or its rows in blocks small enough for a batch; a row alone is never divided."""
    if block.count <= 1 or (block.count <= PART_ROWS and text_size(block) <= PART_TEXT):
        return [block]
    middle = block.count // 2
    return [*parts(_slice(block, 0, end=middle)), *parts(_slice(block, middle, end=block.count))]


def _slice(block: Block, first: int, *, end: int) -> Block:
    section = SECTION_BY_NAME[block.section]
    starts: dict[str, list[int]] = {}
    columns: dict[str, Column] = {}
    for name, column in block.columns.items():
        count = section.field(name).count
        if count is None:
            columns[name] = column[first:end]
            continue
        if count not in starts:
            starts[count] = [0, *accumulate(cast("Sequence[int]", block.columns[count]))]
        columns[name] = column[starts[count][first] : starts[count][end]]
    return Block(block.section, end - first, columns)
