SELECT "name" AS c0, if(mapContains("attributes", {p3:String}), "attributes"[{p3:String}], if(mapContains("numbers", {p3:String}), toString("numbers"[{p3:String}]), NULL)) AS c1, toInt64(ifNull("step", -1)) AS k0, if(toInt64(ifNull("step", -1)) = -1, "start", 0) AS k1, "microstep" AS k2, "phase" AS k3, "seq" AS k4, "idx" AS k5, "rank" AS k6, lower(hex("incarnation")) AS k7
FROM spans
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "duration" > {p0:Int64} AND has(arrayMap((k, v) -> concat(toString(length(k)), ':', k, v), mapKeys(attributes), mapValues(attributes)), {p2:String}) AND (mapContains("numbers", {p3:String}) AND ("numbers"[{p3:String}] + 0) IN ({p4:Float64}, {p5:Float64})) AND NOT (("parent_span_id" <> 0))
ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "start", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": 5000000, "p1": "odd key", "p2": "7:odd keya", "p3": "n", "p4": 0.0, "p5": 1.5, "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM spans
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "duration" > {p0:Int64} AND has(arrayMap((k, v) -> concat(toString(length(k)), ':', k, v), mapKeys(attributes), mapValues(attributes)), {p2:String}) AND (mapContains("numbers", {p3:String}) AND ("numbers"[{p3:String}] + 0) IN ({p4:Float64}, {p5:Float64})) AND NOT (("parent_span_id" <> 0))
