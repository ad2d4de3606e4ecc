SELECT "rank" AS c0, "step" AS c1, "name" AS c2, "l2" AS c3, multiIf(NOT (isNotNull("l2")), 2, ifNull(isNaN("l2"), 0), 1, 0) AS k0, ifNull(if(isNaN("l2"), 0, "l2"), 0) AS k1, toInt64(ifNull("step", -1)) AS k2, if(toInt64(ifNull("step", -1)) = -1, "time", 0) AS k3, "microstep" AS k4, "phase" AS k5, "seq" AS k6, "idx" AS k7, "rank" AS k8, lower(hex("incarnation")) AS k9
FROM tensor_stats
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "role" = {p0:UInt8} AND NOT (ifNull("l2" <= {p1:Float64}, 0)) AND ("rank" >= {p2:Int32} AND "rank" <= {p3:Int32})
ORDER BY multiIf(NOT (isNotNull("l2")), 2, ifNull(isNaN("l2"), 0), 1, 0) ASC, ifNull(if(isNaN("l2"), 0, "l2"), 0) DESC, toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "time", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": 2, "p1": 100.0, "p2": 0, "p3": 7, "project": "default", "run": "night", "limit": 10}

SELECT count() AS total
FROM tensor_stats
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "role" = {p0:UInt8} AND NOT (ifNull("l2" <= {p1:Float64}, 0)) AND ("rank" >= {p2:Int32} AND "rank" <= {p3:Int32})
