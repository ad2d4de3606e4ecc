SELECT "run_id" AS c0, lower(hex("launch_id")) AS c1, "rank" AS c2, bitOr(bitShiftLeft(toUInt128("trace_hi"), 64), toUInt128("trace_lo")) AS c3, "span_id" AS c4, "parent_span_id" AS c5, "name" AS c6, "kind" AS c7, "status" AS c8, "start" AS c9, "duration" AS c10, "step" AS c11, "microstep" AS c12, "microbatch" AS c13, "phase" AS c14, "depth" AS c15, "path" AS c16, "thread_id" AS c17, "rollout_id" AS c18, "error_type" AS c19, "flags" AS c20, tuple("attributes", "numbers") AS c21, "metrics" AS c22, toInt64(ifNull("step", -1)) AS k0, if(toInt64(ifNull("step", -1)) = -1, "start", 0) AS k1, "microstep" AS k2, "phase" AS k3, "seq" AS k4, "idx" AS k5, "rank" AS k6, lower(hex("incarnation")) AS k7
FROM spans
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "status" = {p0:UInt8} AND ("trace_hi", "trace_lo", "span_id") IN (
  WITH RECURSIVE walk_0 AS (
    SELECT "trace_hi" AS up_0, "trace_lo" AS up_1, "parent_span_id" AS up_2, "span_id" AS origin, 0 AS level
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "status" = {p0:UInt8} AND "parent_span_id" <> 0 AND ("trace_hi", "trace_lo") IN (
      SELECT "trace_hi", "trace_lo"
      FROM spans
      PREWHERE project = {project:String} AND run_id = {run:String}
      WHERE "kind" = {p1:UInt8}
    )
    UNION ALL SELECT DISTINCT "edge_0", "edge_1", "edge_parent", "origin", "level" + 1
    FROM (
      SELECT "trace_hi" AS edge_0, "trace_lo" AS edge_1, "span_id" AS edge_2, "parent_span_id" AS edge_parent
      FROM spans
      PREWHERE project = {project:String} AND run_id = {run:String}
      WHERE "span_id" IN (
        SELECT "up_2"
        FROM walk_0
      )
    ) AS edges JOIN walk_0 ON "edge_0" = "up_0" AND "edge_1" = "up_1" AND "edge_2" = "up_2"
    WHERE "level" < 128
  ) SELECT "up_0", "up_1", "origin"
  FROM walk_0
  WHERE "level" < 128 AND ("up_0", "up_1", "up_2") IN (
    SELECT "trace_hi", "trace_lo", "span_id"
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "kind" = {p1:UInt8}
  )
)
ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "start", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": 2, "p1": 1, "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM spans
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "status" = {p0:UInt8} AND ("trace_hi", "trace_lo", "span_id") IN (
  WITH RECURSIVE walk_0 AS (
    SELECT "trace_hi" AS up_0, "trace_lo" AS up_1, "parent_span_id" AS up_2, "span_id" AS origin, 0 AS level
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "status" = {p0:UInt8} AND "parent_span_id" <> 0 AND ("trace_hi", "trace_lo") IN (
      SELECT "trace_hi", "trace_lo"
      FROM spans
      PREWHERE project = {project:String} AND run_id = {run:String}
      WHERE "kind" = {p1:UInt8}
    )
    UNION ALL SELECT DISTINCT "edge_0", "edge_1", "edge_parent", "origin", "level" + 1
    FROM (
      SELECT "trace_hi" AS edge_0, "trace_lo" AS edge_1, "span_id" AS edge_2, "parent_span_id" AS edge_parent
      FROM spans
      PREWHERE project = {project:String} AND run_id = {run:String}
      WHERE "span_id" IN (
        SELECT "up_2"
        FROM walk_0
      )
    ) AS edges JOIN walk_0 ON "edge_0" = "up_0" AND "edge_1" = "up_1" AND "edge_2" = "up_2"
    WHERE "level" < 128
  ) SELECT "up_0", "up_1", "origin"
  FROM walk_0
  WHERE "level" < 128 AND ("up_0", "up_1", "up_2") IN (
    SELECT "trace_hi", "trace_lo", "span_id"
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "kind" = {p1:UInt8}
  )
)
