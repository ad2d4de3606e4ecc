"""Declares the sections about a run as a whole: metrics, events, stated absences, who took part."""

from rankscope_proto import names
from rankscope_proto.constructors import MAX_INT64, code, count, present, step, time, word, words
from rankscope_proto.declaration import Field, MapColumn, Section, Wire

SCALARS = Section(
    "scalars",
    4,
    "scalars",
    "One value of a metric of the run.",
    "name",
    (
        word("name", 1, "Name of the metric; at most 512 bytes."),
        step(2, 0),
        Field("value", 3, Wire.DOUBLE, "Float64", "The value; NaN and infinities are kept."),
        time("time", 4, "Wall clock of the call."),
        present(5),
    ),
    ("name", "rank", "ifNull(step, -1)"),
    "A series is read as a whole, one name at a time.",
)


EVENTS = Section(
    "events",
    6,
    "events",
    "Something that happened at one moment.",
    "time",
    (
        time("time", 1, "Wall clock of the event."),
        word("kind", 2, "Kind of event, such as end_of_stream, rank_conflict, alert."),
        word("name", 3, "Short title; at most 512 bytes.", table="String"),
        code("severity", 4, names.Severity, "How much it matters."),
        Field("payload", 5, Wire.STRING, "String", "Details (JSON)."),
        Field("span_id", 6, Wire.FIXED64, "UInt64", "Span it happened in; 0: none."),
        step(7, 0),
        present(8),
        Field(
            "trace_hi",
            9,
            Wire.FIXED64,
            "UInt64",
            "Upper half of the id of that span's trace; 0: none.",
            since=3,
        ),
        Field("trace_lo", 10, Wire.FIXED64, "UInt64", "Lower half of it.", since=3),
    ),
    ("time",),
    "Events are read by time.",
)


GAPS = Section(
    "gaps",
    7,
    "gaps",
    "A stated absence of rows.",
    "class",
    (
        code(
            "class",
            1,
            names.GapClass,
            "Lost: rows that were emitted; not captured: rows that never were.",
        ),
        word("cause", 2, "Why, a word of GapCause."),
        word("data_kind", 3, "Section the rows would be in; empty: several."),
        Field("count", 4, Wire.UINT64, "UInt64", "Rows absent; exact for lost.", optional=0),
        Field(
            "seq_from",
            5,
            Wire.UINT64,
            "UInt64",
            "First batch lost.",
            low=0,
            high=MAX_INT64,
            optional=1,
        ),
        Field(
            "seq_to",
            6,
            Wire.UINT64,
            "UInt64",
            "Last batch lost.",
            low=0,
            high=MAX_INT64,
            optional=2,
        ),
        Field("step_from", 7, Wire.INT64, "Int64", "First step concerned.", low=0, optional=3),
        Field("step_to", 8, Wire.INT64, "Int64", "Last step concerned.", low=0, optional=4),
        Field(
            "step_stride",
            9,
            Wire.UINT32,
            "UInt32",
            "Captured steps are multiples of it.",
            low=1,
            optional=5,
        ),
        time("start", 10, "Beginning of the interval."),
        time("end", 11, "End of the interval.", optional=6),
        word("detail", 12, "Anything else a person needs.", table="String"),
        present(13),
        Field(
            "incarnation_hi",
            14,
            Wire.FIXED64,
            "UInt64",
            "Upper half of the incarnation whose rows are absent, where another process says so.",
            optional=7,
            since=2,
        ),
        Field("incarnation_lo", 15, Wire.FIXED64, "UInt64", "Lower half of it.", optional=8, since=2),
    ),
    ("start",),
    "Gaps are few and read whole.",
)


RUN_INFO = Section(
    "run_info",
    8,
    "runs",
    "What one process said of the run, at its start and at its end; the latest row wins on reading.",
    "status",
    (
        code("status", 1, names.RunStatus, "Where the process stands."),
        word("name", 2, "Name of the run, for people.", table="String"),
        Field("config", 3, Wire.STRING, "String", "Configuration (JSON object)."),
        words("tags", 4, "tag_n", "Tags."),
        count("tag_n", 5, "tags"),
        Field("command", 6, Wire.STRING, "String", "Command line, secrets masked."),
        words("fact_keys", 7, "fact_n", "Names of host facts.", table=""),
        words("fact_values", 8, "fact_n", "Values of host facts.", table=""),
        count("fact_n", 9, "host facts"),
        time("start", 10, "Wall clock when the process joined the run."),
        time("end", 11, "Wall clock when it left.", optional=0),
        present(12),
    ),
    ("rank", "start"),
    "A run is read whole.",
    (
        MapColumn(
            "facts",
            "fact_keys",
            "fact_values",
            "Map(LowCardinality(String), String)",
            "Host facts.",
        ),
    ),
)
