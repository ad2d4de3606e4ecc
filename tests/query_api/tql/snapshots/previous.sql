SELECT "run_id" AS c0, lower(hex("launch_id")) AS c1, "rank" AS c2, "name" AS c3, "module" AS c4, "layer_index" AS c5, "layer_type" AS c6, "role" AS c7, "dtype" AS c8, "placement" AS c9, "numel_local" AS c10, "numel_global" AS c11, "step" AS c12, "microstep" AS c13, "microbatch" AS c14, "phase" AS c15, "time" AS c16, "loss_scale" AS c17, "nonfinite_count" AS c18, "nan_count" AS c19, "posinf_count" AS c20, "neginf_count" AS c21, "inf_count" AS c22, "zero_count" AS c23, "zero_frac" AS c24, "min" AS c25, "max" AS c26, "absmax" AS c27, "absmin_nonzero" AS c28, "mean" AS c29, "std" AS c30, "l1" AS c31, "l2" AS c32, "rms" AS c33, "subnormal_count" AS c34, "saturated_count" AS c35, "update_ratio" AS c36, "grad_to_weight" AS c37, "fingerprint" AS c38, "call" AS c39, "shape" AS c40, "log2_hist" AS c41, "flags" AS c42, toInt64(ifNull("step", -1)) AS k0, if(toInt64(ifNull("step", -1)) = -1, "time", 0) AS k1, "microstep" AS k2, "phase" AS k3, "seq" AS k4, "idx" AS k5, "rank" AS k6, lower(hex("incarnation")) AS k7
FROM (
  SELECT *, anyLast("computed__0") OVER (PARTITION BY "incarnation", "name", "role", "microstep", "microbatch", "phase", "call", bitAnd("flags", 8) ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "time", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS computed__1
  FROM (
    SELECT *, if(isNaN("l2"), NULL, "l2") AS computed__0
    FROM tensor_stats
    PREWHERE project = {project:String} AND run_id = {run:String}
  ) AS rows_0
) AS rows_1
WHERE ifNull((isNotNull("computed__1") AND NOT (isInfinite(toFloat64({p0:Int64}) * "computed__1") AND isFinite("computed__1"))) AND "l2" > toFloat64({p0:Int64}) * "computed__1", 0)
ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "time", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": 3, "project": "default", "run": "night", "limit": 100}

SELECT count() AS total
FROM (
  SELECT *, anyLast("computed__0") OVER (PARTITION BY "incarnation", "name", "role", "microstep", "microbatch", "phase", "call", bitAnd("flags", 8) ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "time", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS computed__1
  FROM (
    SELECT *, if(isNaN("l2"), NULL, "l2") AS computed__0
    FROM tensor_stats
    PREWHERE project = {project:String} AND run_id = {run:String}
  ) AS rows_0
) AS rows_1
WHERE ifNull((isNotNull("computed__1") AND NOT (isInfinite(toFloat64({p0:Int64}) * "computed__1") AND isFinite("computed__1"))) AND "l2" > toFloat64({p0:Int64}) * "computed__1", 0)
