SELECT nullIf("g1_0", -1) AS c0, nullIf("g1_1", '') AS c1, "a1_0_0" AS c2, multiIf(NOT ("g1_0" <> -1), 2, 0) AS k0, "g1_0" AS k1, multiIf(NOT ("g1_1" <> ''), 2, 0) AS k2, "g1_1" AS k3
FROM (
  SELECT "rank" AS g1_0, "op" AS g1_1, if(ifNull(sum(toInt128("match__v0")), 0) BETWEEN -9223372036854775808 AND 9223372036854775807, toInt64(ifNull(sum(toInt128("match__v0")), 0)), NULL) AS a1_0_0
  FROM collectives
  LEFT JOIN (
    SELECT "run_id" AS match__k0, "incarnation" AS match__k1, "seq" AS match__k2, "idx" AS match__k3, toNullable("collective_wait_charged") AS match__v0
    FROM (
      SELECT run_id, own.6 AS incarnation, own.7 AS seq, own.8 AS idx, collective_arrived, collective_skew, if(is_whole, final.1 - own.1, NULL) AS collective_wait, if(own = final, charged, NULL) AS collective_wait_charged
      FROM (
         SELECT run_id, collective_arrived, collective_skew, is_whole, final, charged, arrayJoin(arrivals) AS own
        FROM (
           SELECT run_id, groupArray(arrival) AS arrivals, arrayElement(groupArraySorted(2)(tuple(-arrival.1, -arrival.2, arrival.3, arrival.4)), 2) AS before, max(arrival) AS final, min(arrival) AS first, uniqExact(arrival.2) AS collective_arrived, count() = collective_arrived AND collective_arrived >= if( empty(group_ranks), collective_arrived, arraySum( part -> toInt64OrZero(splitByString({dash:String}, part)[-1]) - toInt64OrZero(splitByString({dash:String}, part)[1]) + 1, splitByString({comma:String}, group_ranks) ) ) AND (uniqExact(arrival.4) = 1 OR min(arrival.5) = 1) AS is_whole, collective_arrived = 1 OR final.4 = before.4 OR final.1 + before.1 > final.3 + before.3 AS is_certain, toInt128(final.1) * count() - sum(toInt128(arrival.1)) AS waited, if(is_whole, final.1 - first.1, NULL) AS collective_skew, if(is_whole AND is_certain AND waited <= 9223372036854775807, toInt64(waited), NULL) AS charged
          FROM (
             SELECT arrived.run_id AS run_id, launch_id, "group", group_ranks, cseq, tuple( entry + offset + toInt64(growth * ((entry - measured) / 1000000000)), rank, error, node, measured > 0, incarnation, seq, idx ) AS arrival
            FROM (
               SELECT run_id, launch_id, "group", group_ranks, cseq, rank, node, entry, incarnation, seq, idx
              FROM collectives
              PREWHERE project = {project:String} AND run_id = {run:String}
              WHERE cseq != 0 AND bitAnd(flags, 4) = 0
            ) AS arrived
            ASOF LEFT JOIN (
               SELECT run_id, reverse(reinterpretAsFixedString(bitOr(bitShiftLeft(toUInt128(of_hi), 64), toUInt128(of_lo)))) AS process, time AS measured, if(row_number() OVER (PARTITION BY run_id, of_hi, of_lo ORDER BY time, seq, idx) = 1, 0, time) AS since, offset, error, ifNull(drift, 0) AS growth
              FROM clocks
              PREWHERE project = {project:String} AND run_id = {run:String}
              WHERE (run_id, launch_id, server) IN (
                 SELECT run_id, launch_id, argMin(server, (-processes, server)) AS server
                FROM (
                   SELECT run_id, launch_id, server, toInt64(uniqExact(tuple(of_hi, of_lo))) AS processes
                  FROM clocks
                  PREWHERE project = {project:String} AND run_id = {run:String}
                  GROUP BY run_id, launch_id, server 
                )
                GROUP BY run_id, launch_id
              )
            ) AS clock ON arrived.run_id = clock.run_id AND incarnation = process AND entry >= since
          )
          GROUP BY run_id, launch_id, "group", group_ranks, cseq
        ) 
      )
    ) AS grouped
  ) AS match_joined ON "run_id" = "match__k0" AND "incarnation" = "match__k1" AND "seq" = "match__k2" AND "idx" = "match__k3"
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE ifNull("match__v0" > {p0:Int64}, 0)
  GROUP BY "g1_0", "g1_1"
) AS groups_1
ORDER BY multiIf(NOT ("g1_0" <> -1), 2, 0) ASC, "g1_0" ASC, multiIf(NOT ("g1_1" <> ''), 2, 0) ASC, "g1_1" ASC
LIMIT {limit:UInt64}

-- {"project": "default", "run": "night", "dash": "-", "comma": ",", "p0": 5000000, "limit": 100}

SELECT count() AS total
FROM (
  SELECT "rank" AS g1_0, "op" AS g1_1, if(ifNull(sum(toInt128("match__v0")), 0) BETWEEN -9223372036854775808 AND 9223372036854775807, toInt64(ifNull(sum(toInt128("match__v0")), 0)), NULL) AS a1_0_0
  FROM collectives
  LEFT JOIN (
    SELECT "run_id" AS match__k0, "incarnation" AS match__k1, "seq" AS match__k2, "idx" AS match__k3, toNullable("collective_wait_charged") AS match__v0
    FROM (
      SELECT run_id, own.6 AS incarnation, own.7 AS seq, own.8 AS idx, collective_arrived, collective_skew, if(is_whole, final.1 - own.1, NULL) AS collective_wait, if(own = final, charged, NULL) AS collective_wait_charged
      FROM (
         SELECT run_id, collective_arrived, collective_skew, is_whole, final, charged, arrayJoin(arrivals) AS own
        FROM (
           SELECT run_id, groupArray(arrival) AS arrivals, arrayElement(groupArraySorted(2)(tuple(-arrival.1, -arrival.2, arrival.3, arrival.4)), 2) AS before, max(arrival) AS final, min(arrival) AS first, uniqExact(arrival.2) AS collective_arrived, count() = collective_arrived AND collective_arrived >= if( empty(group_ranks), collective_arrived, arraySum( part -> toInt64OrZero(splitByString({dash:String}, part)[-1]) - toInt64OrZero(splitByString({dash:String}, part)[1]) + 1, splitByString({comma:String}, group_ranks) ) ) AND (uniqExact(arrival.4) = 1 OR min(arrival.5) = 1) AS is_whole, collective_arrived = 1 OR final.4 = before.4 OR final.1 + before.1 > final.3 + before.3 AS is_certain, toInt128(final.1) * count() - sum(toInt128(arrival.1)) AS waited, if(is_whole, final.1 - first.1, NULL) AS collective_skew, if(is_whole AND is_certain AND waited <= 9223372036854775807, toInt64(waited), NULL) AS charged
          FROM (
             SELECT arrived.run_id AS run_id, launch_id, "group", group_ranks, cseq, tuple( entry + offset + toInt64(growth * ((entry - measured) / 1000000000)), rank, error, node, measured > 0, incarnation, seq, idx ) AS arrival
            FROM (
               SELECT run_id, launch_id, "group", group_ranks, cseq, rank, node, entry, incarnation, seq, idx
              FROM collectives
              PREWHERE project = {project:String} AND run_id = {run:String}
              WHERE cseq != 0 AND bitAnd(flags, 4) = 0
            ) AS arrived
            ASOF LEFT JOIN (
               SELECT run_id, reverse(reinterpretAsFixedString(bitOr(bitShiftLeft(toUInt128(of_hi), 64), toUInt128(of_lo)))) AS process, time AS measured, if(row_number() OVER (PARTITION BY run_id, of_hi, of_lo ORDER BY time, seq, idx) = 1, 0, time) AS since, offset, error, ifNull(drift, 0) AS growth
              FROM clocks
              PREWHERE project = {project:String} AND run_id = {run:String}
              WHERE (run_id, launch_id, server) IN (
                 SELECT run_id, launch_id, argMin(server, (-processes, server)) AS server
                FROM (
                   SELECT run_id, launch_id, server, toInt64(uniqExact(tuple(of_hi, of_lo))) AS processes
                  FROM clocks
                  PREWHERE project = {project:String} AND run_id = {run:String}
                  GROUP BY run_id, launch_id, server 
                )
                GROUP BY run_id, launch_id
              )
            ) AS clock ON arrived.run_id = clock.run_id AND incarnation = process AND entry >= since
          )
          GROUP BY run_id, launch_id, "group", group_ranks, cseq
        ) 
      )
    ) AS grouped
  ) AS match_joined ON "run_id" = "match__k0" AND "incarnation" = "match__k1" AND "seq" = "match__k2" AND "idx" = "match__k3"
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE ifNull("match__v0" > {p0:Int64}, 0)
  GROUP BY "g1_0", "g1_1"
) AS groups_1
