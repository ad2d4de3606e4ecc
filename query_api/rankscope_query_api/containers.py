"""Tensors as files: safetensors, npz, or the bytes alone; written piece by piece, so that none is held whole.

Both formats are simple: safetensors is a length, a JSON header and the bytes; npz a zip whose members are a
header and the bytes. numpy has no bfloat16 and no 8-bit floats: in npz their bits are unsigned integers, and the
member's name ends in the type.
"""

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rankscope_query_api.errors import InvalidRequestError


class FileFormat(StrEnum):
    """How kept values are downloaded."""

    SAFETENSORS = "safetensors"
    NPZ = "npz"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class TensorFile:
    """What a file says of its one tensor.

    Attributes:
        name: Path of the tensor.
        dtype: Element type, as torch names it.
        shape: Of the kept values.
        bytes: Of the kept values.
        notes: Where they are from, as texts.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    bytes: int
    notes: Mapping[str, str]


class Container(Protocol):
    """Makes a file of the bytes of one tensor."""

    def begin(self) -> bytes:
        """What comes before the first byte of it."""
        ...

    def add(self, piece: bytes) -> bytes:
        """The next bytes of it, as they stand in the file."""
        ...

    def end(self) -> bytes:
        """What comes behind the last byte of it."""
        ...


_SAFETENSORS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}

_NUMPY = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "complex64": "<c8",
    "complex128": "<c16",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "|i1",
    "uint64": "<u8",
    "uint32": "<u4",
    "uint16": "<u2",
    "uint8": "|u1",
    "bool": "|b1",
}

_BITS_IN_NUMPY = {
    "bfloat16": "<u2",
    "float8_e4m3fn": "|u1",
    "float8_e5m2": "|u1",
    "float8_e4m3fnuz": "|u1",
    "float8_e5m2fnuz": "|u1",
    "float8_e8m0fnu": "|u1",
}

_ALIGNED = 8
_NPY_ALIGNED = 64
_ZIP64_FROM = 2**30
_EPOCH = (1980, 1, 1, 0, 0, 0)


def container(form: FileFormat, tensor: TensorFile) -> Container:
    """What makes a file of this format of a tensor.

    Raises:
        InvalidRequestError: The format has no such type.
    """
    if form is FileFormat.SAFETENSORS:
        return Safetensors(tensor)
    return Npz(tensor) if form is FileFormat.NPZ else Raw()


class Raw:
    """The bytes alone."""

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def add(self, piece: bytes) -> bytes:
        """The piece."""
        return piece

    def end(self) -> bytes:
        """Nothing."""
        return b""


class Safetensors(Raw):
    """A file of safetensors: 8 bytes of length, little-endian, a JSON header, the bytes.

    Args:
        tensor: What the header says.
    """

    def __init__(self, tensor: TensorFile) -> None:
        kind = _SAFETENSORS.get(tensor.dtype)
        if kind is None:
            raise _no_type(tensor, FileFormat.SAFETENSORS)
        entry = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [0, tensor.bytes]}
        header = json.dumps({"__metadata__": dict(tensor.notes), tensor.name: entry}).encode()
        header += b" " * (-len(header) % _ALIGNED)
        self._header = len(header).to_bytes(8, "little") + header

    def begin(self) -> bytes:
        """Length and header."""
        return self._header


class _Sink:
    """Takes what is written, and cannot go back."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def write(self, piece: bytes, /) -> int:
        """Take bytes."""
        self._waiting.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is held open."""

    def take(self) -> bytes:
        """What was written since the last call."""
        waiting, self._waiting = self._waiting, []
        return b"".join(waiting)


class Npz:
    """A zip with one array, not compressed, for `numpy.load`.

    Args:
        tensor: What the array's header says.
    """

    def __init__(self, tensor: TensorFile) -> None:
        bits = _BITS_IN_NUMPY.get(tensor.dtype)
        kind = bits or _NUMPY.get(tensor.dtype)
        if kind is None:
            raise _no_type(tensor, FileFormat.NPZ)
        member = f"{file_name(tensor.name)}.{tensor.dtype}" if bits else file_name(tensor.name)
        self._header = _npy_header(kind, tensor.shape)
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_STORED)
        is_large = tensor.bytes >= _ZIP64_FROM
        self._member = self._zip.open(zipfile.ZipInfo(f"{member}.npy", _EPOCH), "w", force_zip64=is_large)

    def begin(self) -> bytes:
        """The zip's first header, and the array's."""
        return self.add(self._header)

    def add(self, piece: bytes) -> bytes:
        """The piece."""
        self._member.write(piece)
        return self._sink.take()

    def end(self) -> bytes:
        """The zip's directory."""
        self._member.close()
        self._zip.close()
        return self._sink.take()


def _npy_header(kind: str, shape: Sequence[int]) -> bytes:
    dimensions = "".join(f"{size}, " for size in shape)
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({dimensions}), }}".encode()
    start = b"\x93NUMPY\x01\x00"
    text += b" " * (-(len(start) + 2 + len(text) + 1) % _NPY_ALIGNED) + b"\n"
    return start + len(text).to_bytes(2, "little") + text


def file_name(text: str) -> str:
    """A text as part of a file's name: what is none of A-Z, a-z, 0-9, . [ ] _ - becomes _."""
    return re.sub(r"[^0-9A-Za-z.\[\]_-]", "_", text) or "tensor"


def _no_type(tensor: TensorFile, form: FileFormat) -> InvalidRequestError:
    return InvalidRequestError(
        f"{form.value} has no type for {tensor.dtype}",
        hint="ask for another format; raw has the bytes of every type",
        expected=[other.value for other in FileFormat if other is not form],
        code="no_such_type",
    )
