"""One declaration: wire, `landing`, views, tables and reference say the same of every field."""

import re

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from rankscope_proto.columns import HEADER, SECTIONS, emitted_field, header_fields
from rankscope_proto.declaration import Field, Section, Wire
from rankscope_proto.render_proto import message_name, scalar
from rankscope_proto.render_sql import landing_columns, ledger_columns, objects
from rankscope_proto.storage import landing_schema
from rankscope_proto.v1 import batch_pb2 as pb
from tests.house.tree import text_of

STATEMENTS = [
    "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
    for statement in objects().removesuffix(";\n").split(";\n\n")
]
"""What all migrations come to, which `test_tables.py` shows."""

BY_SECTION = pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
Columns = dict[str, str]


def created(kind: str, name: str) -> str:
    """The one statement that creates an object."""
    head = f"CREATE {kind} IF NOT EXISTS {name}"
    found = [text for text in STATEMENTS if re.match(rf"{head}\b", text)]
    assert len(found) == 1, head
    return found[0]


def table(name: str) -> Columns:
    """Column names and types of a table, as its DDL has them."""
    return dict(re.findall(r"^    `(\w+)` (.+?)(?: CODEC\(.+\))?,?$", created("TABLE", name), re.MULTILINE))


def reference(title: str) -> str:
    """The part of the reference page about a section or the header."""
    return text_of("proto/reference.md").split(f"\n## {title}\n")[1].split("\n## ")[0]


def messages() -> dict[str, dict[str, tuple[int, str]]]:
    """The schema sent with each insert: message, field -> number and label with type."""
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for name, body in re.findall(r"message (\w+)\{([^}]*)\}", landing_schema()):
        lines = (re.fullmatch(r"(.+) (\w+)=(\d+)", line) for line in body.split(";") if line)
        found[name] = {line[2]: (int(line[3]), line[1]) for line in lines if line}
    return found


def generated(message: str) -> dict[str, tuple[int, str]]:
    """The same, of the generated code."""
    described = DescriptorProto()
    pb.DESCRIPTOR.message_types_by_name[message].CopyToProto(described)
    return {field.name: (field.number, kind(field)) for field in described.field}


def kind(field: FieldDescriptorProto) -> str:
    """A generated field's label and type, as a .proto file writes them."""
    label = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    scalar_name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return label + (field.type_name.rpartition(".")[2] or scalar_name)


def declared(fields: tuple[Field, ...], *, repeated: bool) -> dict[str, tuple[int, str]]:
    """The same, of the declaration."""
    return {
        field.name: (field.number, ("repeated " if repeated or field.count else "") + scalar(field)) for field in fields
    }


@BY_SECTION
def test_a_sections_message_is_its_declaration_in_the_code_and_in_the_inserts_schema(section: Section) -> None:
    expected = declared(section.fields, repeated=True)

    assert generated(message_name(section)) == expected
    assert messages()[message_name(section)] == expected


def test_the_headers_message_is_its_declaration_in_the_code_and_in_the_inserts_schema() -> None:
    expected = declared(header_fields(), repeated=False)

    assert generated("Header") == expected
    assert messages()["Header"] == expected


def test_the_batch_has_the_sections_and_nothing_else() -> None:
    expected = {section.name: (section.number, message_name(section)) for section in SECTIONS}
    expected |= {"header": (1, "Header"), "strings": (15, "repeated string"), "received": (16, "sfixed64")}

    assert generated("Batch") == expected
    assert messages()["Batch"] == expected
    assert set(messages()) == {"Batch", "Header", *map(message_name, SECTIONS)}


def test_landing_has_a_column_for_every_field_and_none_beside() -> None:
    expected = {f"header_{field.name}" for field in header_fields()}
    expected |= {f"{section.name}_{field.name}" for section in SECTIONS for field in section.fields}

    assert set(table("landing")) == expected | {"strings", "received"}
    assert table("landing") == dict(landing_columns())


@BY_SECTION
def test_a_sections_table_has_its_columns_nullable_where_a_row_may_lack_them(section: Section) -> None:
    columns = table(section.table)

    for field in section.fields:
        kind = f"Nullable({field.table})" if field.optional is not None else field.table
        assert columns.get(field.name, "") == (kind if field.table else ""), field.name
    for column in section.maps:
        assert columns[column.name] == column.table


@BY_SECTION
def test_a_sections_view_reads_every_field_and_fills_every_column(section: Section) -> None:
    view = created("MATERIALIZED VIEW", f"{section.table}_from_landing")

    unread = [field.name for field in section.fields if not re.search(rf"\b{section.name}_{field.name}\b", view)]
    unfilled = [name for name in table(section.table) if not re.search(rf"\bAS `?{name}`?(,|\n)", view)]

    assert not unread
    assert not unfilled


def test_the_ledger_counts_every_section_and_keeps_what_was_emitted() -> None:
    columns = table("batches")
    view = created("MATERIALIZED VIEW", "batches_from_landing")

    assert columns == dict(ledger_columns())
    assert {f"rows_{section.name}" for section in SECTIONS} <= set(columns)
    assert {emitted_field(section).name for section in SECTIONS} <= set(columns)
    assert not [name for name in columns if not re.search(rf"\bAS {name}\b|^    {name},?$", view, re.MULTILINE)]


@BY_SECTION
def test_a_sections_read_view_names_every_code(section: Section) -> None:
    view = created("VIEW", f"{section.table}_named")

    for field in (*HEADER, *section.fields):
        if field.vocabulary and field.name in table(section.table):
            assert f"transform({field.name}, [0, 1," in view
            assert all(f"'{member.value}'" in view for member in field.vocabulary)


@BY_SECTION
def test_the_reference_has_every_field_of_a_section(section: Section) -> None:
    page = reference(section.name)

    assert all(f"| `{field.name}` | {field.number} | {scalar(field)} |" in page for field in section.fields)
    assert all(f"`{column.name}`" in page for column in section.maps)
    assert all(index.why in page for index in section.indexes)


def test_the_reference_has_every_field_of_the_header() -> None:
    page = reference("header")

    assert all(f"| `{field.name}` | {field.number} | {scalar(field)} |" in page for field in header_fields())


@BY_SECTION
def test_numbers_names_and_bits_are_each_used_once(section: Section) -> None:
    bits = [field.optional for field in section.fields if field.optional is not None]

    assert len({field.number for field in section.fields}) == len(section.fields)
    assert len({field.name for field in section.fields}) == len(section.fields)
    assert sorted(bits) == list(range(len(bits)))
    assert len(bits) <= 64


def test_the_headers_numbers_and_names_are_each_used_once() -> None:
    assert len({field.number for field in header_fields()}) == len(header_fields())
    assert len({field.name for field in header_fields()}) == len(header_fields())
    assert len({section.number for section in SECTIONS}) == len(SECTIONS)


@BY_SECTION
def test_a_section_starts_with_its_key_and_every_list_has_its_count(section: Section) -> None:
    counts = {field.name for field in section.fields if field.wire is Wire.COUNT}
    sliced = {field.count for field in section.fields if field.count}
    in_maps = {name for column in section.maps for name in (column.keys, column.values)}

    assert any(field.name == section.key and field.optional is None and not field.count for field in section.fields)
    assert counts == sliced
    assert in_maps == {field.name for field in section.fields if field.count and not field.table}
    first = [field for field in section.fields if field.since == 1]
    assert [field for field in first if field.wire is Wire.PRESENT] == [first[-1]] or not any(
        field.optional is not None for field in first
    )


def test_the_inserts_schema_fits_into_a_url() -> None:
    assert len(landing_schema()) < 8_000
    assert "//" not in landing_schema()
    assert "import" not in landing_schema()


def test_every_target_of_landing_has_a_deduplication_window() -> None:
    targets = [re.search(r" TO (\w+) AS", text) for text in STATEMENTS if "MATERIALIZED VIEW" in text]

    assert len(targets) == len(SECTIONS) + 2
    assert all(
        target and "non_replicated_deduplication_window = 10000" in created("TABLE", target[1]) for target in targets
    )
