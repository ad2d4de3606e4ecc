SELECT "run_id" AS c0, lower(hex("launch_id")) AS c1, "rank" AS c2, bitOr(bitShiftLeft(toUInt128("trace_hi"), 64), toUInt128("trace_lo")) AS c3, "span_id" AS c4, "parent_span_id" AS c5, "name" AS c6, "kind" AS c7, "status" AS c8, "start" AS c9, "duration" AS c10, "step" AS c11, "microstep" AS c12, "microbatch" AS c13, "phase" AS c14, "depth" AS c15, "path" AS c16, "thread_id" AS c17, "rollout_id" AS c18, "error_type" AS c19, "flags" AS c20, tuple("attributes", "numbers") AS c21, "metrics" AS c22, toInt64(ifNull("step", -1)) AS k0, if(toInt64(ifNull("step", -1)) = -1, "start", 0) AS k1, "microstep" AS k2, "phase" AS k3, "seq" AS k4, "idx" AS k5, "rank" AS k6, lower(hex("incarnation")) AS k7
FROM spans
LEFT JOIN (
  SELECT "run_id" AS run__k0, toNullable(toFloat64OrNull(JSONExtractRaw("run_config", {p0:String}))) AS run__v0
  FROM (
    SELECT run_id, {project:String} AS project, run_time, if(named = '', NULL, named) AS run_name, run_config, run_tag, arrayMap( one -> if(one.3 = 1 AND one.4 > 60000000000, 4, one.3), arrayFilter(one -> one.1 = latest AND one.2 = has_trainer, processes) ) AS states, multiIf( has(states, 3), toUInt8(3), has(states, 4), 4, has(states, 1), 1, has(states, 2), 2, NULL ) AS run_status
    FROM (
       SELECT heard.run_id AS run_id, min(first_sealed) AS run_time, argMinIf(last_name, (started, at_rank, heard.incarnation), last_name != '') AS named, argMinIf(last_config, (started, at_rank, heard.incarnation), last_config != '') AS run_config, arraySort(groupUniqArrayArray(last_tags)) AS run_tag, max(role = 1) AS has_trainer, argMaxIf(launch, (role = 1, started, launch), role != 0) AS latest, groupArrayIf( (launch, role = 1, last_status, if(isNull(ended), silent, 0)), role != 0 ) AS processes
      FROM (
         SELECT run_id, incarnation, min(sealed) AS first_sealed, toUnixTimestamp64Nano(now64(9)) - max(if(received > 0, received, sealed)) AS silent
        FROM batches
        PREWHERE project = {project:String} AND run_id = {run:String}
        GROUP BY run_id, incarnation 
      ) AS heard
      LEFT JOIN (
         SELECT run_id, incarnation, any(launch_id) AS launch, any(rank) AS at_rank, any(process_role) AS role, argMax(status, (seq, idx)) AS last_status, argMax(name, (seq, idx)) AS last_name, argMax(config, (seq, idx)) AS last_config, argMax(tags, (seq, idx)) AS last_tags, min(start) AS started, max(end) AS ended
        FROM runs
        PREWHERE project = {project:String} AND run_id = {run:String}
        GROUP BY run_id, incarnation 
      ) AS said ON heard.run_id = said.run_id AND heard.incarnation = said.incarnation
      GROUP BY heard.run_id 
    )
  ) AS grouped
) AS run_joined ON "run_id" = "run__k0"
LEFT JOIN (
  SELECT "run_id" AS place__k0, "launch_id" AS place__k1, "rank" AS place__k2, toNullable(if(mapContains("coordinates", {p2:String}), "coordinates"[{p2:String}], NULL)) AS place__v0
  FROM (
    SELECT run_id, launch_id, rank, argMax(mesh, (length(mesh), sealed)) AS coordinates
    FROM batches
    PREWHERE project = {project:String} AND run_id = {run:String}
    GROUP BY run_id, launch_id, rank
  ) AS grouped
) AS place_joined ON "run_id" = "place__k0" AND "launch_id" = "place__k1" AND "rank" = "place__k2"
LEFT JOIN (
  SELECT "run_id" AS tree__k0, "trace_hi" AS tree__k1, "trace_lo" AS tree__k2, "parent_span_id" AS tree__k3, toNullable("children_duration") AS tree__v0
  FROM (
    SELECT run_id, trace_hi, trace_lo, parent_span_id, count() AS children, sum(toInt128(greatest(child_duration, 0))) AS children_duration
    FROM (
       SELECT run_id, trace_hi, trace_lo, parent_span_id, span_id, argMin(duration, (start, status = 3, incarnation, seq, idx)) AS child_duration
      FROM spans
      PREWHERE project = {project:String} AND run_id = {run:String}
      WHERE parent_span_id != 0
      GROUP BY run_id, trace_hi, trace_lo, parent_span_id, span_id 
    )
    GROUP BY run_id, trace_hi, trace_lo, parent_span_id
  ) AS grouped
) AS tree_joined ON "run_id" = "tree__k0" AND "trace_hi" = "tree__k1" AND "trace_lo" = "tree__k2" AND "span_id" = "tree__k3"
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE ifNull("run__v0" > {p1:Float64}, 0) AND ifNull("place__v0" = {p3:UInt32}, 0) AND toInt64(greatest(toInt128("duration") - ifNull("tree__v0", 0), toInt128(0))) > {p4:Int64}
ORDER BY toInt64(ifNull("step", -1)) ASC, if(toInt64(ifNull("step", -1)) = -1, "start", 0) ASC, "microstep" ASC, "phase" ASC, "seq" ASC, "idx" ASC, "rank" ASC, lower(hex("incarnation")) ASC
LIMIT {limit:UInt64}

-- {"p0": "lr", "project": "default", "run": "night", "p1": 0.1, "p2": "dp", "p3": 0, "p4": 1000000, "limit": 100}

SELECT count() AS total
FROM spans
LEFT JOIN (
  SELECT "run_id" AS run__k0, toNullable(toFloat64OrNull(JSONExtractRaw("run_config", {p0:String}))) AS run__v0
  FROM (
    SELECT run_id, {project:String} AS project, run_time, if(named = '', NULL, named) AS run_name, run_config, run_tag, arrayMap( one -> if(one.3 = 1 AND one.4 > 60000000000, 4, one.3), arrayFilter(one -> one.1 = latest AND one.2 = has_trainer, processes) ) AS states, multiIf( has(states, 3), toUInt8(3), has(states, 4), 4, has(states, 1), 1, has(states, 2), 2, NULL ) AS run_status
    FROM (
       SELECT heard.run_id AS run_id, min(first_sealed) AS run_time, argMinIf(last_name, (started, at_rank, heard.incarnation), last_name != '') AS named, argMinIf(last_config, (started, at_rank, heard.incarnation), last_config != '') AS run_config, arraySort(groupUniqArrayArray(last_tags)) AS run_tag, max(role = 1) AS has_trainer, argMaxIf(launch, (role = 1, started, launch), role != 0) AS latest, groupArrayIf( (launch, role = 1, last_status, if(isNull(ended), silent, 0)), role != 0 ) AS processes
      FROM (
         SELECT run_id, incarnation, min(sealed) AS first_sealed, toUnixTimestamp64Nano(now64(9)) - max(if(received > 0, received, sealed)) AS silent
        FROM batches
        PREWHERE project = {project:String} AND run_id = {run:String}
        GROUP BY run_id, incarnation 
      ) AS heard
      LEFT JOIN (
         SELECT run_id, incarnation, any(launch_id) AS launch, any(rank) AS at_rank, any(process_role) AS role, argMax(status, (seq, idx)) AS last_status, argMax(name, (seq, idx)) AS last_name, argMax(config, (seq, idx)) AS last_config, argMax(tags, (seq, idx)) AS last_tags, min(start) AS started, max(end) AS ended
        FROM runs
        PREWHERE project = {project:String} AND run_id = {run:String}
        GROUP BY run_id, incarnation 
      ) AS said ON heard.run_id = said.run_id AND heard.incarnation = said.incarnation
      GROUP BY heard.run_id 
    )
  ) AS grouped
) AS run_joined ON "run_id" = "run__k0"
LEFT JOIN (
  SELECT "run_id" AS place__k0, "launch_id" AS place__k1, "rank" AS place__k2, toNullable(if(mapContains("coordinates", {p2:String}), "coordinates"[{p2:String}], NULL)) AS place__v0
  FROM (
    SELECT run_id, launch_id, rank, argMax(mesh, (length(mesh), sealed)) AS coordinates
    FROM batches
    PREWHERE project = {project:String} AND run_id = {run:String}
    GROUP BY run_id, launch_id, rank
  ) AS grouped
) AS place_joined ON "run_id" = "place__k0" AND "launch_id" = "place__k1" AND "rank" = "place__k2"
LEFT JOIN (
  SELECT "run_id" AS tree__k0, "trace_hi" AS tree__k1, "trace_lo" AS tree__k2, "parent_span_id" AS tree__k3, toNullable("children_duration") AS tree__v0
  FROM (
    SELECT run_id, trace_hi, trace_lo, parent_span_id, count() AS children, sum(toInt128(greatest(child_duration, 0))) AS children_duration
    FROM (
       SELECT run_id, trace_hi, trace_lo, parent_span_id, span_id, argMin(duration, (start, status = 3, incarnation, seq, idx)) AS child_duration
      FROM spans
      PREWHERE project = {project:String} AND run_id = {run:String}
      WHERE parent_span_id != 0
      GROUP BY run_id, trace_hi, trace_lo, parent_span_id, span_id 
    )
    GROUP BY run_id, trace_hi, trace_lo, parent_span_id
  ) AS grouped
) AS tree_joined ON "run_id" = "tree__k0" AND "trace_hi" = "tree__k1" AND "trace_lo" = "tree__k2" AND "span_id" = "tree__k3"
PREWHERE project = {project:String} AND run_id = {run:String}
WHERE ifNull("run__v0" > {p1:Float64}, 0) AND ifNull("place__v0" = {p3:UInt32}, 0) AND toInt64(greatest(toInt128("duration") - ifNull("tree__v0", 0), toInt128(0))) > {p4:Int64}
