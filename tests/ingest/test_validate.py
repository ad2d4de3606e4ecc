"""What the gateway refuses, and that it names the field."""

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from rankscope_ingest.errors import Refused
from rankscope_ingest.validate import MAX_PAYLOAD_BYTES, check
from rankscope_proto.columns import HEADER, SECTIONS
from rankscope_proto.declaration import Wire
from rankscope_proto.identity import payload_digest
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
        ("seq", 2**63),
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
