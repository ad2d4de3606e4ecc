SELECT nullIf("g1_0", -1) AS c0, "g1_1" AS c1, "a1_0_0" AS c2, "a1_0_0" AS k0, multiIf(NOT ("g1_0" <> -1), 2, 0) AS k1, "g1_0" AS k2, multiIf(NOT (isNotNull("g1_1")), 2, 0) AS k3, ifNull("g1_1", '') AS k4
FROM (
  SELECT "rank" AS g1_0, if(mapContains("attributes", {p2:String}), "attributes"[{p2:String}], if(mapContains("numbers", {p2:String}), toString("numbers"[{p2:String}]), NULL)) AS g1_1, count() AS a1_0_0
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "kind" = {p0:UInt8} AND ("status" <> 0 AND NOT ("status" = {p1:UInt8}))
  GROUP BY "g1_0", "g1_1"
) AS groups_1
ORDER BY "a1_0_0" DESC, multiIf(NOT ("g1_0" <> -1), 2, 0) ASC, "g1_0" ASC, multiIf(NOT (isNotNull("g1_1")), 2, 0) ASC, ifNull("g1_1", '') ASC
LIMIT {limit:UInt64}

-- {"p0": 6, "p1": 2, "p2": "device", "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM (
  SELECT "rank" AS g1_0, if(mapContains("attributes", {p2:String}), "attributes"[{p2:String}], if(mapContains("numbers", {p2:String}), toString("numbers"[{p2:String}]), NULL)) AS g1_1, count() AS a1_0_0
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "kind" = {p0:UInt8} AND ("status" <> 0 AND NOT ("status" = {p1:UInt8}))
  GROUP BY "g1_0", "g1_1"
) AS groups_1
