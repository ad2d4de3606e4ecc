"""The rules for what says who sends: one set for a batch's header and for a status.

It promises that each text is short (every row of a batch repeats some of them, and a claim is
kept in the broker's memory), that each id has its length, and that a run can be addressed: its
project and id become segments of a URL's path.
"""

import unicodedata
from collections.abc import Sequence

from google.protobuf.message import Message

from rankscope_ingest.errors import Refused

ID_BYTES = 16
MAX_NAME_BYTES = 128
MAX_AXES = 32

_NAMES = ("project", "run_id")
_IDS = ("launch_id", "incarnation")
_TEXTS = {"node": 256, "boot_id": 128, "sdk_version": 128}
"""Most UTF-8 bytes of each; a host name has at most 253."""


def check_sender(message: Message, *, within: str = "") -> None:
    """Checks the fields of a header or a status that say who sends.

    Args:
        message: Has the fields of `_NAMES` and `_IDS`, and of the others those that it has.
        within: What the fields are named below, as `header.`.

    Raises:
        Refused: Names the first field at fault.
    """
    for name in _NAMES:
        if wrong := _wrong_name(getattr(message, name)):
            raise Refused(within + name, wrong)
    for name in _IDS:
        if (size := len(getattr(message, name))) != ID_BYTES:
            raise Refused(within + name, f"{size} bytes; it has exactly {ID_BYTES}")
    for field in message.DESCRIPTOR.fields:
        if field.name in _TEXTS:
            most = _TEXTS[field.name]
            if (size := len(getattr(message, field.name).encode())) > most:
                raise Refused(within + field.name, f"{size} bytes; at most {most}")


def check_axes(axes: Sequence[str], *, field: str) -> None:
    """Checks the names of a mesh's axes.

    Raises:
        Refused: There are too many, or one is too long.
    """
    if len(axes) > MAX_AXES:
        raise Refused(field, f"{len(axes)} axes; at most {MAX_AXES}")
    for row, axis in enumerate(axes):
        if (size := len(axis.encode())) > MAX_NAME_BYTES:
            raise Refused(field, f"{size} bytes at {row}; at most {MAX_NAME_BYTES}")


def _wrong_name(name: str) -> str:
    """Why a project or a run cannot be called so; "" if it can."""
    size = len(name.encode())
    if not 0 < size <= MAX_NAME_BYTES:
        return f"{size} bytes; it has 1 to {MAX_NAME_BYTES}"
    if "/" in name or name in {".", ".."}:
        return f"{name!r} cannot be part of a URL's path; leave '/' out"
    if any(unicodedata.category(character) == "Cc" for character in name):
        return f"{name!r} has a control character; leave it out"
    return ""
