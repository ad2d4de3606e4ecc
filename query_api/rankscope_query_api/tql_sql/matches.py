"""Collectives matched over ranks, as a relation of one row an arrival: what it waited, and what it is charged with.

A collective is known by group, its ranks and number, for groups of other ranks may have the same name. Arrivals are
compared on one clock: to each entry the offset is added that was measured of its process's clock last before it (of
earlier entries the first measured), with the drift since, all against the server that most processes of the launch were
measured against. Without that only processes of one node compare, which share a clock. The last arriver is charged
where it is the last for certain: it shares a node with the one before, or came later than both clocks err. Nothing is
said of a collective of which ranks of the group are not stored (yet), nor of one at which a rank arrived twice.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound

from rankscope_proto.names import COLLECTIVE_FLAGS

SCOPED = "@scoped"
"""What stands for the conditions that every table reference compares."""

_PROCESS = "reverse(reinterpretAsFixedString(bitOr(bitShiftLeft(toUInt128(of_hi), 64), toUInt128(of_lo))))"

_SERVER = f"""
SELECT run_id, launch_id, argMin(server, (-processes, server)) AS server
FROM (
    SELECT run_id, launch_id, server, toInt64(uniqExact(tuple(of_hi, of_lo))) AS processes
    FROM clocks
    PREWHERE {SCOPED}
    GROUP BY run_id, launch_id, server
)
GROUP BY run_id, launch_id"""

_CLOCKS = f"""
SELECT
    run_id,
    {_PROCESS} AS process,
    time AS measured,
    if(row_number() OVER (PARTITION BY run_id, of_hi, of_lo ORDER BY time, seq, idx) = 1, 0, time) AS since,
    offset,
    error,
    ifNull(drift, 0) AS growth
FROM clocks
PREWHERE {SCOPED}
WHERE (run_id, launch_id, server) IN ({_SERVER})"""

_ARRIVALS = f"""
SELECT run_id, launch_id, "group", group_ranks, cseq, rank, node, entry, incarnation, seq, idx
FROM collectives
PREWHERE {SCOPED}
WHERE cseq != 0 AND bitAnd(flags, {COLLECTIVE_FLAGS["p2p"]}) = 0"""

_ON_ONE_CLOCK = f"""
SELECT
    arrived.run_id AS run_id,
    launch_id,
    "group",
    group_ranks,
    cseq,
    tuple(
        entry + offset + toInt64(growth * ((entry - measured) / 1000000000)),
        rank, error, node, measured > 0, incarnation, seq, idx
    ) AS arrival
FROM ({_ARRIVALS}) AS arrived
ASOF LEFT JOIN ({_CLOCKS}) AS clock
    ON arrived.run_id = clock.run_id AND incarnation = process AND entry >= since"""

# `0-3,8` is five ranks; where they are unknown, those that arrived are taken for all.
_RANKS = """
if(
    empty(group_ranks),
    collective_arrived,
    arraySum(
        part -> toInt64OrZero(splitByString({dash:String}, part)[-1])
            - toInt64OrZero(splitByString({dash:String}, part)[1]) + 1,
        splitByString({comma:String}, group_ranks)
    )
)"""

# ClickHouse makes anew for each arrival what is made of a collective: only aggregates are not. With the last two taken
# from a sorted array of all, 1,024 ranks took fifty times as long.
_MATCHED = f"""
SELECT
    run_id,
    groupArray(arrival) AS arrivals,
    arrayElement(groupArraySorted(2)(tuple(-arrival.1, -arrival.2, arrival.3, arrival.4)), 2) AS before,
    max(arrival) AS final,
    min(arrival) AS first,
    uniqExact(arrival.2) AS collective_arrived,
    count() = collective_arrived
        AND collective_arrived >= {_RANKS}
        AND (uniqExact(arrival.4) = 1 OR min(arrival.5) = 1) AS is_whole,
    collective_arrived = 1
        OR final.4 = before.4
        OR final.1 + before.1 > final.3 + before.3 AS is_certain,
    toInt128(final.1) * count() - sum(toInt128(arrival.1)) AS waited,
    if(is_whole, final.1 - first.1, NULL) AS collective_skew,
    if(is_whole AND is_certain AND waited <= 9223372036854775807, toInt64(waited), NULL) AS charged
FROM ({_ON_ONE_CLOCK})
GROUP BY run_id, launch_id, "group", group_ranks, cseq"""

MATCHES = f"""
SELECT
    run_id,
    own.6 AS incarnation,
    own.7 AS seq,
    own.8 AS idx,
    collective_arrived,
    collective_skew,
    if(is_whole, final.1 - own.1, NULL) AS collective_wait,
    if(own = final, charged, NULL) AS collective_wait_charged
FROM (
    SELECT run_id, collective_arrived, collective_skew, is_whole, final, charged, arrayJoin(arrivals) AS own
    FROM ({_MATCHED})
)"""
"""The text of the relation."""

UNMEASURED = f"""
SELECT sum(unmeasured) AS unmeasured, sum(processes) AS processes
FROM (
    SELECT met.run_id AS run_id, countIf(measurements = 0) AS unmeasured, count() AS processes, uniqExact(node) AS nodes
    FROM (
        SELECT run_id, launch_id, incarnation, any(node) AS node
        FROM collectives
        PREWHERE {SCOPED}
        GROUP BY run_id, launch_id, incarnation
    ) AS met
    LEFT JOIN (
        SELECT run_id, {_PROCESS} AS process, count() AS measurements
        FROM clocks
        PREWHERE {SCOPED}
        WHERE (run_id, launch_id, server) IN ({_SERVER})
        GROUP BY run_id, process
    ) AS clock ON met.run_id = clock.run_id AND incarnation = process
    GROUP BY run_id, launch_id
)
WHERE nodes > 1"""
"""How many of how many processes have no measured clock, in launches whose collectives come from several nodes."""
