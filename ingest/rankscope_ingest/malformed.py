"""Why a payload does not parse.

The parser says no more than "error parsing". Most often a text is not UTF-8; then a second
schema, the same but with bytes for every string, parses it, and the field can be named.
"""

from collections.abc import Iterator, Sequence

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from rankscope_ingest.errors import Refused
from rankscope_proto.v1 import batch_pb2

FieldProto = descriptor_pb2.FieldDescriptorProto
_NOT_A_BATCH = "not a Batch of rankscope.v1: it does not parse as one"


def reason_of(payload: bytes) -> Refused:
    """What is wrong with a payload that does not parse as a `Batch`."""
    try:
        batch = _BYTES_BATCH.FromString(payload)
    except DecodeError:
        return Refused("payload", _NOT_A_BATCH)
    for name, index, value in _texts(batch, ""):
        if not _is_utf8(value):
            return Refused(name, f"not UTF-8 at {index}: {value[:40]!r}")
    return Refused("payload", _NOT_A_BATCH)


def _texts(message: Message, prefix: str) -> Iterator[tuple[str, int, bytes]]:
    """(field, index, bytes) of everything in a message that the real schema calls a string."""
    for field, value in message.ListFields():
        name = prefix + field.name
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from _texts(value, f"{name}.")
        elif field.full_name in _STRINGS:
            texts: Sequence[bytes] = [value] if isinstance(value, bytes) else value
            yield from ((name, index, text) for index, text in enumerate(texts))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes_schema() -> tuple[type[Message], frozenset[str]]:
    file = descriptor_pb2.FileDescriptorProto.FromString(batch_pb2.DESCRIPTOR.serialized_pb)
    strings: set[str] = set()
    for message in file.message_type:
        for field in message.field:
            if field.type == FieldProto.TYPE_STRING:
                field.type = FieldProto.TYPE_BYTES
                strings.add(f"{file.package}.{message.name}.{field.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{file.package}.Batch")
    return message_factory.GetMessageClass(found), frozenset(strings)


_BYTES_BATCH, _STRINGS = _bytes_schema()
