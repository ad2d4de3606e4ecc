"""The views that SQL may read, made from the contract: their columns, what these mean, and the SELECT behind each.

A view shows a table as the answers of the service show it: words for codes, hexadecimal digits for ids, moments both
as `DateTime64(9)` and in ns. Its SELECT reads one table, restricted by PREWHERE: what is asked outside is pushed down
into it, and a WHERE is free to look at all rows first, so that a conversion fails on a row of another project and says
what it was (seen on 26.9; with PREWHERE only the rows that are left are looked at).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope_proto import columns as contract
from rankscope_proto.declaration import Field, Section
from rankscope_proto.names import SpanStatus

OF_PROJECT = "rs_t.project = {project:String}"
OF_RUN = "rs_t.run_id = {run:String}"

_LEFT_OUT = frozenset({"week"})
"""Where rows are partitioned, which is nobody's question."""

_WHOLE = {
    "trace_hi": ("trace_id", "Id of the trace"),
    "link_trace_hi": ("link_trace_id", "Ids of the linked traces"),
    "incarnation_hi": ("absent_incarnation", "The incarnation whose rows are absent, where another process says so"),
    "of_hi": ("of_incarnation", "The incarnation of the process that is spoken of"),
}
"""Name and meaning of the ids that are stored in halves, by the upper one."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a view.

    Attributes:
        name: Its name.
        type: Its ClickHouse type.
        meaning: One sentence.
        value: The expression over the table `rs_t`.
    """

    name: str
    type: str
    meaning: str
    value: str


@dataclass(frozen=True, slots=True)
class View:
    """One view.

    Attributes:
        name: What a statement calls it.
        section: The section whose rows it shows.
        meaning: What a row is.
        columns: What it shows.
    """

    name: str
    section: Section
    meaning: str
    columns: tuple[Column, ...]

    def select(self, *, of_run: bool) -> str:
        """The SELECT that a statement reads in place of the view.

        Args:
            of_run: Whether one run is meant; else the whole project.
        """
        shown = ", ".join(f"{column.value} AS `{column.name}`" for column in self.columns)
        restricted = f"{OF_PROJECT} AND {OF_RUN}" if of_run else OF_PROJECT
        return f"SELECT {shown} FROM {self.section.table} AS rs_t PREWHERE {restricted}"  # noqa: S608 - all of it is ours


def _of_section(name: str, section: Section) -> View:
    header = [field for field in contract.HEADER if field.name in contract.ROW_HEADER]
    found = [column for field in header if field.name not in _LEFT_OUT for column in _columns(field, section)]
    found.append(Column("idx", "UInt32", "Number of the row in its batch.", "rs_t.idx"))
    found += [column for field in section.fields if field.table for column in _columns(field, section)]
    found += [Column(one.name, one.table, one.meaning, f"rs_t.{one.name}") for one in section.maps]
    return View(name, section, section.meaning, tuple(found))


def _columns(field: Field, section: Section) -> Iterator[Column]:
    """The columns that show one column of the table; the lower half of an id shows with the upper one."""
    stored = f"rs_t.{field.name}"
    if field.vocabulary is not None:
        yield Column(field.name, "String", f"{field.meaning} {_one_of(field)}", _words(field))
    elif field.table == "FixedString(16)":
        yield Column(field.name, "String", f"{field.meaning} 32 hexadecimal digits.", f"lower(hex({stored}))")
    elif field.unit == "ns" or field.unit.startswith("ns since"):
        yield from _times(field)
    elif field.name in _WHOLE:
        yield _halves(field, section)
    elif not field.name.endswith("_lo"):
        yield _id(field, section) if _is_id(field) else Column(field.name, _type(field), _meaning(field), stored)


def _meaning(field: Field) -> str:
    return f"{field.meaning} In {field.unit}." if field.unit else field.meaning


def _is_id(field: Field) -> bool:
    return field.name.endswith("span_id") or field.name == "fingerprint"


def _type(field: Field) -> str:
    return f"Nullable({field.table})" if field.optional is not None else field.table


def _one_of(field: Field) -> str:
    members = ", ".join(f"`{member.value}`" for member in field.vocabulary or ())
    return f"One of {members}; empty: not stated."


def _words(field: Field) -> str:
    members = list(field.vocabulary or ())
    codes = ", ".join(str(member.code) for member in members)
    words = ", ".join(f"'{member.value}'" for member in members)
    return f"transform(rs_t.{field.name}, [0, {codes}], ['', {words}], toString(rs_t.{field.name}))"


def _times(field: Field) -> Iterator[Column]:
    """A duration in ns; a moment also as a time that ClickHouse's functions take."""
    nullable = field.optional is not None
    if field.unit != "ns":
        moment = "DateTime64(9, 'UTC')"
        shown = f"Nullable({moment})" if nullable else moment
        value = f"fromUnixTimestamp64Nano(rs_t.{field.name}, 'UTC')"
        yield Column(field.name, shown, field.meaning, value)
    yield Column(f"{field.name}_ns", _type(field), f"{field.meaning} In {field.unit}.", f"rs_t.{field.name}")


def _digits(value: str) -> str:
    """16 hexadecimal digits: `hex` alone leaves out the zeros in front."""
    return f"lower(leftPad(hex({value}), 16, '0'))"


def _id(field: Field, section: Section) -> Column:
    stored = f"rs_t.{field.name}"
    meaning = f"{field.meaning} 16 hexadecimal digits."
    if field.table.startswith("Array"):
        return Column(field.name, "Array(String)", meaning, f"arrayMap(i -> {_digits('i')}, {stored})")
    if field.name == section.key:
        return Column(field.name, "String", meaning, _digits(stored))
    shown = f"if({stored} = 0, NULL, {_digits(stored)})"
    return Column(field.name, "Nullable(String)", meaning.replace("0:", "NULL:"), shown)


def _halves(field: Field, section: Section) -> Column:
    upper, lower = f"rs_t.{field.name}", f"rs_t.{field.name.removesuffix('hi')}lo"
    name, meaning = _WHOLE[field.name]
    both = f"concat({_digits(upper)}, {_digits(lower)})"
    if field.table.startswith("Array"):
        both = f"arrayMap((h, l) -> concat({_digits('h')}, {_digits('l')}), {upper}, {lower})"
        return Column(name, "Array(String)", f"{meaning}. 32 hexadecimal digits.", both)
    if section is contract.SPANS or field.name == "of_hi":
        return Column(name, "String", f"{meaning}. 32 hexadecimal digits.", both)
    return Column(
        name, "Nullable(String)", f"{meaning}; NULL: none. 32 hexadecimal digits.", f"if({upper} = 0, NULL, {both})"
    )


_RESOURCE = {
    "service.name": "rs_t.run_id",
    "host.name": "rs_t.node",
    "rankscope.launch_id": "lower(hex(rs_t.launch_id))",
    "rankscope.rank": "toString(rs_t.rank)",
}
"""What an exporter says of the process."""

_SPAN_ATTRIBUTES = (
    "mapConcat(CAST(rs_t.attributes AS Map(String, String)), mapApply((k, v) -> (CAST(k AS String), toString(v)),"
    " mapConcat(rs_t.numbers, rs_t.metrics)),"
    " if(isNull(rs_t.step), map(), map('step', toString(ifNull(rs_t.step, 0)))))"
)


def _otel_traces() -> View:
    """Spans by the names of the OpenTelemetry Collector's exporter, for the tools that ask for them."""
    spans = {column.name: column for column in _of_section("spans", contract.SPANS).columns}

    def like(name: str, shown: str, *, meaning: str) -> Column:
        return Column(name, spans[shown].type, meaning, spans[shown].value)

    resource = ", ".join(f"'{key}', {value}" for key, value in _RESOURCE.items())
    return View(
        "otel_traces",
        contract.SPANS,
        "A finished span, by the column names that the OpenTelemetry Collector gives in ClickHouse.",
        (
            like("Timestamp", "start", meaning="Wall clock at the start."),
            like("TraceId", "trace_id", meaning="32 hexadecimal digits."),
            like("SpanId", "span_id", meaning="16 hexadecimal digits."),
            Column("ParentSpanId", "String", "16 hexadecimal digits; empty: a root.", _parent()),
            Column("TraceState", "String", "Empty.", "''"),
            like("SpanName", "name", meaning="What the span is called."),
            Column("SpanKind", "String", "Internal: nothing else is recorded.", "'Internal'"),
            like("ServiceName", "run_id", meaning="The run."),
            Column(
                "ResourceAttributes",
                "Map(String, String)",
                f"The process: {', '.join(f'`{key}`' for key in _RESOURCE)}.",
                f"map({resource})",
            ),
            Column("ScopeName", "String", "rankscope.", "'rankscope'"),
            Column("ScopeVersion", "String", "Empty.", "''"),
            Column(
                "SpanAttributes",
                "Map(String, String)",
                "Attributes, numbers and metrics as texts, and `step`.",
                _SPAN_ATTRIBUTES,
            ),
            Column("Duration", "UInt64", "In ns; 0 where a clock went back.", "toUInt64(greatest(rs_t.duration, 0))"),
            Column("StatusCode", "String", "`Ok`, `Error` or `Unset`.", _status_code()),
            like("StatusMessage", "error_preview", meaning="Redacted exception message; empty: none."),
        ),
    )


def _parent() -> str:
    return f"if(rs_t.parent_span_id = 0, '', {_digits('rs_t.parent_span_id')})"


def _status_code() -> str:
    ok, error = SpanStatus.OK.code, SpanStatus.ERROR.code
    return f"transform(rs_t.status, [{ok}, {error}], ['Ok', 'Error'], 'Unset')"


VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        _of_section("spans", contract.SPANS),
        _of_section("tensor_stats", contract.TENSOR_STATS),
        _of_section("metrics", contract.SCALARS),
        _of_section("gaps", contract.GAPS),
        _of_section("runs", contract.RUN_INFO),
        _of_section("modules", contract.MODULES),
        _of_section("events", contract.EVENTS),
        _of_section("hits", contract.HITS),
        _of_section("collectives", contract.COLLECTIVES),
        _of_section("clocks", contract.CLOCKS),
        _of_section("system_stats", contract.SYSTEM_STATS),
        _of_section("standings", contract.STANDINGS),
        _otel_traces(),
    )
}
"""Every view, by name."""
