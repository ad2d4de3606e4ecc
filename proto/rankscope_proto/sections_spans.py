"""Declares the sections about spans: the finished ones and, per heartbeat, the open ones."""

from rankscope_proto import names
from rankscope_proto.constructors import (
    code,
    count,
    flags,
    microbatch,
    microstep,
    present,
    step,
    time,
    word,
    words,
)
from rankscope_proto.declaration import Field, Index, MapColumn, Section, Wire

ATTRIBUTE_WORDS = (
    "arrayMap((k, v) -> concat(toString(length(k)), ':', k, v), mapKeys(attributes), mapValues(attributes))"
)
"""A span's text attributes as words: the key's length in bytes, a colon, the key, the value.

The length tells where the key ends, so no two attributes share a word: what has the word has the attribute, and the map
need not be read.
"""


SPAN_END = "multiIf(duration < 0, start, start + duration < start, toInt64(9223372036854775807), start + duration)"
"""When a span ended, of its columns `start` and `duration`: never before its start.

A foreign duration may be negative, which ends the span where it began, or too long for 64 bits, which hold the greatest
time then. As a sum that wraps, either would hide the span from whoever reads a trace from its start to its end.
"""


def attribute_word(key: str, value: str) -> str:
    """The one of `ATTRIBUTE_WORDS` that an attribute is: `has(words, word)` is true of the spans that have it."""
    return f"{len(key.encode())}:{key}{value}"


SPANS = Section(
    "spans",
    2,
    "spans",
    "A finished span.",
    "span_id",
    (
        Field("span_id", 1, Wire.FIXED64, "UInt64", "Id, unique in its trace; not 0."),
        Field("trace_hi", 2, Wire.FIXED64, "UInt64", "Upper half of the trace id."),
        Field("trace_lo", 3, Wire.FIXED64, "UInt64", "Lower half of the trace id."),
        Field("parent_span_id", 4, Wire.FIXED64, "UInt64", "Id of the parent; 0: a root."),
        word("name", 5, "What the span is called; at most 512 bytes."),
        code("kind", 6, names.SpanKind, "Kind, for filters and counts."),
        code("status", 7, names.SpanStatus, "How it ended."),
        time("start", 8, "Wall clock at the start."),
        Field("duration", 9, Wire.INT64, "Int64", "From the monotonic clock, signed.", unit="ns"),
        step(10, 0),
        microstep(11),
        microbatch(12, 1),
        code("phase", 13, names.Phase, "Part of the training step; 0 outside one."),
        Field(
            "depth",
            14,
            Wire.UINT32,
            "UInt16",
            "Number of ancestors known to the process.",
            unit="",
            low=0,
            high=65535,
        ),
        word("path", 15, "Names from the root joined by '/'; '/' in a name is written %2F, '%' %25."),
        word(
            "thread_id",
            16,
            "Session or turn the span belongs to; empty: its trace.",
            table="String",
        ),
        word("rollout_id", 17, "Rollout or episode of the application; empty: none.", table="String"),
        word("error_type", 18, "Class of the exception that ended it; empty: none."),
        words("attribute_keys", 19, "attribute_n", "Keys of the text attributes.", table=""),
        words("attribute_values", 20, "attribute_n", "Values of the text attributes.", table=""),
        count("attribute_n", 21, "text attributes"),
        words("number_keys", 22, "number_n", "Keys of the numeric attributes.", table=""),
        Field(
            "number_values",
            23,
            Wire.DOUBLE,
            "",
            "Values of the numeric attributes.",
            count="number_n",
        ),
        count("number_n", 24, "numeric attributes"),
        words("metric_keys", 25, "metric_n", "Names of the span's metrics.", table=""),
        Field("metric_values", 26, Wire.DOUBLE, "", "Values of the span's metrics.", count="metric_n"),
        count("metric_n", 27, "metrics"),
        Field(
            "link_trace_hi",
            28,
            Wire.FIXED64,
            "Array(UInt64)",
            "Linked traces, upper half.",
            count="link_n",
        ),
        Field(
            "link_trace_lo",
            29,
            Wire.FIXED64,
            "Array(UInt64)",
            "Linked traces, lower half.",
            count="link_n",
        ),
        Field(
            "link_span_id",
            30,
            Wire.FIXED64,
            "Array(UInt64)",
            "Linked spans; 0: the trace.",
            count="link_n",
        ),
        count("link_n", 31, "links"),
        Field(
            "inputs",
            32,
            Wire.STRING,
            "String",
            "Redacted preview of the inputs (JSON); empty: none.",
        ),
        Field(
            "outputs",
            33,
            Wire.STRING,
            "String",
            "Redacted preview of the outputs (JSON); empty: none.",
        ),
        Field("error_preview", 34, Wire.STRING, "String", "Redacted exception message; empty: none."),
        code("capture", 35, names.Capture, "Whether previews were kept."),
        code("redaction_state", 36, names.RedactionState, "What redaction did."),
        flags(37, names.SPAN_FLAGS),
        present(38),
        Field(
            "stated_rank",
            39,
            Wire.SINT32,
            "",
            "Rank the program names for the span, in place of the process's own.",
            low=0,
            high=2**31 - 1,
            optional=2,
            since=3,
            replaces="rank",
        ),
    ),
    ("ifNull(step, -1)", "rank", "start"),
    "A step's tree, and one rank's part of it, are neighbouring rows: a training trace is a step.",
    (
        MapColumn(
            "attributes",
            "attribute_keys",
            "attribute_values",
            "Map(LowCardinality(String), String)",
            "Short searchable labels.",
        ),
        MapColumn(
            "numbers",
            "number_keys",
            "number_values",
            "Map(LowCardinality(String), Float64)",
            "Numeric attributes.",
        ),
        MapColumn(
            "metrics",
            "metric_keys",
            "metric_values",
            "Map(LowCardinality(String), Float64)",
            "Numeric metrics of the span.",
        ),
    ),
    codecs=(
        ("idx", "Delta, Default"),
        ("span_id", "Delta, Default"),
        ("start", "T64, Default"),
        ("duration", "T64, Default"),
    ),
    indexes=(
        Index(
            "attribute_words",
            ATTRIBUTE_WORDS,
            "text(tokenizer = 'array')",
            "Finds the spans that have a text attribute with a value.",
        ),
        # At 10 million spans a trace asked for by its id for the first time: 370 ms without it, 16 ms with it.
        Index("trace_ids", "trace_lo", "bloom_filter(0.01) GRANULARITY 1", "Finds the spans of a trace."),
    ),
)


OPEN_SPANS = Section(
    "open_spans",
    9,
    "open_spans",
    "The spans open on one thread at one heartbeat, outermost first.",
    "heartbeat",
    (
        time("heartbeat", 1, "Wall clock of the heartbeat."),
        word("thread", 2, "Name of the thread.", table="String"),
        Field(
            "stack_span_id",
            3,
            Wire.FIXED64,
            "Array(UInt64)",
            "Ids of the open spans.",
            count="stack_n",
        ),
        words("stack_name", 4, "stack_n", "Names of the open spans."),
        Field(
            "stack_start",
            5,
            Wire.SFIXED64,
            "Array(Int64)",
            "Their starts.",
            unit="ns since epoch",
            count="stack_n",
        ),
        count("stack_n", 6, "open spans"),
        step(7, 0),
        present(8),
        Field(
            "stack_trace_hi",
            9,
            Wire.FIXED64,
            "Array(UInt64)",
            "Upper halves of their trace ids.",
            count="stack_n",
            since=3,
        ),
        Field(
            "stack_trace_lo",
            10,
            Wire.FIXED64,
            "Array(UInt64)",
            "Lower halves of them.",
            count="stack_n",
            since=3,
        ),
        Field(
            "stack_kind",
            11,
            Wire.UINT32,
            "Array(UInt32)",
            "Their kinds, codes of SpanKind.",
            low=0,
            high=255,
            count="stack_n",
            since=3,
        ),
    ),
    ("rank", "heartbeat"),
    "Only the last heartbeat of a rank is read; rows expire after a day.",
    expires="toDateTime(intDiv(heartbeat, 1000000000), 'UTC') + INTERVAL 1 DAY",
)
