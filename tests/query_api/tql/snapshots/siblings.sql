SELECT "run_id" AS c0, lower(hex("launch_id")) AS c1, "rank" AS c2, bitOr(bitShiftLeft(toUInt128("trace_hi"), 64), toUInt128("trace_lo")) AS c3, "span_id" AS c4, "parent_span_id" AS c5, "name" AS c6, "kind" AS c7, "status" AS c8, "start" AS c9, "duration" AS c10, "step" AS c11, "microstep" AS c12, "microbatch" AS c13, "phase" AS c14, "depth" AS c15, "path" AS c16, "thread_id" AS c17, "rollout_id" AS c18, "error_type" AS c19, "flags" AS c20, tuple("attributes", "numbers") AS c21, "metrics" AS c22, toInt64(ifNull("step", -1)) AS k0, if(toInt64(ifNull("step", -1)) = -1, "start", 0) AS k1, "microstep" AS k2, "phase" AS k3, "seq" AS k4, "idx" AS k5, "rank" AS k6, lower(hex("incarnation")) AS k7
FROM spans
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "status" = {p0:UInt8} AND ("trace_hi", "trace_lo", "span_id") IN (
  SELECT "trace_hi", "trace_lo", "span_id"
  FROM (
    SELECT "trace_hi", "trace_lo", "parent_span_id", "span_id"
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "status" = {p0:UInt8} AND "parent_span_id" <> 0
  ) AS own JOIN (
    SELECT "trace_hi" AS beside_0, "trace_lo" AS beside_1, "parent_span_id" AS beside_2, min("span_id") AS min_span, max("span_id") AS max_span
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "name" = {p1:String} AND "parent_span_id" <> 0
    GROUP BY "trace_hi", "trace_lo", "parent_span_id"
  ) AS siblings ON "trace_hi" = "beside_0" AND "trace_lo" = "beside_1" AND "parent_span_id" = "beside_2"
  WHERE "min_span" <> "span_id" OR "max_span" <> "span_id"
)
ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "start", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": 2, "p1": "all_reduce", "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM spans
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE "status" = {p0:UInt8} AND ("trace_hi", "trace_lo", "span_id") IN (
  SELECT "trace_hi", "trace_lo", "span_id"
  FROM (
    SELECT "trace_hi", "trace_lo", "parent_span_id", "span_id"
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "status" = {p0:UInt8} AND "parent_span_id" <> 0
  ) AS own JOIN (
    SELECT "trace_hi" AS beside_0, "trace_lo" AS beside_1, "parent_span_id" AS beside_2, min("span_id") AS min_span, max("span_id") AS max_span
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    WHERE "name" = {p1:String} AND "parent_span_id" <> 0
    GROUP BY "trace_hi", "trace_lo", "parent_span_id"
  ) AS siblings ON "trace_hi" = "beside_0" AND "trace_lo" = "beside_1" AND "parent_span_id" = "beside_2"
  WHERE "min_span" <> "span_id" OR "max_span" <> "span_id"
)
