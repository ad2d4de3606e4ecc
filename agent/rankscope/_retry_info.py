"""How long a gateway asks to be left alone: the RetryInfo in the details of a status.

Read by hand: the package that brings google.rpc's messages is not otherwise needed.
"""

_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def retry_after_s(details: bytes) -> float | None:
    """The delay of the RetryInfo in a serialised google.rpc.Status; None where there is none."""
    try:
        for any_message in _fields(details).get(3, ()):
            packed = _fields(_bytes(any_message))
            if packed.get(1) == [_RETRY_INFO]:
                delay = _fields(_bytes(_fields(_bytes(packed[2][0]))[1][0]))
                return _number(delay, 1) + _number(delay, 2) / 1e9
    except (IndexError, KeyError, TypeError):
        return None
    return None


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """Field number → values of a protobuf message that has varints and byte strings only."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(value)
        elif tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(message[at : at + value])
            at += value
        else:
            raise TypeError(f"wire type {tag & 7} has no place in a status")
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError("a message was expected, not a number")


def _number(fields: dict[int, list[int | bytes]], number: int) -> int:
    value = fields.get(number, [0])[0]
    return value if isinstance(value, int) else 0
