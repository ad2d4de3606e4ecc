SELECT nullIf("g1_0", -1) AS c0, nullIf("g1_1", '') AS c1, "compared_1" AS c2, multiIf(NOT ("g1_0" <> -1), 2, 0) AS k0, "g1_0" AS k1, multiIf(NOT ("g1_1" <> ''), 2, 0) AS k2, "g1_1" AS k3
FROM (
  SELECT *, if(empty("values_1"), NULL, if(isInfinite(if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0)) AND arrayCount("one" -> isInfinite("one"), "floats_1") = 0 OR isNaN(if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0)), NULL, if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0))) AS compared_1
  FROM (
    SELECT *, multiIf("middle_1_low" = "middle_1_high", "middle_1_low", isFinite(("middle_1_high" - "middle_1_low")), "middle_1_low" + ("middle_1_high" - "middle_1_low") / 2, "middle_1_low" / 2 + "middle_1_high" / 2) AS middle_1
    FROM (
      SELECT *, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 1, 2)) AS middle_1_low, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 2, 2)) AS middle_1_high
      FROM (
        SELECT *, arraySort("floats_1") AS middle_1_of
        FROM (
          SELECT *, "values_1" AS floats_1
          FROM (
            SELECT *, tupleElement("kept_1", 1) AS ranks_1, tupleElement("kept_1", 2) AS values_1
            FROM (
              SELECT *, arrayFilter(("one", "next") -> tupleElement("one", 1) <> "next", "ordered_1", arraySlice(arrayPushBack(tupleElement("ordered_1", 1), -2), 2)) AS kept_1
              FROM (
                SELECT *, arraySort("a1_0_0") AS ordered_1
                FROM (
                  SELECT toInt64(ifNull("step", -1)) AS g1_0, "name" AS g1_1, groupArray(tuple(assumeNotNull("rank"), assumeNotNull(if(isNaN("l2"), NULL, "l2")))) AS a1_0_0
                  FROM tensor_stats
                  PREWHERE project = {project:String} AND run_id = {run:String}
                  WHERE "role" = {p0:UInt8} AND "rank" <> -1 AND isNotNull(if(isNaN("l2"), NULL, "l2"))
                  GROUP BY "g1_0", "g1_1"
                ) AS groups_1_0
              ) AS groups_1_1
            ) AS groups_1_2
          ) AS groups_1_3
        ) AS groups_1_4
      ) AS groups_1_5
    ) AS groups_1_6
  ) AS groups_1_7
) AS groups_1
WHERE ifNull("compared_1" > {p1:Float64}, 0)
ORDER BY multiIf(NOT ("g1_0" <> -1), 2, 0) ASC, "g1_0" ASC, multiIf(NOT ("g1_1" <> ''), 2, 0) ASC, "g1_1" ASC
LIMIT {limit:UInt64}

-- {"p0": 2, "project": "default", "run": "night", "p1": 0.01, "limit": 1}

SELECT count() AS total
FROM (
  SELECT *, if(empty("values_1"), NULL, if(isInfinite(if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0)) AND arrayCount("one" -> isInfinite("one"), "floats_1") = 0 OR isNaN(if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0)), NULL, if(arrayMax("values_1") = arrayMin("values_1"), toFloat64(0), arrayMax("values_1") - arrayMin("values_1")) / nullIf(abs("middle_1"), 0))) AS compared_1
  FROM (
    SELECT *, multiIf("middle_1_low" = "middle_1_high", "middle_1_low", isFinite(("middle_1_high" - "middle_1_low")), "middle_1_low" + ("middle_1_high" - "middle_1_low") / 2, "middle_1_low" / 2 + "middle_1_high" / 2) AS middle_1
    FROM (
      SELECT *, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 1, 2)) AS middle_1_low, arrayElement("middle_1_of", intDiv(length("middle_1_of") + 2, 2)) AS middle_1_high
      FROM (
        SELECT *, arraySort("floats_1") AS middle_1_of
        FROM (
          SELECT *, "values_1" AS floats_1
          FROM (
            SELECT *, tupleElement("kept_1", 1) AS ranks_1, tupleElement("kept_1", 2) AS values_1
            FROM (
              SELECT *, arrayFilter(("one", "next") -> tupleElement("one", 1) <> "next", "ordered_1", arraySlice(arrayPushBack(tupleElement("ordered_1", 1), -2), 2)) AS kept_1
              FROM (
                SELECT *, arraySort("a1_0_0") AS ordered_1
                FROM (
                  SELECT toInt64(ifNull("step", -1)) AS g1_0, "name" AS g1_1, groupArray(tuple(assumeNotNull("rank"), assumeNotNull(if(isNaN("l2"), NULL, "l2")))) AS a1_0_0
                  FROM tensor_stats
                  PREWHERE project = {project:String} AND run_id = {run:String}
                  WHERE "role" = {p0:UInt8} AND "rank" <> -1 AND isNotNull(if(isNaN("l2"), NULL, "l2"))
                  GROUP BY "g1_0", "g1_1"
                ) AS groups_1_0
              ) AS groups_1_1
            ) AS groups_1_2
          ) AS groups_1_3
        ) AS groups_1_4
      ) AS groups_1_5
    ) AS groups_1_6
  ) AS groups_1_7
) AS groups_1
WHERE ifNull("compared_1" > {p1:Float64}, 0)
