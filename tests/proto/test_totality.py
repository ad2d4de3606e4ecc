"""The views are total: no batch that parses makes an insert fail, whatever its columns hold."""

from typing import Any
from uuid import uuid4

from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rankscope_proto.columns import SECTION_BY_NAME, header_fields
from rankscope_proto.declaration import Field, Section, Wire
from rankscope_proto.v1 import batch_pb2 as pb
from tests.proto.batches import batch, insert, number, with_rows

UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)
VALUES: dict[Wire, st.SearchStrategy[Any]] = {
    Wire.FIXED64: UINT64,
    Wire.SFIXED64: INT64,
    Wire.INT64: INT64,
    Wire.SINT32: st.integers(-(2**31), 2**31 - 1),
    Wire.UINT64: UINT64,
    Wire.UINT32: UINT32,
    Wire.FLOAT: st.floats(width=32),
    Wire.DOUBLE: st.floats(),
    Wire.STRING: TEXT,
    Wire.BYTES: st.binary(max_size=16),
    Wire.DICT: st.integers(0, 6) | UINT32,
    Wire.COUNT: st.integers(0, 3) | UINT32,
    Wire.PRESENT: UINT64,
}


@st.composite
def parts_of_batches(draw: st.DrawFn) -> tuple[Section, dict[str, list[Any]]]:
    """A section and its columns, of any lengths: ragged, short, absent, over-long."""
    section = SECTION_BY_NAME[draw(st.sampled_from(sorted(SECTION_BY_NAME)))]
    return section, {field.name: draw(st.lists(VALUES[field.wire], max_size=5)) for field in section.fields}


def header_values(field: Field) -> st.SearchStrategy[Any]:
    """Any value or list the field can carry."""
    return st.lists(VALUES[field.wire], max_size=4) if field.count else VALUES[field.wire]


SHARED_STORE = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""All examples of a test insert into one database; an insert takes a good part of a second on a busy
machine, so a failing example is shown as it was found: shrinking it takes many minutes."""

HEADERS = st.fixed_dictionaries({field.name: header_values(field) for field in header_fields()})


@settings(parent=SHARED_STORE, max_examples=60)
@given(parts=st.lists(parts_of_batches(), min_size=1, max_size=3), strings=st.lists(TEXT, max_size=4))
def test_sections_of_any_shape_land_with_as_many_rows_as_their_keys(
    tables: Client, parts: list[tuple[Section, dict[str, list[Any]]]], strings: list[str]
) -> None:
    made = batch(strings=strings)
    for section, values in parts:
        with_rows(made, section.name, **values)
    before = {section.table: rows(tables, section) for section, _ in parts}

    insert(tables, made, token=str(uuid4()))

    for section, _ in parts:
        key = len(getattr(getattr(made, section.name), section.key))
        # A heartbeat that is a day old has expired when it arrives.
        if not section.expires:
            assert rows(tables, section) == before[section.table] + key, section.name


@settings(parent=SHARED_STORE, max_examples=30)
@given(header=HEADERS)
def test_a_header_of_any_values_lands(tables: Client, header: dict[str, Any]) -> None:
    made = pb.Batch(strings=[""])
    for name, value in header.items():
        if isinstance(value, list):
            getattr(made.header, name).extend(value)
        else:
            setattr(made.header, name, value)
    with_rows(made, "spans", span_id=[1], start=[2**63 - 1], duration=[2**63 - 1])
    before = number(tables, "SELECT count() FROM batches")

    insert(tables, made, token=str(uuid4()))

    assert number(tables, "SELECT count() FROM batches") == before + 1


def test_a_group_may_hold_batches_of_any_number_of_weeks(tables: Client) -> None:
    made = [with_rows(batch(seq=seq, week=11_000 + 7 * seq), "scalars", name=[0], value=[seq]) for seq in range(150)]

    insert(tables, *made)

    assert number(tables, "SELECT uniqExact(week) FROM scalars") == 150


def rows(client: Client, section: Section) -> int:
    """Rows in a section's table."""
    return number(client, f"SELECT count() FROM {section.table}")
