SELECT "run_id" AS c0, "trace_step" AS c1, "trace_time" AS c2, bitOr(bitShiftLeft(toUInt128("trace_hi"), 64), toUInt128("trace_lo")) AS c3, "trace_root_name" AS c4, "trace_duration" AS c5, "trace_span_count" AS c6, "trace_error_count" AS c7, "trace_rank_count" AS c8, "trace_status" AS c9, "trace_time" AS k0, "run_id" AS k1, "trace_hi" AS k2, "trace_lo" AS k3
FROM (
  SELECT *, {project:String} AS project
  FROM (
     SELECT run_id, trace_hi, trace_lo, argMinIf(name, (start, span_id), parent_span_id = 0) AS named, if(named = '', NULL, named) AS trace_root_name, max(multiIf(duration < 0, start, start + duration < start, toInt64(9223372036854775807), start + duration)) - min(start) AS trace_duration, uniqExact(span_id) AS trace_span_count, uniqExactIf(span_id, status = 2) AS trace_error_count, uniqExactIf(rank, rank >= 0) AS trace_rank_count, multiIf( max(status = 2), toUInt8(2), max(status = 4), 4, min(status = 3), 3, 1 ) AS trace_status, argMinIf(step, (start, span_id), isNotNull(step)) AS trace_step, min(start) AS trace_time
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    GROUP BY run_id, trace_hi, trace_lo 
  )
) AS traces_found
WHERE ("trace_hi", "trace_lo") IN (
  SELECT "trace_hi", "trace_lo"
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "kind" = {p0:UInt8}
) AND NOT (("trace_hi", "trace_lo") IN (
  SELECT "trace_hi", "trace_lo"
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "status" = {p1:UInt8}
))
ORDER BY "trace_time" ASC, "run_id" ASC, "trace_hi" ASC, "trace_lo" ASC
LIMIT {limit:UInt64}

-- {"p0": 1, "project": "default", "run": "night", "p1": 2, "limit": 100}

SELECT count() AS total
FROM (
  SELECT *, {project:String} AS project
  FROM (
     SELECT run_id, trace_hi, trace_lo, argMinIf(name, (start, span_id), parent_span_id = 0) AS named, if(named = '', NULL, named) AS trace_root_name, max(multiIf(duration < 0, start, start + duration < start, toInt64(9223372036854775807), start + duration)) - min(start) AS trace_duration, uniqExact(span_id) AS trace_span_count, uniqExactIf(span_id, status = 2) AS trace_error_count, uniqExactIf(rank, rank >= 0) AS trace_rank_count, multiIf( max(status = 2), toUInt8(2), max(status = 4), 4, min(status = 3), 3, 1 ) AS trace_status, argMinIf(step, (start, span_id), isNotNull(step)) AS trace_step, min(start) AS trace_time
    FROM spans
    PREWHERE project = {project:String} AND run_id = {run:String}
    GROUP BY run_id, trace_hi, trace_lo 
  )
) AS traces_found
WHERE ("trace_hi", "trace_lo") IN (
  SELECT "trace_hi", "trace_lo"
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "kind" = {p0:UInt8}
) AND NOT (("trace_hi", "trace_lo") IN (
  SELECT "trace_hi", "trace_lo"
  FROM spans
  PREWHERE project = {project:String} AND run_id = {run:String}
  WHERE "status" = {p1:UInt8}
))
