SELECT "g2_0" AS c0, "g2_1" AS c1, "a2_0_0" AS c2, multiIf(NOT (isNotNull("g2_0")), 2, 0) AS k0, ifNull("g2_0", 0) AS k1, multiIf(NOT (isNotNull("g2_1")), 2, 0) AS k2, ifNull("g2_1", '') AS k3
FROM (
  SELECT "g1_0" AS g2_0, "g1_1" AS g2_1, if(isInfinite((max("a1_0_0") - min("a1_0_0")) / nullIf(abs(quantileExactInclusive(0.5)("a1_0_0")), 0)) AND countIf(isInfinite("a1_0_0")) = 0, NULL, (max("a1_0_0") - min("a1_0_0")) / nullIf(abs(quantileExactInclusive(0.5)("a1_0_0")), 0)) AS a2_0_0
  FROM (
    SELECT nullIf(toInt64(ifNull("step", -1)), -1) AS g1_0, nullIf("name", '') AS g1_1, assumeNotNull("rank") AS g1_2, assumeNotNull(max(if(isNaN("l2"), NULL, "l2"))) AS a1_0_0
    FROM tensor_stats
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "role" = {p0:UInt8} AND "rank" <> -1 AND isNotNull(if(isNaN("l2"), NULL, "l2"))
    GROUP BY "g1_0", "g1_1", "g1_2"
  ) AS groups_1
  GROUP BY "g2_0", "g2_1"
) AS groups_2
WHERE ifNull("a2_0_0" > {p1:Float64}, 0)
ORDER BY multiIf(NOT (isNotNull("g2_0")), 2, 0) ASC, ifNull("g2_0", 0) ASC, multiIf(NOT (isNotNull("g2_1")), 2, 0) ASC, ifNull("g2_1", '') ASC
LIMIT {limit:UInt64}

-- {"p0": 2, "project": "default", "run": "night", "p1": 0.01, "limit": 1}

SELECT count() AS total
FROM (
  SELECT "g1_0" AS g2_0, "g1_1" AS g2_1, if(isInfinite((max("a1_0_0") - min("a1_0_0")) / nullIf(abs(quantileExactInclusive(0.5)("a1_0_0")), 0)) AND countIf(isInfinite("a1_0_0")) = 0, NULL, (max("a1_0_0") - min("a1_0_0")) / nullIf(abs(quantileExactInclusive(0.5)("a1_0_0")), 0)) AS a2_0_0
  FROM (
    SELECT nullIf(toInt64(ifNull("step", -1)), -1) AS g1_0, nullIf("name", '') AS g1_1, assumeNotNull("rank") AS g1_2, assumeNotNull(max(if(isNaN("l2"), NULL, "l2"))) AS a1_0_0
    FROM tensor_stats
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "role" = {p0:UInt8} AND "rank" <> -1 AND isNotNull(if(isNaN("l2"), NULL, "l2"))
    GROUP BY "g1_0", "g1_1", "g1_2"
  ) AS groups_1
  GROUP BY "g2_0", "g2_1"
) AS groups_2
WHERE ifNull("a2_0_0" > {p1:Float64}, 0)
