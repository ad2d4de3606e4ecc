SELECT "rank" AS c0, "step" AS c1, toInt64(ifNull("step", -1)) AS k0, if(toInt64(ifNull("step", -1)) = -1, "time", 0) AS k1, "microstep" AS k2, "phase" AS k3, "seq" AS k4, "idx" AS k5, "rank" AS k6, lower(hex("incarnation")) AS k7
FROM tensor_stats
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE (ifNull("nonfinite_count" > {p0:UInt64}, 0) AND (toInt64(ifNull("step", -1)) >= {p1:Int64} AND toInt64(ifNull("step", -1)) <= {p2:Int64})) AND ("run_id", "launch_id", "rank", toInt64(ifNull("step", -1))) IN (
  SELECT "run_id", "launch_id", "rank", toInt64(ifNull("step", -1))
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE toInt64(ifNull("step", -1)) <> -1 AND ((toInt64(ifNull("step", -1)) >= {p1:Int64} AND toInt64(ifNull("step", -1)) <= {p2:Int64}) AND "duration" > {p3:Int64}) AND bitAnd("flags", 8) <> 0
)
ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "time", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": 0, "p1": 3, "p2": 5, "p3": 1000000000, "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM tensor_stats
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE (ifNull("nonfinite_count" > {p0:UInt64}, 0) AND (toInt64(ifNull("step", -1)) >= {p1:Int64} AND toInt64(ifNull("step", -1)) <= {p2:Int64})) AND ("run_id", "launch_id", "rank", toInt64(ifNull("step", -1))) IN (
  SELECT "run_id", "launch_id", "rank", toInt64(ifNull("step", -1))
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE toInt64(ifNull("step", -1)) <> -1 AND ((toInt64(ifNull("step", -1)) >= {p1:Int64} AND toInt64(ifNull("step", -1)) <= {p2:Int64}) AND "duration" > {p3:Int64}) AND bitAnd("flags", 8) <> 0
)
