"""Renders the declaration as protobuf text: the commented contract and the text sent with each insert."""

from rankscope_proto.columns import SECTIONS, header_fields
from rankscope_proto.declaration import Field, Section, Wire

PACKAGE = "rankscope.v1"

_SCALARS = {Wire.DICT: "uint32", Wire.COUNT: "uint32", Wire.PRESENT: "uint64"}

_WIRE_NOTES = {
    Wire.DICT: "Index into Batch.strings.",
    Wire.COUNT: "Slices the fields that name it.",
}


def scalar(field: Field) -> str:
    """The protobuf scalar type a field travels as."""
    return _SCALARS.get(field.wire, field.wire.value)


def comment(field: Field) -> str:
    """The field's reference: meaning, unit, range, vocabulary, absence."""
    parts = [field.meaning, _WIRE_NOTES.get(field.wire, "")]
    if field.unit:
        parts.append(f"Unit: {field.unit}.")
    if field.low is not None or field.high is not None:
        parts.append(f"Range: {'' if field.low is None else field.low}..{'' if field.high is None else field.high}.")
    if field.vocabulary is not None:
        parts.append("Codes: " + ", ".join(f"{member.code} {member.value}" for member in field.vocabulary) + ".")
    if field.count and field.count != "mesh":
        parts.append(f"Sliced by {field.count}.")
    if field.optional is not None:
        parts.append(f"Absent in a row where bit {field.optional} of present is 0.")
    return " ".join(part for part in parts if part)


def _message(name: str, meaning: str, *, lines: list[str]) -> str:
    return "\n".join([f"// {meaning}", f"message {name} {{", *lines, "}"])


def _header_message() -> str:
    lines: list[str] = []
    for field in header_fields():
        label = "repeated " if field.count else ""
        lines += [
            f"  // {comment(field)}",
            f"  {label}{scalar(field)} {field.name} = {field.number};",
        ]
    return _message("Header", "Who sealed the batch, when, and what had been emitted by then.", lines=lines)


def message_name(section: Section) -> str:
    """Name of a section's message, such as TensorStats."""
    return section.name.title().replace("_", "")


def _section_message(section: Section) -> str:
    lines: list[str] = []
    for field in section.fields:
        lines += [
            f"  // {comment(field)}",
            f"  repeated {scalar(field)} {field.name} = {field.number};",
        ]
    return _message(message_name(section), f"{section.meaning} Columns are as long as `{section.key}`.", lines=lines)


def _batch_message() -> str:
    lines = ["  // Who, when, and the emitted sums.", "  Header header = 1;"]
    for section in SECTIONS:
        lines += [
            f"  // {section.meaning}",
            f"  {message_name(section)} {section.name} = {section.number};",
        ]
    lines += [
        "  // The dictionary: entry 0 is the empty string; DICT fields are indexes into it.",
        "  repeated string strings = 15;",
        "  // Wall clock when the gateway accepted the batch, appended by it; 0: not by way of a gateway.",
        "  // Unit: ns since 1970-01-01 UTC.",
        "  sfixed64 received = 16;",
    ]
    return _message("Batch", "A header and columnar sections; the unit of delivery and of idempotency.", lines=lines)


def batch_proto() -> str:
    """Text of `v1/batch.proto`, the reference of the wire."""
    head = [
        "// Rendered from rankscope_proto/columns.py by `make proto`; change it there.",
        'syntax = "proto3";',
        "",
        f"package {PACKAGE};",
    ]
    messages = [
        _header_message(),
        *[_section_message(section) for section in SECTIONS],
        _batch_message(),
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(messages) + "\n"


def _terse(fields: tuple[Field, ...], *, all_repeated: bool) -> str:
    return "".join(
        f"{'repeated ' if all_repeated or field.count else ''}{scalar(field)} {field.name}={field.number};"
        for field in fields
    )


def landing_proto() -> str:
    """The same messages without comments: it travels in the URL of every insert, so it is short."""
    text = f'syntax="proto3";message Header{{{_terse(header_fields(), all_repeated=False)}}}'
    body = "Header header=1;"
    for section in SECTIONS:
        text += f"message {message_name(section)}{{{_terse(section.fields, all_repeated=True)}}}"
        body += f"{message_name(section)} {section.name}={section.number};"
    return text + f"message Batch{{{body}repeated string strings=15;sfixed64 received=16;}}\n"
