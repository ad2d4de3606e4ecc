"""Renders the declaration as ClickHouse DDL: tables, `landing`, the views between, the named read views.

Rules the SQL keeps (each was tried): `landing` is flat, since dotted names become `Nested`;
the views are total, since a view that throws would be poison no parser finds; every target
has a deduplication window, since one without it multiplies rows on a retry.
"""

from rankscope_proto.columns import HEADER, ROW_HEADER, SECTIONS, emitted_field, header_fields
from rankscope_proto.declaration import Field, MapColumn, Section, Wire
from rankscope_proto.sections_spans import SPAN_END

WINDOW = "non_replicated_deduplication_window = 10000"

_LANDING = {
    Wire.FIXED64: "UInt64",
    Wire.SFIXED64: "Int64",
    Wire.INT64: "Int64",
    Wire.SINT32: "Int32",
    Wire.UINT64: "UInt64",
    Wire.UINT32: "UInt32",
    Wire.FLOAT: "Float32",
    Wire.DOUBLE: "Float64",
    Wire.STRING: "String",
    Wire.BYTES: "String",
    Wire.DICT: "UInt32",
    Wire.COUNT: "UInt32",
    Wire.PRESENT: "UInt64",
}


def _landing_type(field: Field) -> str:
    return _LANDING[field.wire] if field.length is None else f"FixedString({field.length})"


_HEADER_BY_NAME = {field.name: field for field in HEADER}


def _table_type(field: Field) -> str:
    if field.optional is not None and field.table:
        return f"Nullable({field.table})"
    return field.table


def _columns(lines: list[tuple[str, str]]) -> str:
    return ",\n".join(f"    `{name}` {kind}" for name, kind in lines)


def landing_columns() -> list[tuple[str, str]]:
    """Name and type of every column of `landing`, in wire order."""
    columns = [
        (
            f"header_{field.name}",
            f"Array({_landing_type(field)})" if field.count else _landing_type(field),
        )
        for field in header_fields()
    ]
    for section in SECTIONS:
        columns += [(f"{section.name}_{field.name}", f"Array({_landing_type(field)})") for field in section.fields]
    return [*columns, ("strings", "Array(LowCardinality(String))"), ("received", "Int64")]


def landing() -> str:
    """DDL of `landing`: a batch is one row of it, and it keeps none."""
    return f"CREATE TABLE IF NOT EXISTS landing\n(\n{_columns(landing_columns())}\n)\nENGINE = Null"


def row_header_columns() -> list[tuple[str, str]]:
    """Name and type of the columns every row carries from its batch's header."""
    columns = [(name, _HEADER_BY_NAME[name].table) for name in ROW_HEADER]
    return [*columns, ("idx", "UInt32"), ("week", "Date")]


def table_columns(section: Section) -> list[tuple[str, str]]:
    """Name and type of every column of a section's table."""
    own = [(field.name, _table_type(field)) for field in section.fields if field.table]
    return row_header_columns() + own + [(column.name, column.table) for column in section.maps]


def _stored(section: Section) -> list[tuple[str, str]]:
    """Name, type and codec of every column of a section's table."""
    codecs = dict(section.codecs)
    return [
        (name, f"{kind} CODEC({codecs[name]})" if name in codecs else kind) for name, kind in table_columns(section)
    ]


def table(section: Section) -> str:
    """DDL of a section's table."""
    order = ", ".join(("project", "run_id", *section.order_by))
    ttl = f"\nTTL {section.expires}" if section.expires else ""
    indexes = "".join(f",\n    INDEX {one.name} {one.expression} TYPE {one.kind}" for one in section.indexes)
    return (
        f"CREATE TABLE IF NOT EXISTS {section.table}\n(\n{_columns(_stored(section))}{indexes}\n)\n"
        f"ENGINE = MergeTree\nPARTITION BY week\nORDER BY ({order}){ttl}\nSETTINGS {WINDOW}"
    )


def _row_header_select(section: Section) -> list[str]:
    stated = {field.replaces: f"ifNull({_value(field)}, header_{field.replaces})" for field in section.fields}
    return [f"{stated.get(name, f'header_{name}')} AS {name}" for name in ROW_HEADER if name != "process_role"] + [
        "toUInt8(header_process_role) AS process_role"
    ]


def _joined(section: Section, field: Field, *, rows: str) -> str:
    """The array, as long as the section, that ARRAY JOIN expands for one field."""
    source = f"{section.name}_{field.name}"
    if field.wire is Wire.PRESENT:
        return f"if(empty({source}), arrayWithConstant({rows}, bitNot(toUInt64(0))), arrayResize({source}, {rows}))"
    if field.count is not None:
        return f"{section.name}_{field.name}_rows"
    if field.optional is not None:
        kind = _LANDING[field.wire]
        return f"arrayResize({source}::Array(Nullable({kind})), {rows}, NULL)"
    return f"arrayResize({source}, {rows})"


def _value(field: Field) -> str:
    value = f"c_{field.name}"
    if field.wire is Wire.DICT and field.count is None:
        value = f"strings[{value} + 1]"
    if field.optional is not None:
        value = f"if(bitTest(c_present, {field.optional}), {value}, NULL)"
    if field.table in ("UInt8", "UInt16"):
        value = f"to{field.table}({value})"
    return value


def _selected(field: Field) -> str:
    return f"{_value(field)} AS `{field.name}`"


def _map_select(column: MapColumn) -> str:
    return f"mapFromArrays(c_{column.keys}, c_{column.values}) AS `{column.name}`"


def _flat(section: Section, field: Field) -> str:
    """A list field's elements of all rows, looked up, as many as the longest field of its count has.

    Never as many as the counts promise: a count is any uint32, and arrayResize to 2**32 throws.
    """
    lengths = [f"length({section.name}_{other.name})" for other in section.fields if other.count == field.count]
    source = f"{section.name}_{field.name}"
    if len(lengths) > 1:
        source = f"arrayResize({source}, greatest({', '.join(lengths)}))"
    if field.wire is Wire.DICT:
        return f"arrayMap(i -> strings[i + 1], {source})"
    return source


def _slices(section: Section, field: Field, *, rows: str) -> str:
    counts = f"arrayResize({section.name}_{field.count}, {rows})"
    flat = f"{section.name}_{field.name}_flat"
    return f"arrayMap((n, e) -> arraySlice({flat}, e - n + 1, n), {counts}, arrayCumSum({counts}))"


def view(section: Section) -> str:
    """DDL of the view that expands a section of `landing` into its table."""
    rows = f"length({section.name}_{section.key})"
    lists = [field for field in section.fields if field.count is not None]
    expanded = [field for field in section.fields if field.wire is not Wire.COUNT]
    selected = [
        *_row_header_select(section),
        "toUInt32(row_number - 1) AS idx",
        "toDate(header_week) AS week",
        *[_selected(field) for field in section.fields if field.table],
        *[_map_select(column) for column in section.maps],
    ]
    joined = [f"arrayEnumerate({section.name}_{section.key}) AS row_number"]
    joined += [f"{_joined(section, field, rows=rows)} AS c_{field.name}" for field in expanded]
    inner = ["*"]
    inner += [f"{_flat(section, field)} AS {section.name}_{field.name}_flat" for field in lists]
    inner += [f"{_slices(section, field, rows=rows)} AS {section.name}_{field.name}_rows" for field in lists]
    source = "landing" if not lists else "(\n    SELECT\n        " + ",\n        ".join(inner) + "\n    FROM landing\n)"
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {section.table}_from_landing TO {section.table} AS\nSELECT\n    "
        + ",\n    ".join(selected)
        + f"\nFROM {source}\nARRAY JOIN\n    "
        + ",\n    ".join(joined)
    )


def ledger_columns() -> list[tuple[str, str]]:
    """Name and type of the columns of `batches`."""
    columns = [(field.name, field.table) for field in HEADER if field.table and field.name != "week"]
    columns.append(("mesh", "Map(LowCardinality(String), UInt32)"))
    columns += [(emitted_field(section).name, "UInt64") for section in SECTIONS]
    columns += [(f"rows_{section.name}", "UInt32") for section in SECTIONS]
    return [*columns, ("received", "Int64"), ("week", "Date")]


def ledger() -> str:
    """DDL of `batches`: one row per batch, what makes completeness a query."""
    return (
        f"CREATE TABLE IF NOT EXISTS batches\n(\n{_columns(ledger_columns())}\n)\n"
        "ENGINE = MergeTree\nPARTITION BY week\nORDER BY (project, run_id, incarnation, seq)\n"
        f"SETTINGS {WINDOW}"
    )


def ledger_view() -> str:
    """DDL of the view that writes the ledger."""
    selected: list[str] = []
    for name, kind in ledger_columns():
        if name == "week":
            selected.append("toDate(header_week) AS week")
        elif name == "mesh":
            axes = "arrayMap(a -> toLowCardinality(a), header_mesh_axis)"
            selected.append(
                f"mapFromArrays({axes}, arrayResize(header_mesh_coordinate, length(header_mesh_axis))) AS mesh"
            )
        elif name == "received":
            selected.append("received")
        elif name.startswith("rows_"):
            section = next(section for section in SECTIONS if f"rows_{section.name}" == name)
            selected.append(f"toUInt32(length({section.name}_{section.key})) AS {name}")
        elif kind == "UInt8":
            selected.append(f"toUInt8(header_{name}) AS {name}")
        else:
            selected.append(f"header_{name} AS {name}")
    body = ",\n    ".join(selected)
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS batches_from_landing TO batches AS\nSELECT\n    {body}\nFROM landing"
    )


def trace_index() -> tuple[str, str]:
    """DDL of the index from a trace to its run, steps, ranks and times, and of its view.

    Only idempotent aggregates: a sum filled by a view never heals.
    """
    table_sql = (
        "CREATE TABLE IF NOT EXISTS trace_index\n(\n"
        "    `project` LowCardinality(String),\n    `run_id` LowCardinality(String),\n"
        "    `trace_hi` UInt64,\n    `trace_lo` UInt64,\n"
        "    `steps` SimpleAggregateFunction(groupUniqArrayArray, Array(Int64)),\n"
        "    `ranks` SimpleAggregateFunction(groupUniqArrayArray, Array(Int32)),\n"
        "    `first_start` SimpleAggregateFunction(min, Int64),\n"
        "    `last_end` SimpleAggregateFunction(max, Int64),\n    `week` Date\n)\n"
        "ENGINE = AggregatingMergeTree\nPARTITION BY week\nORDER BY (project, run_id, trace_hi, trace_lo)\n"
        f"SETTINGS {WINDOW}"
    )
    view_sql = (
        "CREATE MATERIALIZED VIEW IF NOT EXISTS trace_index_from_landing TO trace_index AS\nSELECT\n"
        "    header_project AS project,\n    header_run_id AS run_id,\n    trace_hi,\n    trace_lo,\n"
        "    groupUniqArrayIf(step, has_step) AS steps,\n"
        "    groupUniqArray(ifNull(stated_rank, header_rank)) AS ranks,\n"
        f"    min(start) AS first_start,\n    max({SPAN_END}) AS last_end,\n    toDate(header_week) AS week\n"
        "FROM landing\nARRAY JOIN\n"
        "    arrayResize(spans_trace_hi, length(spans_span_id)) AS trace_hi,\n"
        "    arrayResize(spans_trace_lo, length(spans_span_id)) AS trace_lo,\n"
        "    arrayResize(spans_start, length(spans_span_id)) AS start,\n"
        "    arrayResize(spans_duration, length(spans_span_id)) AS duration,\n"
        "    arrayResize(spans_step, length(spans_span_id)) AS step,\n"
        "    if(empty(spans_present), arrayWithConstant(length(spans_span_id), notEmpty(spans_step)),\n"
        "       arrayMap(p -> bitTest(p, 0), arrayResize(spans_present, length(spans_span_id)))) AS has_step,\n"
        "    arrayMap((r, p) -> if(bitTest(p, 2), r, NULL),\n"
        "       arrayResize(spans_stated_rank::Array(Nullable(Int32)), length(spans_span_id), NULL),\n"
        "       if(empty(spans_present), arrayWithConstant(length(spans_span_id), bitNot(toUInt64(0))),\n"
        "          arrayResize(spans_present, length(spans_span_id)))) AS stated_rank\n"
        "GROUP BY project, run_id, trace_hi, trace_lo, week"
    )
    return table_sql, view_sql


def _named(field: Field) -> str:
    members = list(field.vocabulary or ())
    codes = ", ".join(str(member.code) for member in members)
    words = ", ".join(f"'{member.value}'" for member in members)
    return f"transform({field.name}, [0, {codes}], ['', {words}], toString({field.name})) AS {field.name}"


def named_view(section: Section) -> str:
    """DDL of the read view that shows names for codes and hexadecimal incarnations."""
    vocabularies = {field.name: field for field in (*HEADER, *section.fields) if field.vocabulary}
    replaced = [_named(vocabularies[name]) for name, _ in table_columns(section) if name in vocabularies]
    replaced += ["lower(hex(incarnation)) AS incarnation", "lower(hex(launch_id)) AS launch_id"]
    body = ",\n    ".join(replaced)
    return (
        f"CREATE VIEW IF NOT EXISTS {section.table}_named AS\nSELECT * REPLACE (\n    {body}\n)\nFROM {section.table}"
    )


def landing_probe() -> str:
    """DDL of the twin of `landing` that has no views: a batch that it refuses is one that does not parse."""
    return landing().replace("landing", "landing_probe", 1)


def objects() -> str:
    """DDL of every object of the current declaration: what all migrations together must come to."""
    statements = [
        *[f"-- {section.meaning} {section.order_why}\n{table(section)}" for section in SECTIONS],
        f"-- The ledger: one row per batch.\n{ledger()}",
        f"-- From a trace to its run, steps, ranks and times.\n{trace_index()[0]}",
        f"-- A batch is one row of landing; every table is a view of it.\n{landing()}",
        landing_probe(),
        *[view(section) for section in SECTIONS],
        ledger_view(),
        trace_index()[1],
        *[named_view(section) for section in SECTIONS],
    ]
    return ";\n\n".join(statements) + ";\n"
