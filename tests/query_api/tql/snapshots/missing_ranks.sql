SELECT nullIf("g1_0", -1) AS c0, "a1_0_0" AS c1, multiIf(NOT ("g1_0" <> -1), 2, 0) AS k0, "g1_0" AS k1
FROM (
  SELECT toInt64(ifNull("step", -1)) AS g1_0, arraySort(bitmapToArray(bitmapAndnot(bitmapBuild(range(toUInt32(least(max("world_size"), 1048576)))), groupBitmapState(toUInt32(assumeNotNull("rank")))))) AS a1_0_0
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "name" = {p0:String} AND "rank" <> -1
  GROUP BY "g1_0"
) AS groups_1
WHERE length("a1_0_0") > {p1:Int64}
ORDER BY multiIf(NOT ("g1_0" <> -1), 2, 0) ASC, "g1_0" ASC
LIMIT {limit:UInt64}

-- {"p0": "all_reduce", "project": "default", "run": "night", "p1": 0, "limit": 100}

SELECT count() AS total
FROM (
  SELECT toInt64(ifNull("step", -1)) AS g1_0, arraySort(bitmapToArray(bitmapAndnot(bitmapBuild(range(toUInt32(least(max("world_size"), 1048576)))), groupBitmapState(toUInt32(assumeNotNull("rank")))))) AS a1_0_0
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "name" = {p0:String} AND "rank" <> -1
  GROUP BY "g1_0"
) AS groups_1
WHERE length("a1_0_0") > {p1:Int64}
