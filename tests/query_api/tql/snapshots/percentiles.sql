SELECT nullIf("g1_0", -1) AS c0, "a1_0_0" AS c1, "a1_1_0" AS c2, multiIf(NOT ("g1_0" <> -1), 2, 0) AS k0, "g1_0" AS k1
FROM (
  SELECT "rank" AS g1_0, toInt64(if(isFinite(quantileExactInclusive(0.5)(toFloat64(toNullable("duration")))), least(round(quantileExactInclusive(0.5)(toFloat64(toNullable("duration")))), 9223372036854774784.0), NULL)) AS a1_0_0, toInt64(if(isFinite(quantileExactInclusive(0.99)(toFloat64(toNullable("duration")))), least(round(quantileExactInclusive(0.99)(toFloat64(toNullable("duration")))), 9223372036854774784.0), NULL)) AS a1_1_0
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE ("name" <> '' AND match("name", {p0:String})) AND (toInt64(ifNull("step", -1)) >= {p1:Int64} AND toInt64(ifNull("step", -1)) <= {p2:Int64})
  GROUP BY "g1_0"
) AS groups_1
ORDER BY multiIf(NOT ("g1_0" <> -1), 2, 0) ASC, "g1_0" ASC
LIMIT {limit:UInt64}

-- {"p0": "\\A(?s:allreduce.*)\\z", "p1": 100, "p2": 200, "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM (
  SELECT "rank" AS g1_0, toInt64(if(isFinite(quantileExactInclusive(0.5)(toFloat64(toNullable("duration")))), least(round(quantileExactInclusive(0.5)(toFloat64(toNullable("duration")))), 9223372036854774784.0), NULL)) AS a1_0_0, toInt64(if(isFinite(quantileExactInclusive(0.99)(toFloat64(toNullable("duration")))), least(round(quantileExactInclusive(0.99)(toFloat64(toNullable("duration")))), 9223372036854774784.0), NULL)) AS a1_1_0
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE ("name" <> '' AND match("name", {p0:String})) AND (toInt64(ifNull("step", -1)) >= {p1:Int64} AND toInt64(ifNull("step", -1)) <= {p2:Int64})
  GROUP BY "g1_0"
) AS groups_1
