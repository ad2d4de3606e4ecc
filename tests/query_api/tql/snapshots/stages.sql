SELECT nullIf("g1_0", '') AS c0, "a1_0_0" AS c1, multiIf(NOT (isNotNull("a1_0_0")), 2, 0) AS k0, ifNull("a1_0_0", 0) AS k1, multiIf(NOT ("g1_0" <> ''), 2, 0) AS k2, "g1_0" AS k3
FROM (
  SELECT "name" AS g1_0, toInt64(if(isFinite(toFloat64(sum(toInt128(toNullable("duration")))) / count(toNullable("duration"))), least(round(toFloat64(sum(toInt128(toNullable("duration")))) / count(toNullable("duration"))), 9223372036854774784.0), NULL)) AS a1_0_0
  FROM (
    SELECT *
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE ("name" <> '')
    ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "start", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
    LIMIT {p0:UInt64}
  ) AS cut_0_0
  GROUP BY "g1_0"
) AS groups_1
WHERE ifNull("a1_0_0" > {p1:Int64}, 0)
ORDER BY multiIf(NOT (isNotNull("a1_0_0")), 2, 0) ASC, ifNull("a1_0_0", 0) DESC, multiIf(NOT ("g1_0" <> ''), 2, 0) ASC, "g1_0" ASC
LIMIT {limit:UInt64}

-- {"project": "default", "run": "night", "p0": 100, "p1": 1000000, "limit": 3}

SELECT count() AS total
FROM (
  SELECT "name" AS g1_0, toInt64(if(isFinite(toFloat64(sum(toInt128(toNullable("duration")))) / count(toNullable("duration"))), least(round(toFloat64(sum(toInt128(toNullable("duration")))) / count(toNullable("duration"))), 9223372036854774784.0), NULL)) AS a1_0_0
  FROM (
    SELECT *
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE ("name" <> '')
    ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "start", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
    LIMIT {p0:UInt64}
  ) AS cut_0_0
  GROUP BY "g1_0"
) AS groups_1
WHERE ifNull("a1_0_0" > {p1:Int64}, 0)
