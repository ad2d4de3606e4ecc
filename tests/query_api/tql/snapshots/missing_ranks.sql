SELECT "g2_0" AS c0, "a2_0_0" AS c1, multiIf(NOT (isNotNull("g2_0")), 2, 0) AS k0, ifNull("g2_0", 0) AS k1
FROM (
  SELECT "g1_0" AS g2_0, arraySort(bitmapToArray(bitmapAndnot(bitmapBuild(range(toUInt32(least(max("a1_0_0"), 1048576)))), groupBitmapState(toUInt32("g1_1"))))) AS a2_0_0
  FROM (
    SELECT nullIf(toInt64(ifNull("step", -1)), -1) AS g1_0, assumeNotNull("rank") AS g1_1, max("world_size") AS a1_0_0
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "name" = {p0:String} AND "rank" <> -1
    GROUP BY "g1_0", "g1_1"
  ) AS groups_1
  GROUP BY "g2_0"
) AS groups_2
WHERE length("a2_0_0") > {p1:Int64}
ORDER BY multiIf(NOT (isNotNull("g2_0")), 2, 0) ASC, ifNull("g2_0", 0) ASC
LIMIT {limit:UInt64}

-- {"p0": "all_reduce", "project": "default", "run": "night", "p1": 0, "limit": 100}

SELECT count() AS total
FROM (
  SELECT "g1_0" AS g2_0, arraySort(bitmapToArray(bitmapAndnot(bitmapBuild(range(toUInt32(least(max("a1_0_0"), 1048576)))), groupBitmapState(toUInt32("g1_1"))))) AS a2_0_0
  FROM (
    SELECT nullIf(toInt64(ifNull("step", -1)), -1) AS g1_0, assumeNotNull("rank") AS g1_1, max("world_size") AS a1_0_0
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "name" = {p0:String} AND "rank" <> -1
    GROUP BY "g1_0", "g1_1"
  ) AS groups_1
  GROUP BY "g2_0"
) AS groups_2
WHERE length("a2_0_0") > {p1:Int64}
