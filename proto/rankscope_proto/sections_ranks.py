"""Declares the sections about ranks beside each other: collectives, clocks, nodes' figures, standings of processes."""

from rankscope_proto import names
from rankscope_proto.constructors import code, flags, microstep, present, step, time, word
from rankscope_proto.declaration import Field, Section, Wire

STACK_BYTES = 16 * 1024
"""Most bytes of the stack in one row of `standings`."""

COLLECTIVES = Section(
    "collectives",
    12,
    "collectives",
    "One collective operation as one rank saw it; the same one is matched over ranks by group and number.",
    "entry",
    (
        time("entry", 1, "Wall clock when the rank called it; where enqueued is set, when it was put into a queue."),
        time("exit", 2, "Wall clock when it was over for this rank.", optional=0),
        word("group", 3, "Name of the process group; behind # how often the name was given anew in this process."),
        word("group_ranks", 4, "Its global ranks, as 0-3,8; empty where unknown."),
        Field("cseq", 5, Wire.UINT64, "UInt64", "Number of the collective in its group, from 1; 0 where it has none."),
        word("op", 6, "Operation, as torch names it."),
        word("entry_source", 7, "What told the entry: call or recorder."),
        word("exit_source", 8, "What told the exit: call, future, hook or ddp; empty where none did."),
        Field(
            "device",
            9,
            Wire.INT64,
            "Int64",
            "Duration on the device.",
            unit="ns",
            low=0,
            optional=1,
        ),
        Field("bytes", 10, Wire.UINT64, "UInt64", "Bytes of this rank's input.", unit="bytes"),
        word("dtype", 11, "Element type, as torch names it."),
        word("shape", 12, "Shapes of the input: 1000, 64x64;64."),
        word("reduction", 13, "sum, avg, max and so on; empty where nothing is reduced."),
        step(14, 2),
        microstep(15),
        code("phase", 16, names.Phase, "Phase that was open at the entry."),
        word("module", 17, "Path of the module or first parameter it is for; empty where unknown."),
        flags(18, names.COLLECTIVE_FLAGS),
        present(19),
    ),
    ("ifNull(step, -1)", "group", "cseq", "rank"),
    "The arrivals of one collective at all ranks are neighbouring rows.",
)

CLOCKS = Section(
    "clocks",
    13,
    "clocks",
    "How far one process's wall clock is from a server's; written by the agent process, applied on reading only.",
    "time",
    (
        time("time", 1, "When it was computed, on the wall clock of that process."),
        Field("of_hi", 2, Wire.FIXED64, "UInt64", "Upper half of the incarnation whose clock it is."),
        Field("of_lo", 3, Wire.FIXED64, "UInt64", "Lower half of it."),
        Field("offset", 4, Wire.INT64, "Int64", "Added to the process's wall clock it gives the server's.", unit="ns"),
        Field("error", 5, Wire.INT64, "Int64", "Bound of the offset's error, either way.", unit="ns", low=0),
        Field("drift", 6, Wire.INT64, "Int64", "Growth of the offset.", unit="ns a second", optional=0),
        Field("rtt", 7, Wire.INT64, "Int64", "Least round trip of the exchanges used.", unit="ns", low=0),
        Field("samples", 8, Wire.UINT32, "UInt32", "Exchanges used."),
        word("server", 9, "Whose clock is meant: the gateway's node and its boot."),
        present(10),
    ),
    ("of_hi", "of_lo", "time"),
    "The clocks of a run are read whole, one process's in order.",
)

SYSTEM_STATS = Section(
    "system_stats",
    14,
    "system_stats",
    "One figure of a node or a device, sampled by the agent process.",
    "name",
    (
        word("name", 1, "Name of the figure: cpu.busy, memory.used, gpu.temperature."),
        word("device", 2, "What it is of: empty for the node, rank 3, gpu0, eth0."),
        Field("value", 3, Wire.DOUBLE, "Float64", "The figure, in the unit of its name."),
        time("time", 4, "Wall clock of the sample."),
    ),
    ("name", "node", "device", "time"),
    "A figure is read as a line over time.",
)

STANDINGS = Section(
    "standings",
    17,
    "standings",
    "Where one process stands, as the agent process of its node sees it from outside; on change and every few seconds.",
    "time",
    (
        time("time", 1, "Wall clock of the agent process when it looked."),
        Field("of_hi", 2, Wire.FIXED64, "UInt64", "Upper half of the incarnation that is looked at."),
        Field("of_lo", 3, Wire.FIXED64, "UInt64", "Lower half of it."),
        word("state", 4, "running, waiting, stopped, stuck, dead or ended."),
        word(
            "group",
            5,
            "A process group that it uses, under way where enqueued is above completed; empty: it uses none.",
        ),
        Field("enqueued", 6, Wire.UINT64, "UInt64", "Number of the last collective that it entered in the group."),
        Field("completed", 7, Wire.UINT64, "UInt64", "Number of the last one that was over."),
        word("op", 8, "Operation of the last one entered."),
        word("shape", 9, "Shapes of its input."),
        time("since", 10, "Since when it has made no progress, on the clock of time.", optional=0),
        step(11, 1),
        code("phase", 12, names.Phase, "Phase that was open within the last second."),
        Field(
            "stack",
            13,
            Wire.STRING,
            "String",
            f"Frames of its threads (JSON), innermost first; at most {STACK_BYTES} bytes.",
        ),
        present(14),
    ),
    ("of_hi", "of_lo", "time"),
    "Only the last row of a process and group is read; rows expire after a day.",
    expires="toDateTime(intDiv(time, 1000000000), 'UTC') + INTERVAL 1 DAY",
)
