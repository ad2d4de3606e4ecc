SELECT nullIf("g1_0", '') AS c0, "g1_1" AS c1, "a1_0_0" AS c2, if(empty("a1_1_0"), emptyArrayUInt64(), arrayMap("i" -> countEqual(arrayMap("v" -> if(arrayMin("a1_1_0") / 2 = arrayMax("a1_1_0") / 2, 0, least(toUInt16(floor(("v" / 2 - arrayMin("a1_1_0") / 2) / (arrayMax("a1_1_0") / 2 - arrayMin("a1_1_0") / 2) * 8)), 8 - 1)), "a1_1_0"), "i"), range(8))) AS c3, multiIf(NOT ("g1_0" <> ''), 2, 0) AS k0, "g1_0" AS k1, multiIf(NOT (isNotNull("g1_1")), 2, 0) AS k2, ifNull("g1_1", 0) AS k3
FROM (
  SELECT "name" AS g1_0, if(toInt64(ifNull("step", -1)) <> -1, toInt64(ifNull("step", -1)) - if((toInt64(ifNull("step", -1)) % {p0:Int64}) < 0, ((toInt64(ifNull("step", -1)) % {p0:Int64}) + {p0:Int64}), (toInt64(ifNull("step", -1)) % {p0:Int64})), NULL) AS g1_1, argMin(if(isNaN("l2"), NULL, "l2"), tuple(toInt64(ifNull("step", -1)), if(toInt64(ifNull("step", -1)) = -1, "time", 0), "microstep", "phase", "seq", "idx", "rank", lower(hex("incarnation")))) AS a1_0_0, groupArrayIf(if(isNaN("l2"), NULL, "l2"), isFinite(if(isNaN("l2"), NULL, "l2"))) AS a1_1_0
  FROM tensor_stats
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE (isNotNull("l2"))
  GROUP BY "g1_0", "g1_1"
) AS groups_1
ORDER BY multiIf(NOT ("g1_0" <> ''), 2, 0) ASC, "g1_0" ASC, multiIf(NOT (isNotNull("g1_1")), 2, 0) ASC, ifNull("g1_1", 0) ASC
LIMIT {limit:UInt64}

-- {"p0": 10, "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM (
  SELECT "name" AS g1_0, if(toInt64(ifNull("step", -1)) <> -1, toInt64(ifNull("step", -1)) - if((toInt64(ifNull("step", -1)) % {p0:Int64}) < 0, ((toInt64(ifNull("step", -1)) % {p0:Int64}) + {p0:Int64}), (toInt64(ifNull("step", -1)) % {p0:Int64})), NULL) AS g1_1, argMin(if(isNaN("l2"), NULL, "l2"), tuple(toInt64(ifNull("step", -1)), if(toInt64(ifNull("step", -1)) = -1, "time", 0), "microstep", "phase", "seq", "idx", "rank", lower(hex("incarnation")))) AS a1_0_0, groupArrayIf(if(isNaN("l2"), NULL, "l2"), isFinite(if(isNaN("l2"), NULL, "l2"))) AS a1_1_0
  FROM tensor_stats
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE (isNotNull("l2"))
  GROUP BY "g1_0", "g1_1"
) AS groups_1
