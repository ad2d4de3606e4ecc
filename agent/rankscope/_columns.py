"""Blocks of one section laid end to end into the section's protobuf message.

Blocks of one batch may carry different columns (a probe at another level, a metric without a
step). The message's columns are as long as the section or absent, so a column that only some
blocks carry is filled: with zeros under a cleared bit of `present` where the contract makes the
field optional, with the field's zero value where it does not.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from rankscope._block import Block, Column
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.declaration import Field, Section, Wire
from rankscope_proto.v1.batch_pb2 import Batch

_ABSENT: dict[Wire, str | bytes] = {Wire.DICT: "", Wire.STRING: "", Wire.BYTES: b""}
"""What fills a column that only some blocks carry; numbers are 0."""


class Dictionary(dict[str, int]):
    """Text → index into `Batch.strings`; entry 0 is the empty string; new text is added."""

    def __init__(self) -> None:
        super().__init__({"": 0})
        self.strings = [""]
        self.size = 0

    def __missing__(self, text: str) -> int:
        index = self[text] = len(self.strings)
        clean = as_utf8(text)
        self.strings.append(clean)
        self.size += len(clean) + 3
        return index


class Repeated(Protocol):
    """A repeated field of a message."""

    def extend(self, values: Column, /) -> None:
        """Append every value."""
        ...


def as_utf8(text: str) -> str:
    """The text with what UTF-8 cannot carry (lone surrogates) replaced by '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def fill(message: object, blocks: Sequence[Block], *, words: Dictionary) -> None:
    """Write the blocks, all of one section, into the section's message.

    Raises:
        TypeError, ValueError: a block holds a value its field cannot carry.
    """
    section = SECTION_BY_NAME[blocks[0].section]
    for field in section.fields:
        if field.wire is not Wire.PRESENT and any(field.name in block.columns for block in blocks):
            target, encoded = _repeated(message, field.name), _encoder(field, words)
            for block in blocks:
                target.extend(encoded(_column(field, block)))
    mask = _mask(section, blocks)
    if mask:
        _repeated(message, "present").extend(mask)


def block_of(message: Batch, section: str) -> Block:
    """The rows of a section of a batch, as a block again: texts for the dictionary's indexes."""
    part = getattr(message, section)
    declared = SECTION_BY_NAME[section]
    columns: dict[str, Column] = {}
    for field in declared.fields:
        values = list(cast("Sequence[int | float | str]", getattr(part, field.name)))
        if values and field.wire is Wire.DICT:
            values = [message.strings[cast("int", index)] for index in values]
        if values:
            columns[field.name] = values
    return Block(section, len(columns[declared.key]), columns)


def check(block: Block) -> None:
    """Raise ValueError unless every column is as long as the block says.

    Raises:
        ValueError: naming the section, the field and both lengths.
    """
    section = SECTION_BY_NAME[block.section]
    for name, column in block.columns.items():
        field = section.field(name)
        expected = block.count if field.count is None else sum(cast("Sequence[int]", block.columns[field.count]))
        if len(column) != expected:
            raise ValueError(f"{section.name}.{name} holds {len(column)} values for {expected}")


def _encoder(field: Field, words: Dictionary) -> Callable[[Column], Column]:
    if field.wire is Wire.DICT:
        return lambda texts: [words[text] for text in cast("Sequence[str]", texts)]
    if field.wire is Wire.STRING:
        return lambda texts: [as_utf8(text) for text in cast("Sequence[str]", texts)]
    return lambda values: values


def _column(field: Field, block: Block) -> Column:
    column = block.columns.get(field.name)
    if column is not None:
        return column
    if field.count is not None:
        return ()
    return (_ABSENT.get(field.wire, 0),) * block.count


def _mask(section: Section, blocks: Sequence[Block]) -> list[int]:
    """`present` of every row, or nothing where every row has every optional field that travels."""
    bits = {field.name: 1 << field.optional for field in section.fields if field.optional is not None}
    carried = [sum(bit for name, bit in bits.items() if name in block.columns) for block in blocks]
    stated = any("present" in block.columns for block in blocks)
    if not stated and len(set(carried)) <= 1:
        return []
    mask: list[int] = []
    for block, own in zip(blocks, carried, strict=True):
        rows = cast("Sequence[int]", block.columns.get("present", (own,) * block.count))
        mask.extend(row & own for row in rows)
    return mask


def _repeated(message: object, name: str) -> Repeated:
    return cast("Repeated", getattr(message, name))
