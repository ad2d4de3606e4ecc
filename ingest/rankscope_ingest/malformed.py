"""Why bytes do not parse.

The parser says no more than "error parsing". Most often a text is not UTF-8; then a second
schema, the same but with bytes for every string, parses it, and the field can be named.
"""

import functools
from collections.abc import Iterator, Sequence

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from rankscope_ingest.errors import Refused

FieldProto = descriptor_pb2.FieldDescriptorProto


def reason_of(data: bytes, kind: Descriptor, *, field: str) -> Refused:
    """What is wrong with bytes that do not parse as a message of that kind.

    Args:
        data: The bytes.
        kind: What they were meant to be.
        field: What is named where no field of the message can be.
    """
    same_in_bytes, texts = _bytes_schema(kind)
    unknown = Refused(field, f"not a {kind.name} of rankscope.v1: it does not parse as one")
    try:
        message = same_in_bytes.FromString(data)
    except DecodeError:
        return unknown
    for name, index, value in _texts(message, "", within=texts):
        if not _is_utf8(value):
            return Refused(name, f"not UTF-8 at {index}: {value[:40]!r}")
    return unknown


def _texts(message: Message, prefix: str, *, within: frozenset[str]) -> Iterator[tuple[str, int, bytes]]:
    """(field, index, bytes) of everything in a message that the real schema calls a string."""
    for field, value in message.ListFields():
        name = prefix + field.name
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from _texts(value, f"{name}.", within=within)
        elif field.full_name in within:
            found: Sequence[bytes] = [value] if isinstance(value, bytes) else value
            yield from ((name, index, text) for index, text in enumerate(found))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@functools.cache
def _bytes_schema(kind: Descriptor) -> tuple[type[Message], frozenset[str]]:
    """The same kind of message with bytes for every string, and the full names of those fields."""
    file = descriptor_pb2.FileDescriptorProto.FromString(kind.file.serialized_pb)
    strings: set[str] = set()
    for message in file.message_type:
        for field in message.field:
            if field.type == FieldProto.TYPE_STRING:
                field.type = FieldProto.TYPE_BYTES
                strings.add(f"{file.package}.{message.name}.{field.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(kind.full_name)), frozenset(strings)
