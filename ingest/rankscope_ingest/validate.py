"""Whether a sealed batch may be accepted, decided from the declaration alone: no clock, no socket.

It promises that what passes parses in the store, that every column of a section fits the others,
and that a refusal names the first field at fault. Size comes before parsing: the declaration has
no repeated message, so in the parser a payload grows by at most eight times (one byte becomes
one uint64, two bytes one empty string: 78 MB for the worst 4 MB found, against 217 MB with
repeated messages); counts are checked before Python touches an element. A batch of 2,000
statistics or spans takes 1.2 ms on a busy machine.
"""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from rankscope_ingest.column_rules import SECTION_RULES, Dictionary
from rankscope_ingest.errors import Refused
from rankscope_ingest.malformed import reason_of
from rankscope_ingest.senders import ID_BYTES, check_axes, check_sender
from rankscope_proto.columns import header_fields
from rankscope_proto.constructors import MAX_SEQ
from rankscope_proto.declaration import Wire
from rankscope_proto.identity import payload_digest, week_of
from rankscope_proto.sections_probe import CHUNK_BYTES
from rankscope_proto.v1.batch_pb2 import Batch, Captures, Header
from rankscope_proto.v1.ingest_pb2 import Sealed

MAX_PAYLOAD_BYTES = 4 * 2**20
MAX_ROWS = 20_000
"""Most rows of one batch: sealing stops at 2,000; one byte of an index could otherwise be a row."""
MAX_STRINGS = 100_000
_DAY_NS = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Checked:
    """What the rest of the gateway needs of a valid batch.

    Attributes:
        expanded: About as many bytes as its rows take once each carries its own text; never too few.
    """

    project: str
    run_id: str
    launch_id: bytes
    process_role: int
    rank: int
    node: str
    pid: int
    expanded: int


def check(sealed: Sealed, *, now_ns: int) -> Checked:
    """Checks a sealed batch against the declaration.

    Args:
        sealed: The envelope; its payload as it came.
        now_ns: The receiver's wall clock, ns since the epoch.

    Raises:
        Refused: Names the first field at fault.
    """
    _check_envelope(sealed)
    batch = _parse(sealed.payload)
    _check_header(batch.header)
    _check_agreement(sealed, batch.header, now_ns=now_ns)
    text_bytes = _check_sections(sealed, batch)
    header = batch.header
    return Checked(
        header.project,
        header.run_id,
        header.launch_id,
        header.process_role,
        header.rank,
        header.node,
        header.pid,
        len(sealed.payload) + text_bytes,
    )


def _check_envelope(sealed: Sealed) -> None:
    size = len(sealed.payload)
    if not 0 < size <= MAX_PAYLOAD_BYTES:
        raise Refused("payload", f"{size} bytes; a batch has 1 to {MAX_PAYLOAD_BYTES} bytes: seal smaller ones")
    for name in ("incarnation", "digest"):
        if len(value := getattr(sealed, name)) != ID_BYTES:
            raise Refused(name, f"{len(value)} bytes; it has exactly {ID_BYTES}")
    for name in ("seq", "base"):
        if (value := getattr(sealed, name)) > MAX_SEQ:
            raise Refused(name, f"{value}; at most {MAX_SEQ}: number the batches of an incarnation from 0")
    if sealed.base > sealed.seq:
        raise Refused("base", f"{sealed.base} is above seq {sealed.seq}; it is the lowest seq still held")
    if payload_digest(sealed.payload) != sealed.digest:
        raise Refused("digest", "not the BLAKE2b-128 of the payload; the bytes changed after sealing")


def _parse(payload: bytes) -> Batch:
    try:
        batch = Batch.FromString(payload)
    except DecodeError as error:
        raise reason_of(payload, Batch.DESCRIPTOR, field="payload") from error
    if batch.received:
        raise Refused("received", "is the gateway's to set; leave it out")
    # A section that came twice would be merged here and might not be in the store; the same for
    # numbers written in more bytes than they need. Such payloads are longer than their own message.
    if batch.ByteSize() != len(payload):
        raise Refused("payload", "not as a protobuf encoder writes it (a message came twice, or zeros are written out)")
    return batch


def _check_header(header: Header) -> None:
    check_sender(header, within="header.")
    for name, low, high in _HEADER_RANGES:
        if not low <= (value := getattr(header, name)) <= high:
            raise Refused(f"header.{name}", f"{value}; it is from {low} to {high}")
    for name in ("rank", "parent_rank"):
        if (value := getattr(header, name)) >= header.world_size:
            raise Refused(f"header.{name}", f"{value} is not below world_size {header.world_size}")
    check_axes(header.mesh_axis, field="header.mesh_axis")
    if len(header.mesh_axis) != len(header.mesh_coordinate):
        axes, coordinates = len(header.mesh_axis), len(header.mesh_coordinate)
        raise Refused("header.mesh_coordinate", f"{coordinates} coordinates for {axes} axes")


def _check_agreement(sealed: Sealed, header: Header, *, now_ns: int) -> None:
    for name in ("incarnation", "seq", "week"):
        if getattr(sealed, name) != getattr(header, name):
            raise Refused(name, f"the envelope says {_shown(sealed, name)}, the header {_shown(header, name)}")
    if header.week != (week := week_of(header.sealed, now_ns=now_ns)):
        ahead = (header.sealed - now_ns) / _DAY_NS
        clock = f"; the sender's clock is {ahead:.1f} days ahead: set it right" if ahead > 1 else ""
        raise Refused("header.week", f"{header.week}; the Monday of header.sealed is {week}{clock}")


def _check_sections(sealed: Sealed, batch: Batch) -> int:
    if len(batch.strings) > MAX_STRINGS:
        raise Refused("strings", f"{len(batch.strings)} entries; at most {MAX_STRINGS}")
    present = [(rules, getattr(batch, rules.name)) for rules in SECTION_RULES if rules.is_in(batch)]
    rows = sum(rules.rows(message) for rules, message in present)
    if rows > MAX_ROWS:
        raise Refused("rows", f"{rows} rows; a batch has at most {MAX_ROWS}")
    if sealed.rows != rows:
        raise Refused("rows", f"the envelope says {sealed.rows}, the sections have {rows}")
    dictionary = Dictionary(list(batch.strings))
    for rules, message in present:
        rules.check(message, dictionary)
    if batch.HasField("captures"):
        _check_chunks(batch.captures)
    return dictionary.text_bytes


def _check_chunks(captures: Captures) -> None:
    """Kept values come in chunks; a row that names earlier ones has none of its own."""
    size = max(map(len, captures.data), default=0)
    if size > CHUNK_BYTES:
        raise Refused("captures.data", f"{size} bytes in a row; a chunk has at most {CHUNK_BYTES}")
    rows = len(captures.name)
    chunks, numbers = captures.chunks[:] or [0] * rows, captures.chunk[:] or [0] * rows
    data = captures.data[:] or [b""] * rows
    for row, (chunk, amount) in enumerate(zip(numbers, chunks, strict=True)):
        if chunk >= max(amount, 1):
            raise Refused("captures.chunk", f"{chunk} at {row}; chunks says there are {amount}, counted from 0")
        if not amount and data[row]:
            raise Refused("captures.data", f"{len(data[row])} bytes at {row}; chunks is 0: they came with another row")


def _shown(message: Sealed | Header, name: str) -> str:
    value = getattr(message, name)
    return value.hex() if isinstance(value, bytes) else str(value)


_HEADER_RANGES = tuple(
    (field.name, field.low or 0, field.high)
    for field in header_fields()
    if field.high is not None and field.wire is not Wire.COUNT
)
