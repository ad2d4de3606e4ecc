SELECT
  "c0" AS c0,
  "c1" AS c1,
  "c2" AS c2,
  "c2" AS k0,
  multiIf(NOT (
    isNotNull("c0")
  ), 2, 0) AS k1,
  ifNull("c0", 0) AS k2,
  multiIf(NOT (
    isNotNull("c1")
  ), 2, 0) AS k3,
  ifNull("c1", '') AS k4
FROM (
  SELECT
    nullIf("rank", -1) AS c0,
    if(
      mapContains("attributes", {p0:String}),
      "attributes"[{p0:String}],
      if(mapContains("numbers", {p0:String}), toString("numbers"[{p0:String}]), NULL)
    ) AS c1,
    count() AS c2
  FROM spans
  WHERE
    project = {project:String}
    AND run_id = {run:String}
    AND (
      "kind" = {p1:UInt8}
      AND (
        "status" <> 0 AND NOT (
          "status" = {p2:UInt8}
        )
      )
    )
  GROUP BY
    c0,
    c1
) AS groups
ORDER BY
  "c2" DESC,
  multiIf(NOT (
    isNotNull("c0")
  ), 2, 0) ASC,
  ifNull("c0", 0) ASC,
  multiIf(NOT (
    isNotNull("c1")
  ), 2, 0) ASC,
  ifNull("c1", '') ASC
LIMIT {limit:UInt64}

-- {"p0": "device", "p1": 6, "p2": 2, "project": "default", "run": "night", "limit": 100}

SELECT
  count() AS total
FROM (
  SELECT
    nullIf("rank", -1) AS c0,
    if(
      mapContains("attributes", {p0:String}),
      "attributes"[{p0:String}],
      if(mapContains("numbers", {p0:String}), toString("numbers"[{p0:String}]), NULL)
    ) AS c1,
    count() AS c2
  FROM spans
  WHERE
    project = {project:String}
    AND run_id = {run:String}
    AND (
      "kind" = {p1:UInt8}
      AND (
        "status" <> 0 AND NOT (
          "status" = {p2:UInt8}
        )
      )
    )
  GROUP BY
    c0,
    c1
) AS groups
