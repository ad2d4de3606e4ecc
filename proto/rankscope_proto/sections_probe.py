"""Declares the sections about breakpoints that fired and tensor values that were kept."""

from rankscope_proto import names
from rankscope_proto.constructors import code, count, microstep, present, step, time, word, words
from rankscope_proto.declaration import Field, MapColumn, Section, Wire

CHUNK_BYTES = 1024 * 1024
"""Most bytes of values in one row of `captures`."""

HITS = Section(
    "hits",
    10,
    "hits",
    "One firing of a breakpoint.",
    "time",
    (
        time("time", 1, "Wall clock when the condition was found true."),
        word("breakpoint", 2, "Name of the breakpoint."),
        word("predicate", 3, "Its condition, in TQL."),
        word("name", 4, "Path of the tensor it fired on."),
        word("module", 5, "Path of the module the tensor belongs to."),
        code("role", 6, names.Role, "What the tensor is."),
        step(7, 0),
        microstep(8),
        code("phase", 9, names.Phase, "Phase that produced the tensor."),
        word("mode", 10, "precise: judged before training went on; relaxed: at most one step later."),
        word("action", 11, "What the hit did: nothing, capture, level or raise."),
        Field("count", 12, Wire.UINT64, "UInt64", "Which hit of this breakpoint in this process, from 1.", low=1),
        words("seen_names", 13, "seen_n", "Fields that the condition saw as numbers.", table=""),
        Field("seen_values", 14, Wire.DOUBLE, "", "Their values; NaN and infinities are kept.", count="seen_n"),
        count("seen_n", 15, "numbers seen"),
        words("text_names", 16, "text_n", "Fields that the condition saw as text.", table=""),
        words("text_values", 17, "text_n", "Their values.", table=""),
        count("text_n", 18, "texts seen"),
        present(19),
    ),
    ("ifNull(step, -1)", "time"),
    "Hits are few and read by step.",
    maps=(
        MapColumn(
            "seen",
            "seen_names",
            "seen_values",
            "Map(LowCardinality(String), Float64)",
            "Numbers that the condition saw.",
            since=4,
        ),
        MapColumn(
            "seen_texts",
            "text_names",
            "text_values",
            "Map(LowCardinality(String), String)",
            "Texts that the condition saw.",
            since=4,
        ),
    ),
)


CAPTURES = Section(
    "captures",
    11,
    "captures",
    "A part of the values of one captured tensor.",
    "name",
    (
        word("name", 1, "Path of the tensor; an output has its index in brackets after the module's path."),
        word("module", 2, "Path of the module it belongs to."),
        code("role", 3, names.Role, "What the tensor is."),
        step(4, 0),
        microstep(5),
        code("phase", 6, names.Phase, "Phase that produced it."),
        time("time", 7, "Wall clock when the values were copied."),
        word("dtype", 8, "Element type, as torch names it."),
        Field("shape", 9, Wire.UINT64, "Array(UInt64)", "Shape of the kept values.", count="shape_n"),
        count("shape_n", 10, "dimensions"),
        Field("full_shape", 11, Wire.UINT64, "Array(UInt64)", "Local shape of the tensor.", count="full_shape_n"),
        count("full_shape_n", 12, "dimensions"),
        word("part", 13, "whole, slice or sample."),
        word("part_of", 14, "Which elements (JSON): bounds of a slice; elements and seed of a sample.", table="String"),
        Field("digest_hi", 15, Wire.FIXED64, "UInt64", "Upper half of BLAKE2b-128 of the kept bytes."),
        Field("digest_lo", 16, Wire.FIXED64, "UInt64", "Lower half of it."),
        Field("bytes", 17, Wire.UINT64, "UInt64", "Bytes kept in all chunks.", unit="bytes"),
        Field("chunk", 18, Wire.UINT32, "UInt32", "Which chunk, from 0."),
        Field("chunks", 19, Wire.UINT32, "UInt32", "How many chunks there are; 0: they came with an earlier row."),
        Field("data", 20, Wire.BYTES, "String", f"Bytes of the chunk, little-endian; at most {CHUNK_BYTES}."),
        word("cause", 21, "What asked for it: the breakpoint's name, or capture."),
        present(22),
    ),
    ("digest_hi", "digest_lo", "chunk"),
    "Values are fetched by digest; lists read no data.",
    codecs=(("data", "ZSTD(1)"),),
)
