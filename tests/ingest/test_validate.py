"""What the gateway refuses, and that it names the field."""

from collections.abc import Mapping, Sequence

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from rankscope_ingest.errors import Refused
from rankscope_ingest.validate import MAX_PAYLOAD_BYTES, check
from rankscope_proto.columns import HEADER, SECTIONS
from rankscope_proto.declaration import Wire
from rankscope_proto.identity import payload_digest
from rankscope_proto.sections_probe import CHUNK_BYTES
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Sealed
from tests.ingest.batches import NOW, Spoil, batch, seal, seal_bytes, spoiled

DAY = 86_400 * 10**9


def refusal(sealed: Sealed) -> Refused:
    with pytest.raises(Refused) as caught:
        check(sealed, now_ns=NOW)
    return caught.value


def test_a_valid_batch_passes_and_says_who_sent_it() -> None:
    checked = check(seal(batch(seq=3, rank=2)), now_ns=NOW)

    assert (checked.project, checked.run_id, checked.rank, checked.process_role) == ("default", "run", 2, 1)


def test_a_batch_without_any_section_passes() -> None:
    message = batch()
    for section in ("spans", "tensor_stats", "scalars", "strings"):
        message.ClearField(section)

    check(seal(message), now_ns=NOW)


def test_an_unknown_code_of_a_newer_writer_passes() -> None:
    check(spoiled(lambda message: message.spans.kind.__setitem__(0, 200)), now_ns=NOW)


def test_nan_and_infinite_values_pass() -> None:
    check(spoiled(lambda message: message.scalars.value.__setitem__(0, float("-inf"))), now_ns=NOW)


HEADER_CASES: list[tuple[str, Spoil]] = [
    ("header.project", lambda m: m.header.ClearField("project")),
    ("header.run_id", lambda m: setattr(m.header, "run_id", "r" * 129)),
    ("header.launch_id", lambda m: setattr(m.header, "launch_id", b"short")),
    ("header.schema_version", lambda m: m.header.ClearField("schema_version")),
    ("header.process_role", lambda m: setattr(m.header, "process_role", 256)),
    ("header.rank", lambda m: setattr(m.header, "rank", 4)),
    ("header.rank", lambda m: setattr(m.header, "rank", -2)),
    ("header.parent_rank", lambda m: setattr(m.header, "parent_rank", 9)),
    ("header.world_size", lambda m: m.header.ClearField("world_size")),
    ("header.sealed", lambda m: setattr(m.header, "sealed", 7_258_118_400_000_000_000)),
    ("header.week", lambda m: setattr(m.header, "week", m.header.week + 7)),
    ("header.mesh_coordinate", lambda m: m.header.mesh_axis.append("dp")),
    ("header.mesh_axis", lambda m: m.header.mesh_axis.append("d" * 129)),
    ("header.mesh_axis", lambda m: m.header.mesh_axis.extend(["d"] * 33)),
    ("header.node", lambda m: setattr(m.header, "node", "n" * 257)),
    ("header.boot_id", lambda m: setattr(m.header, "boot_id", "b" * 129)),
    ("header.sdk_version", lambda m: setattr(m.header, "sdk_version", "v" * 129)),
    *(
        (f"header.{name}", lambda m, name=name, value=value: setattr(m.header, name, value))
        for name in ("project", "run_id")
        for value in ("a/b", "/", "..", ".", "a\nb", "a\x00", "\x7f", "\x85")
    ),
]

SECTION_CASES: list[tuple[str, Spoil]] = [
    ("spans.duration", lambda m: m.spans.duration.append(1)),
    ("tensor_stats.l2", lambda m: m.tensor_stats.l2.pop()),
    ("spans.attribute_values", lambda m: m.spans.attribute_values.append(3)),
    ("spans.attribute_n", lambda m: m.spans.attribute_n.append(0)),
    ("tensor_stats.shape", lambda m: m.tensor_stats.shape_n.__setitem__(0, 3)),
    ("spans.name", lambda m: m.spans.name.__setitem__(1, 6)),
    ("spans.attribute_keys", lambda m: m.spans.attribute_keys.__setitem__(0, 99)),
    ("tensor_stats.role", lambda m: m.tensor_stats.role.__setitem__(2, 256)),
    ("spans.start", lambda m: m.spans.start.__setitem__(1, -1)),
    ("scalars.time", lambda m: m.scalars.time.__setitem__(0, 7_258_118_400_000_000_000)),
    ("spans.step", lambda m: m.spans.step.__setitem__(0, -1)),
    ("spans.depth", lambda m: m.spans.depth.extend([0, 65_536])),
    ("strings", lambda m: m.strings.__setitem__(0, "not empty")),
    ("strings", lambda m: m.strings.extend([""] * 100_001)),
    ("spans.name", lambda m: m.strings.__setitem__(1, "é" * 257)),
    ("received", lambda m: setattr(m, "received", NOW)),
]


@pytest.mark.parametrize(("field", "spoil"), HEADER_CASES + SECTION_CASES)
def test_a_refusal_names_the_field(field: str, spoil: Spoil) -> None:
    assert refusal(spoiled(spoil)).field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("incarnation", b"other-incarnatio"),
        ("incarnation", b"short"),
        ("seq", 1),
        ("seq", 2**53),
        ("seq", 2**63),
        ("base", 2**53),
        ("week", 1),
        ("rows", 7),
        ("digest", b"x" * 16),
        ("digest", b""),
        ("base", 1),
    ],
)
def test_an_envelope_that_contradicts_its_payload_is_refused(field: str, value: bytes | int) -> None:
    sealed = seal(batch())
    setattr(sealed, field, value)

    assert refusal(sealed).field == field


@pytest.mark.parametrize("seq", [2**53, 2**63 - 1, 2**63])
def test_a_seq_that_the_broker_cannot_count_is_refused_with_its_limit(seq: int) -> None:
    refused = refusal(spoiled(lambda message: setattr(message.header, "seq", seq)))

    assert str(refused) == f"seq: {seq}; at most 9007199254740991: number the batches of an incarnation from 0"


def test_a_message_says_which_value_is_wrong_and_what_is_right() -> None:
    refused = refusal(spoiled(lambda message: message.spans.name.__setitem__(1, 6)))

    assert str(refused) == "spans.name: index 6 at 1; strings has 6 entries"


def test_a_clock_far_ahead_is_named_as_the_reason() -> None:
    def sealed_later(message: Batch) -> None:
        message.header.sealed = NOW + 9 * DAY
        message.header.week += 7

    assert "9.0 days ahead" in str(refusal(spoiled(sealed_later)))


def test_an_optional_value_out_of_range_counts_only_where_it_is_present() -> None:
    message = batch()
    message.spans.step[:] = [-1, 5]
    message.spans.present.extend([0b10, 0b11])

    check(seal(message), now_ns=NOW)
    message.spans.present[:] = [0b11, 0b11]

    assert refusal(seal(message)).field == "spans.step"


def test_a_payload_over_the_limit_is_refused_before_it_is_parsed() -> None:
    sealed = seal_bytes(b"\xff" * (MAX_PAYLOAD_BYTES + 1), batch())

    assert refusal(sealed).field == "payload"


def test_a_batch_of_too_many_rows_is_refused() -> None:
    message = batch()
    message.scalars.name[:] = [0] * 20_001
    for column in ("value", "time"):
        message.scalars.ClearField(column)

    assert refusal(seal(message)).field == "rows"


@pytest.mark.parametrize("payload", [batch().SerializeToString()[:-1], b"\x0a\xff", b"\x00"])
def test_bytes_that_are_no_batch_are_refused(payload: bytes) -> None:
    assert refusal(seal_bytes(payload, batch())).field == "payload"


def test_a_section_that_comes_twice_is_refused() -> None:
    message = batch()
    twice = message.SerializeToString() + Batch(header=message.header).SerializeToString()

    assert refusal(seal_bytes(twice, message)).field == "payload"


@pytest.mark.parametrize(
    ("field", "marker"),
    [("strings", b"cuda:0"), ("header.node", b"node0"), ("spans.inputs", b"{'x':1}")],
)
def test_text_that_is_not_utf8_is_refused_by_name(field: str, marker: bytes) -> None:
    message = batch()
    message.spans.inputs.extend(["", "{'x':1}"])
    payload = message.SerializeToString().replace(marker, b"\xff" * len(marker))

    assert refusal(seal_bytes(payload, message)).field == field


def test_no_message_of_the_declaration_repeats() -> None:
    # What bounds the parser's memory: 4 MB of empty repeated messages took 217 MB.
    file = FileDescriptorProto.FromString(Batch.DESCRIPTOR.file.serialized_pb)
    repeated = [
        f"{message.name}.{field.name}"
        for message in file.message_type
        for field in message.field
        if field.type == FieldDescriptorProto.TYPE_MESSAGE and field.label == FieldDescriptorProto.LABEL_REPEATED
    ]

    assert not repeated


CHUNKS = [
    ("captures.data", {"data": [b"x" * (CHUNK_BYTES + 1)], "chunks": [1]}),
    ("captures.data", {"data": [b"x"], "chunks": [0]}),
    ("captures.data", {"data": [b"x"]}),
    ("captures.data", {"data": [b"x", b"y"]}),
    ("captures.chunk", {"chunk": [1], "chunks": [1]}),
    ("captures.chunk", {"chunk": [1]}),
]


def holding_chunks(columns: Mapping[str, Sequence[int | bytes]]) -> Sealed:
    message = batch()
    message.captures.name.append(4)
    for name, values in columns.items():
        getattr(message.captures, name).extend(values)
    sealed = seal(message)
    sealed.rows += 1
    return sealed


@pytest.mark.parametrize(("field", "columns"), CHUNKS)
def test_chunks_of_kept_values_that_do_not_fit_are_refused(field: str, columns: Mapping[str, Sequence[int]]) -> None:
    assert refusal(holding_chunks(columns)).field == field


@pytest.mark.parametrize("columns", [{"data": [b"x" * CHUNK_BYTES], "chunk": [2], "chunks": [3]}, {}, {"chunks": [0]}])
def test_chunks_of_kept_values_that_fit_pass(columns: Mapping[str, Sequence[int]]) -> None:
    check(holding_chunks(columns), now_ns=NOW)


def test_every_bounded_column_of_the_declaration_is_checked() -> None:
    # Given the greatest value of a column's wire type; then only columns without bounds let it pass.
    for section in SECTIONS:
        for column in section.fields:
            if column.wire is Wire.UINT32 and column.high is not None and column.high < 2**32 - 1:
                message = batch()
                rows = getattr(message, section.name)
                key = getattr(rows, section.key)
                if not len(key):
                    key.append(1 if section.field(section.key).wire is not Wire.SFIXED64 else NOW)
                getattr(rows, column.name)[:] = [2**32 - 1] * len(key)
                sealed = seal(message)
                sealed.rows = sum(len(getattr(getattr(message, s.name), s.key)) for s in SECTIONS)

                assert refusal(sealed).field == f"{section.name}.{column.name}"


def test_every_bounded_field_of_the_header_is_checked() -> None:
    for field in HEADER:
        if field.high is not None and field.wire is Wire.UINT32 and field.high < 2**32 - 1:
            message = batch()
            setattr(message.header, field.name, 2**32 - 1)

            assert refusal(seal(message)).field in {f"header.{field.name}", "header.rank"}


def test_checking_is_pure() -> None:
    sealed = seal(batch())
    before = sealed.SerializeToString()

    check(sealed, now_ns=NOW)

    assert sealed.SerializeToString() == before
    assert payload_digest(sealed.payload) == sealed.digest


def multiplied(column: str, *, rows: int, size: int) -> Sealed:
    """A small payload in which every span names one long text."""
    message = batch()
    message.ClearField("tensor_stats")
    message.ClearField("scalars")
    message.strings.append("x" * size)
    spans = message.spans
    spans.Clear()
    spans.span_id.extend(range(1, rows + 1))
    spans.name.extend([1] * rows)
    getattr(spans, column).extend([6] * rows)
    if column.startswith("attribute"):
        spans.attribute_keys[:] = [2] * rows
        spans.attribute_n.extend([1] * rows)
    sealed = seal(message)
    sealed.rows = rows
    return sealed


@pytest.mark.parametrize("column", ["thread_id", "rollout_id", "path", "error_type", "attribute_values"])
def test_a_text_too_long_for_its_column_is_refused(column: str) -> None:
    assert refusal(multiplied(column, rows=20_000, size=250_000)).field == f"spans.{column}"


def test_a_small_payload_that_grows_in_the_store_is_refused() -> None:
    # 20,000 rows of 32 KB would be 640 MB in the writer.
    refused = refusal(multiplied("attribute_values", rows=20_000, size=32_768))

    assert refused.field == "spans.attribute_values"
    assert "655360000 bytes" in refused.reason


def test_columns_that_grow_too_large_together_are_refused() -> None:
    sealed = multiplied("path", rows=10_000, size=2_048)
    message = Batch.FromString(sealed.payload)
    message.spans.error_type[:] = message.spans.path
    again = seal(message)
    again.rows = sealed.rows

    check(sealed, now_ns=NOW)
    assert refusal(again).field == "spans.path"


def test_every_column_of_words_has_a_limit() -> None:
    for section in SECTIONS:
        for column in section.fields:
            if column.wire is Wire.DICT:
                message = batch()
                for other in ("spans", "tensor_stats", "scalars"):
                    message.ClearField(other)
                message.strings[1] = "x" * 40_000
                rows = getattr(message, section.name)
                getattr(rows, section.key)[:] = [NOW if section.field(section.key).wire is Wire.SFIXED64 else 0]
                sliced = [other for other in section.fields if column.count and other.count == column.count]
                for other in sliced:
                    getattr(rows, other.name)[:] = [0]
                if column.count:
                    getattr(rows, column.count)[:] = [1]
                getattr(rows, column.name)[:] = [1]
                sealed = seal(message)
                sealed.rows = 1

                assert refusal(sealed).field == f"{section.name}.{column.name}"


def test_what_rows_take_in_the_store_is_never_counted_too_low() -> None:
    few, many = (multiplied("attribute_values", rows=rows, size=1_000) for rows in (2, 2_000))

    assert check(few, now_ns=NOW).expanded >= len(few.payload) + 2 * 1_000
    assert 2_000 * 1_000 < check(many, now_ns=NOW).expanded < len(many.payload) + 2_000 * 1_100
