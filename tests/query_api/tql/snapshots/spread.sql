SELECT nullIf("g1_0", -1) AS c0, nullIf("g1_1", '') AS c1, "compared_1" AS c2, multiIf(NOT ("g1_0" <> -1), 2, 0) AS k0, "g1_0" AS k1, multiIf(NOT ("g1_1" <> ''), 2, 0) AS k2, "g1_1" AS k3
FROM (
  SELECT *, if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0) AS share_1, if(empty("values_1"), NULL, if(isInfinite("share_1") AND arrayCount("one" -> isInfinite("one"), "values_1") = 0 OR isNaN("share_1"), NULL, "share_1")) AS compared_1
  FROM (
    SELECT *, multiIf("middle_1_low" = "middle_1_high", "middle_1_low", isFinite("middle_1_high" - "middle_1_low"), "middle_1_low" + ("middle_1_high" - "middle_1_low") / 2, "middle_1_low" / 2 + "middle_1_high" / 2) AS middle_1
    FROM (
      SELECT *, arrayFilter(("one", "next") -> tupleElement("one", 1) <> "next", "a1_0_0", arraySlice(arrayPushBack(tupleElement("a1_0_0", 1), -2), 2)) AS kept_1, tupleElement("kept_1", 1) AS ranks_1, tupleElement("kept_1", 2) AS values_1, arraySort("values_1") AS middle_1_of, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 1, 2)) AS middle_1_low, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 2, 2)) AS middle_1_high
      FROM (
        SELECT toInt64(ifNull("step", -1)) AS g1_0, "name" AS g1_1, arraySort(groupArray(tuple(assumeNotNull("rank"), assumeNotNull(if(isNaN("l2"), NULL, "l2"))))) AS a1_0_0
        FROM tensor_stats
        PREWHERE project = {project:String} AND run_id = {run:String}
        WHERE "role" = {p0:UInt8} AND "rank" <> -1 AND isNotNull(if(isNaN("l2"), NULL, "l2"))
        GROUP BY "g1_0", "g1_1"
      ) AS groups_1_0
    ) AS groups_1_1
  ) AS groups_1_2
) AS groups_1
WHERE ifNull("compared_1" > {p1:Float64}, 0)
ORDER BY multiIf(NOT ("g1_0" <> -1), 2, 0) ASC, "g1_0" ASC, multiIf(NOT ("g1_1" <> ''), 2, 0) ASC, "g1_1" ASC
LIMIT {limit:UInt64}

-- {"p0": 2, "project": "default", "run": "night", "p1": 0.01, "limit": 1}

SELECT count() AS total
FROM (
  SELECT *, if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0) AS share_1, if(empty("values_1"), NULL, if(isInfinite("share_1") AND arrayCount("one" -> isInfinite("one"), "values_1") = 0 OR isNaN("share_1"), NULL, "share_1")) AS compared_1
  FROM (
    SELECT *, multiIf("middle_1_low" = "middle_1_high", "middle_1_low", isFinite("middle_1_high" - "middle_1_low"), "middle_1_low" + ("middle_1_high" - "middle_1_low") / 2, "middle_1_low" / 2 + "middle_1_high" / 2) AS middle_1
    FROM (
      SELECT *, arrayFilter(("one", "next") -> tupleElement("one", 1) <> "next", "a1_0_0", arraySlice(arrayPushBack(tupleElement("a1_0_0", 1), -2), 2)) AS kept_1, tupleElement("kept_1", 1) AS ranks_1, tupleElement("kept_1", 2) AS values_1, arraySort("values_1") AS middle_1_of, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 1, 2)) AS middle_1_low, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 2, 2)) AS middle_1_high
      FROM (
        SELECT toInt64(ifNull("step", -1)) AS g1_0, "name" AS g1_1, arraySort(groupArray(tuple(assumeNotNull("rank"), assumeNotNull(if(isNaN("l2"), NULL, "l2"))))) AS a1_0_0
        FROM tensor_stats
        PREWHERE project = {project:String} AND run_id = {run:String}
        WHERE "role" = {p0:UInt8} AND "rank" <> -1 AND isNotNull(if(isNaN("l2"), NULL, "l2"))
        GROUP BY "g1_0", "g1_1"
      ) AS groups_1_0
    ) AS groups_1_1
  ) AS groups_1_2
) AS groups_1
WHERE ifNull("compared_1" > {p1:Float64}, 0)
