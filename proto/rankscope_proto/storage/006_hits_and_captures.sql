-- Schema version 4. Stores have applied this text: it never changes again.
--
-- Breakpoints that fired, kept tensor values; which call of its module an output is of; which parameters are trained.
ALTER TABLE tensor_stats
    ADD COLUMN IF NOT EXISTS `call` UInt32 AFTER `fingerprint`;

ALTER TABLE modules
    ADD COLUMN IF NOT EXISTS `parameter_trainable` Array(UInt32) AFTER `time`;

ALTER TABLE batches
    ADD COLUMN IF NOT EXISTS `emitted_hits` UInt64 AFTER `emitted_open_spans`,
    ADD COLUMN IF NOT EXISTS `emitted_captures` UInt64 AFTER `emitted_hits`,
    ADD COLUMN IF NOT EXISTS `rows_hits` UInt32 AFTER `rows_open_spans`,
    ADD COLUMN IF NOT EXISTS `rows_captures` UInt32 AFTER `rows_hits`;

CREATE TABLE IF NOT EXISTS hits
(
    `project` LowCardinality(String),
    `run_id` LowCardinality(String),
    `launch_id` FixedString(16),
    `process_role` UInt8,
    `rank` Int32,
    `local_rank` Int32,
    `world_size` UInt32,
    `worker_index` Int32,
    `node` LowCardinality(String),
    `incarnation` FixedString(16),
    `seq` UInt64,
    `idx` UInt32,
    `week` Date,
    `time` Int64,
    `breakpoint` LowCardinality(String),
    `predicate` LowCardinality(String),
    `name` LowCardinality(String),
    `module` LowCardinality(String),
    `role` UInt8,
    `step` Nullable(Int64),
    `microstep` UInt32,
    `phase` UInt8,
    `mode` LowCardinality(String),
    `action` LowCardinality(String),
    `count` UInt64,
    `seen` Map(LowCardinality(String), Float64),
    `seen_texts` Map(LowCardinality(String), String)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, ifNull(step, -1), time)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS captures
(
    `project` LowCardinality(String),
    `run_id` LowCardinality(String),
    `launch_id` FixedString(16),
    `process_role` UInt8,
    `rank` Int32,
    `local_rank` Int32,
    `world_size` UInt32,
    `worker_index` Int32,
    `node` LowCardinality(String),
    `incarnation` FixedString(16),
    `seq` UInt64,
    `idx` UInt32,
    `week` Date,
    `name` LowCardinality(String),
    `module` LowCardinality(String),
    `role` UInt8,
    `step` Nullable(Int64),
    `microstep` UInt32,
    `phase` UInt8,
    `time` Int64,
    `dtype` LowCardinality(String),
    `shape` Array(UInt64),
    `full_shape` Array(UInt64),
    `part` LowCardinality(String),
    `part_of` String,
    `digest_hi` UInt64,
    `digest_lo` UInt64,
    `bytes` UInt64,
    `chunk` UInt32,
    `chunks` UInt32,
    `data` String CODEC(ZSTD(1)),
    `cause` LowCardinality(String)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, digest_hi, digest_lo, chunk)
SETTINGS non_replicated_deduplication_window = 10000;

ALTER TABLE landing
    ADD COLUMN IF NOT EXISTS `header_emitted_hits` UInt64 AFTER `header_emitted_open_spans`,
    ADD COLUMN IF NOT EXISTS `header_emitted_captures` UInt64 AFTER `header_emitted_hits`,
    ADD COLUMN IF NOT EXISTS `tensor_stats_call` Array(UInt32) AFTER `tensor_stats_present`,
    ADD COLUMN IF NOT EXISTS `modules_parameter_trainable` Array(UInt32) AFTER `modules_present`,
    ADD COLUMN IF NOT EXISTS `hits_time` Array(Int64) AFTER `open_spans_stack_kind`,
    ADD COLUMN IF NOT EXISTS `hits_breakpoint` Array(UInt32) AFTER `hits_time`,
    ADD COLUMN IF NOT EXISTS `hits_predicate` Array(UInt32) AFTER `hits_breakpoint`,
    ADD COLUMN IF NOT EXISTS `hits_name` Array(UInt32) AFTER `hits_predicate`,
    ADD COLUMN IF NOT EXISTS `hits_module` Array(UInt32) AFTER `hits_name`,
    ADD COLUMN IF NOT EXISTS `hits_role` Array(UInt32) AFTER `hits_module`,
    ADD COLUMN IF NOT EXISTS `hits_step` Array(Int64) AFTER `hits_role`,
    ADD COLUMN IF NOT EXISTS `hits_microstep` Array(UInt32) AFTER `hits_step`,
    ADD COLUMN IF NOT EXISTS `hits_phase` Array(UInt32) AFTER `hits_microstep`,
    ADD COLUMN IF NOT EXISTS `hits_mode` Array(UInt32) AFTER `hits_phase`,
    ADD COLUMN IF NOT EXISTS `hits_action` Array(UInt32) AFTER `hits_mode`,
    ADD COLUMN IF NOT EXISTS `hits_count` Array(UInt64) AFTER `hits_action`,
    ADD COLUMN IF NOT EXISTS `hits_seen_names` Array(UInt32) AFTER `hits_count`,
    ADD COLUMN IF NOT EXISTS `hits_seen_values` Array(Float64) AFTER `hits_seen_names`,
    ADD COLUMN IF NOT EXISTS `hits_seen_n` Array(UInt32) AFTER `hits_seen_values`,
    ADD COLUMN IF NOT EXISTS `hits_text_names` Array(UInt32) AFTER `hits_seen_n`,
    ADD COLUMN IF NOT EXISTS `hits_text_values` Array(UInt32) AFTER `hits_text_names`,
    ADD COLUMN IF NOT EXISTS `hits_text_n` Array(UInt32) AFTER `hits_text_values`,
    ADD COLUMN IF NOT EXISTS `hits_present` Array(UInt64) AFTER `hits_text_n`,
    ADD COLUMN IF NOT EXISTS `captures_name` Array(UInt32) AFTER `hits_present`,
    ADD COLUMN IF NOT EXISTS `captures_module` Array(UInt32) AFTER `captures_name`,
    ADD COLUMN IF NOT EXISTS `captures_role` Array(UInt32) AFTER `captures_module`,
    ADD COLUMN IF NOT EXISTS `captures_step` Array(Int64) AFTER `captures_role`,
    ADD COLUMN IF NOT EXISTS `captures_microstep` Array(UInt32) AFTER `captures_step`,
    ADD COLUMN IF NOT EXISTS `captures_phase` Array(UInt32) AFTER `captures_microstep`,
    ADD COLUMN IF NOT EXISTS `captures_time` Array(Int64) AFTER `captures_phase`,
    ADD COLUMN IF NOT EXISTS `captures_dtype` Array(UInt32) AFTER `captures_time`,
    ADD COLUMN IF NOT EXISTS `captures_shape` Array(UInt64) AFTER `captures_dtype`,
    ADD COLUMN IF NOT EXISTS `captures_shape_n` Array(UInt32) AFTER `captures_shape`,
    ADD COLUMN IF NOT EXISTS `captures_full_shape` Array(UInt64) AFTER `captures_shape_n`,
    ADD COLUMN IF NOT EXISTS `captures_full_shape_n` Array(UInt32) AFTER `captures_full_shape`,
    ADD COLUMN IF NOT EXISTS `captures_part` Array(UInt32) AFTER `captures_full_shape_n`,
    ADD COLUMN IF NOT EXISTS `captures_part_of` Array(UInt32) AFTER `captures_part`,
    ADD COLUMN IF NOT EXISTS `captures_digest_hi` Array(UInt64) AFTER `captures_part_of`,
    ADD COLUMN IF NOT EXISTS `captures_digest_lo` Array(UInt64) AFTER `captures_digest_hi`,
    ADD COLUMN IF NOT EXISTS `captures_bytes` Array(UInt64) AFTER `captures_digest_lo`,
    ADD COLUMN IF NOT EXISTS `captures_chunk` Array(UInt32) AFTER `captures_bytes`,
    ADD COLUMN IF NOT EXISTS `captures_chunks` Array(UInt32) AFTER `captures_chunk`,
    ADD COLUMN IF NOT EXISTS `captures_data` Array(String) AFTER `captures_chunks`,
    ADD COLUMN IF NOT EXISTS `captures_cause` Array(UInt32) AFTER `captures_data`,
    ADD COLUMN IF NOT EXISTS `captures_present` Array(UInt64) AFTER `captures_cause`;

ALTER TABLE landing_probe
    ADD COLUMN IF NOT EXISTS `header_emitted_hits` UInt64 AFTER `header_emitted_open_spans`,
    ADD COLUMN IF NOT EXISTS `header_emitted_captures` UInt64 AFTER `header_emitted_hits`,
    ADD COLUMN IF NOT EXISTS `tensor_stats_call` Array(UInt32) AFTER `tensor_stats_present`,
    ADD COLUMN IF NOT EXISTS `modules_parameter_trainable` Array(UInt32) AFTER `modules_present`,
    ADD COLUMN IF NOT EXISTS `hits_time` Array(Int64) AFTER `open_spans_stack_kind`,
    ADD COLUMN IF NOT EXISTS `hits_breakpoint` Array(UInt32) AFTER `hits_time`,
    ADD COLUMN IF NOT EXISTS `hits_predicate` Array(UInt32) AFTER `hits_breakpoint`,
    ADD COLUMN IF NOT EXISTS `hits_name` Array(UInt32) AFTER `hits_predicate`,
    ADD COLUMN IF NOT EXISTS `hits_module` Array(UInt32) AFTER `hits_name`,
    ADD COLUMN IF NOT EXISTS `hits_role` Array(UInt32) AFTER `hits_module`,
    ADD COLUMN IF NOT EXISTS `hits_step` Array(Int64) AFTER `hits_role`,
    ADD COLUMN IF NOT EXISTS `hits_microstep` Array(UInt32) AFTER `hits_step`,
    ADD COLUMN IF NOT EXISTS `hits_phase` Array(UInt32) AFTER `hits_microstep`,
    ADD COLUMN IF NOT EXISTS `hits_mode` Array(UInt32) AFTER `hits_phase`,
    ADD COLUMN IF NOT EXISTS `hits_action` Array(UInt32) AFTER `hits_mode`,
    ADD COLUMN IF NOT EXISTS `hits_count` Array(UInt64) AFTER `hits_action`,
    ADD COLUMN IF NOT EXISTS `hits_seen_names` Array(UInt32) AFTER `hits_count`,
    ADD COLUMN IF NOT EXISTS `hits_seen_values` Array(Float64) AFTER `hits_seen_names`,
    ADD COLUMN IF NOT EXISTS `hits_seen_n` Array(UInt32) AFTER `hits_seen_values`,
    ADD COLUMN IF NOT EXISTS `hits_text_names` Array(UInt32) AFTER `hits_seen_n`,
    ADD COLUMN IF NOT EXISTS `hits_text_values` Array(UInt32) AFTER `hits_text_names`,
    ADD COLUMN IF NOT EXISTS `hits_text_n` Array(UInt32) AFTER `hits_text_values`,
    ADD COLUMN IF NOT EXISTS `hits_present` Array(UInt64) AFTER `hits_text_n`,
    ADD COLUMN IF NOT EXISTS `captures_name` Array(UInt32) AFTER `hits_present`,
    ADD COLUMN IF NOT EXISTS `captures_module` Array(UInt32) AFTER `captures_name`,
    ADD COLUMN IF NOT EXISTS `captures_role` Array(UInt32) AFTER `captures_module`,
    ADD COLUMN IF NOT EXISTS `captures_step` Array(Int64) AFTER `captures_role`,
    ADD COLUMN IF NOT EXISTS `captures_microstep` Array(UInt32) AFTER `captures_step`,
    ADD COLUMN IF NOT EXISTS `captures_phase` Array(UInt32) AFTER `captures_microstep`,
    ADD COLUMN IF NOT EXISTS `captures_time` Array(Int64) AFTER `captures_phase`,
    ADD COLUMN IF NOT EXISTS `captures_dtype` Array(UInt32) AFTER `captures_time`,
    ADD COLUMN IF NOT EXISTS `captures_shape` Array(UInt64) AFTER `captures_dtype`,
    ADD COLUMN IF NOT EXISTS `captures_shape_n` Array(UInt32) AFTER `captures_shape`,
    ADD COLUMN IF NOT EXISTS `captures_full_shape` Array(UInt64) AFTER `captures_shape_n`,
    ADD COLUMN IF NOT EXISTS `captures_full_shape_n` Array(UInt32) AFTER `captures_full_shape`,
    ADD COLUMN IF NOT EXISTS `captures_part` Array(UInt32) AFTER `captures_full_shape_n`,
    ADD COLUMN IF NOT EXISTS `captures_part_of` Array(UInt32) AFTER `captures_part`,
    ADD COLUMN IF NOT EXISTS `captures_digest_hi` Array(UInt64) AFTER `captures_part_of`,
    ADD COLUMN IF NOT EXISTS `captures_digest_lo` Array(UInt64) AFTER `captures_digest_hi`,
    ADD COLUMN IF NOT EXISTS `captures_bytes` Array(UInt64) AFTER `captures_digest_lo`,
    ADD COLUMN IF NOT EXISTS `captures_chunk` Array(UInt32) AFTER `captures_bytes`,
    ADD COLUMN IF NOT EXISTS `captures_chunks` Array(UInt32) AFTER `captures_chunk`,
    ADD COLUMN IF NOT EXISTS `captures_data` Array(String) AFTER `captures_chunks`,
    ADD COLUMN IF NOT EXISTS `captures_cause` Array(UInt32) AFTER `captures_data`,
    ADD COLUMN IF NOT EXISTS `captures_present` Array(UInt64) AFTER `captures_cause`;

ALTER TABLE tensor_stats_from_landing MODIFY QUERY
SELECT
    header_project AS project,
    header_run_id AS run_id,
    header_launch_id AS launch_id,
    header_rank AS rank,
    header_local_rank AS local_rank,
    header_world_size AS world_size,
    header_worker_index AS worker_index,
    header_node AS node,
    header_incarnation AS incarnation,
    header_seq AS seq,
    toUInt8(header_process_role) AS process_role,
    toUInt32(row_number - 1) AS idx,
    toDate(header_week) AS week,
    strings[c_name + 1] AS `name`,
    strings[c_module + 1] AS `module`,
    if(bitTest(c_present, 0), c_layer_index, NULL) AS `layer_index`,
    strings[c_layer_type + 1] AS `layer_type`,
    toUInt8(c_role) AS `role`,
    strings[c_dtype + 1] AS `dtype`,
    c_shape AS `shape`,
    strings[c_placement + 1] AS `placement`,
    c_numel_local AS `numel_local`,
    c_numel_global AS `numel_global`,
    if(bitTest(c_present, 1), c_step, NULL) AS `step`,
    c_microstep AS `microstep`,
    if(bitTest(c_present, 2), c_microbatch, NULL) AS `microbatch`,
    toUInt8(c_phase) AS `phase`,
    c_time AS `time`,
    c_flags AS `flags`,
    if(bitTest(c_present, 3), c_loss_scale, NULL) AS `loss_scale`,
    if(bitTest(c_present, 4), c_nonfinite_count, NULL) AS `nonfinite_count`,
    if(bitTest(c_present, 5), c_nan_count, NULL) AS `nan_count`,
    if(bitTest(c_present, 6), c_posinf_count, NULL) AS `posinf_count`,
    if(bitTest(c_present, 7), c_neginf_count, NULL) AS `neginf_count`,
    if(bitTest(c_present, 8), c_inf_count, NULL) AS `inf_count`,
    if(bitTest(c_present, 9), c_zero_count, NULL) AS `zero_count`,
    if(bitTest(c_present, 10), c_zero_frac, NULL) AS `zero_frac`,
    if(bitTest(c_present, 11), c_min, NULL) AS `min`,
    if(bitTest(c_present, 12), c_max, NULL) AS `max`,
    if(bitTest(c_present, 13), c_absmax, NULL) AS `absmax`,
    if(bitTest(c_present, 14), c_absmin_nonzero, NULL) AS `absmin_nonzero`,
    if(bitTest(c_present, 15), c_mean, NULL) AS `mean`,
    if(bitTest(c_present, 16), c_std, NULL) AS `std`,
    if(bitTest(c_present, 17), c_l1, NULL) AS `l1`,
    if(bitTest(c_present, 18), c_l2, NULL) AS `l2`,
    if(bitTest(c_present, 19), c_rms, NULL) AS `rms`,
    if(bitTest(c_present, 20), c_subnormal_count, NULL) AS `subnormal_count`,
    if(bitTest(c_present, 21), c_saturated_count, NULL) AS `saturated_count`,
    c_log2_hist AS `log2_hist`,
    if(bitTest(c_present, 22), c_update_ratio, NULL) AS `update_ratio`,
    if(bitTest(c_present, 23), c_grad_to_weight, NULL) AS `grad_to_weight`,
    if(bitTest(c_present, 24), c_fingerprint, NULL) AS `fingerprint`,
    c_call AS `call`
FROM (
    SELECT
        *,
        tensor_stats_shape AS tensor_stats_shape_flat,
        tensor_stats_log2_hist AS tensor_stats_log2_hist_flat,
        arrayMap((n, e) -> arraySlice(tensor_stats_shape_flat, e - n + 1, n), arrayResize(tensor_stats_shape_n, length(tensor_stats_name)), arrayCumSum(arrayResize(tensor_stats_shape_n, length(tensor_stats_name)))) AS tensor_stats_shape_rows,
        arrayMap((n, e) -> arraySlice(tensor_stats_log2_hist_flat, e - n + 1, n), arrayResize(tensor_stats_log2_hist_n, length(tensor_stats_name)), arrayCumSum(arrayResize(tensor_stats_log2_hist_n, length(tensor_stats_name)))) AS tensor_stats_log2_hist_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(tensor_stats_name) AS row_number,
    arrayResize(tensor_stats_name, length(tensor_stats_name)) AS c_name,
    arrayResize(tensor_stats_module, length(tensor_stats_name)) AS c_module,
    arrayResize(tensor_stats_layer_index::Array(Nullable(UInt32)), length(tensor_stats_name), NULL) AS c_layer_index,
    arrayResize(tensor_stats_layer_type, length(tensor_stats_name)) AS c_layer_type,
    arrayResize(tensor_stats_role, length(tensor_stats_name)) AS c_role,
    arrayResize(tensor_stats_dtype, length(tensor_stats_name)) AS c_dtype,
    tensor_stats_shape_rows AS c_shape,
    arrayResize(tensor_stats_placement, length(tensor_stats_name)) AS c_placement,
    arrayResize(tensor_stats_numel_local, length(tensor_stats_name)) AS c_numel_local,
    arrayResize(tensor_stats_numel_global, length(tensor_stats_name)) AS c_numel_global,
    arrayResize(tensor_stats_step::Array(Nullable(Int64)), length(tensor_stats_name), NULL) AS c_step,
    arrayResize(tensor_stats_microstep, length(tensor_stats_name)) AS c_microstep,
    arrayResize(tensor_stats_microbatch::Array(Nullable(UInt32)), length(tensor_stats_name), NULL) AS c_microbatch,
    arrayResize(tensor_stats_phase, length(tensor_stats_name)) AS c_phase,
    arrayResize(tensor_stats_time, length(tensor_stats_name)) AS c_time,
    arrayResize(tensor_stats_flags, length(tensor_stats_name)) AS c_flags,
    arrayResize(tensor_stats_loss_scale::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_loss_scale,
    arrayResize(tensor_stats_nonfinite_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_nonfinite_count,
    arrayResize(tensor_stats_nan_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_nan_count,
    arrayResize(tensor_stats_posinf_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_posinf_count,
    arrayResize(tensor_stats_neginf_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_neginf_count,
    arrayResize(tensor_stats_inf_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_inf_count,
    arrayResize(tensor_stats_zero_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_zero_count,
    arrayResize(tensor_stats_zero_frac::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_zero_frac,
    arrayResize(tensor_stats_min::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_min,
    arrayResize(tensor_stats_max::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_max,
    arrayResize(tensor_stats_absmax::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_absmax,
    arrayResize(tensor_stats_absmin_nonzero::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_absmin_nonzero,
    arrayResize(tensor_stats_mean::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_mean,
    arrayResize(tensor_stats_std::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_std,
    arrayResize(tensor_stats_l1::Array(Nullable(Float64)), length(tensor_stats_name), NULL) AS c_l1,
    arrayResize(tensor_stats_l2::Array(Nullable(Float64)), length(tensor_stats_name), NULL) AS c_l2,
    arrayResize(tensor_stats_rms::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_rms,
    arrayResize(tensor_stats_subnormal_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_subnormal_count,
    arrayResize(tensor_stats_saturated_count::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_saturated_count,
    tensor_stats_log2_hist_rows AS c_log2_hist,
    arrayResize(tensor_stats_update_ratio::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_update_ratio,
    arrayResize(tensor_stats_grad_to_weight::Array(Nullable(Float32)), length(tensor_stats_name), NULL) AS c_grad_to_weight,
    arrayResize(tensor_stats_fingerprint::Array(Nullable(UInt64)), length(tensor_stats_name), NULL) AS c_fingerprint,
    if(empty(tensor_stats_present), arrayWithConstant(length(tensor_stats_name), bitNot(toUInt64(0))), arrayResize(tensor_stats_present, length(tensor_stats_name))) AS c_present,
    arrayResize(tensor_stats_call, length(tensor_stats_name)) AS c_call;

ALTER TABLE modules_from_landing MODIFY QUERY
SELECT
    header_project AS project,
    header_run_id AS run_id,
    header_launch_id AS launch_id,
    header_rank AS rank,
    header_local_rank AS local_rank,
    header_world_size AS world_size,
    header_worker_index AS worker_index,
    header_node AS node,
    header_incarnation AS incarnation,
    header_seq AS seq,
    toUInt8(header_process_role) AS process_role,
    toUInt32(row_number - 1) AS idx,
    toDate(header_week) AS week,
    strings[c_path + 1] AS `path`,
    strings[c_parent + 1] AS `parent`,
    strings[c_class + 1] AS `class`,
    strings[c_type + 1] AS `type`,
    if(bitTest(c_present, 0), c_layer_index, NULL) AS `layer_index`,
    c_parameters AS `parameters`,
    c_parameter_shapes AS `parameter_shapes`,
    c_parameter_dtypes AS `parameter_dtypes`,
    c_aliases AS `aliases`,
    c_time AS `time`,
    c_parameter_trainable AS `parameter_trainable`
FROM (
    SELECT
        *,
        arrayMap(i -> strings[i + 1], arrayResize(modules_parameters, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes), length(modules_parameter_trainable)))) AS modules_parameters_flat,
        arrayMap(i -> strings[i + 1], arrayResize(modules_parameter_shapes, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes), length(modules_parameter_trainable)))) AS modules_parameter_shapes_flat,
        arrayMap(i -> strings[i + 1], arrayResize(modules_parameter_dtypes, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes), length(modules_parameter_trainable)))) AS modules_parameter_dtypes_flat,
        arrayMap(i -> strings[i + 1], modules_aliases) AS modules_aliases_flat,
        arrayResize(modules_parameter_trainable, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes), length(modules_parameter_trainable))) AS modules_parameter_trainable_flat,
        arrayMap((n, e) -> arraySlice(modules_parameters_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameters_rows,
        arrayMap((n, e) -> arraySlice(modules_parameter_shapes_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameter_shapes_rows,
        arrayMap((n, e) -> arraySlice(modules_parameter_dtypes_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameter_dtypes_rows,
        arrayMap((n, e) -> arraySlice(modules_aliases_flat, e - n + 1, n), arrayResize(modules_alias_n, length(modules_path)), arrayCumSum(arrayResize(modules_alias_n, length(modules_path)))) AS modules_aliases_rows,
        arrayMap((n, e) -> arraySlice(modules_parameter_trainable_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameter_trainable_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(modules_path) AS row_number,
    arrayResize(modules_path, length(modules_path)) AS c_path,
    arrayResize(modules_parent, length(modules_path)) AS c_parent,
    arrayResize(modules_class, length(modules_path)) AS c_class,
    arrayResize(modules_type, length(modules_path)) AS c_type,
    arrayResize(modules_layer_index::Array(Nullable(UInt32)), length(modules_path), NULL) AS c_layer_index,
    modules_parameters_rows AS c_parameters,
    modules_parameter_shapes_rows AS c_parameter_shapes,
    modules_parameter_dtypes_rows AS c_parameter_dtypes,
    modules_aliases_rows AS c_aliases,
    arrayResize(modules_time, length(modules_path)) AS c_time,
    if(empty(modules_present), arrayWithConstant(length(modules_path), bitNot(toUInt64(0))), arrayResize(modules_present, length(modules_path))) AS c_present,
    modules_parameter_trainable_rows AS c_parameter_trainable;

ALTER TABLE batches_from_landing MODIFY QUERY
SELECT
    header_schema_version AS schema_version,
    header_project AS project,
    header_run_id AS run_id,
    header_launch_id AS launch_id,
    toUInt8(header_process_role) AS process_role,
    header_rank AS rank,
    header_local_rank AS local_rank,
    header_world_size AS world_size,
    header_worker_index AS worker_index,
    header_parent_rank AS parent_rank,
    header_node AS node,
    header_pid AS pid,
    header_boot_id AS boot_id,
    header_incarnation AS incarnation,
    header_seq AS seq,
    header_sealed AS sealed,
    header_sealed_mono AS sealed_mono,
    header_sdk_version AS sdk_version,
    mapFromArrays(arrayMap(a -> toLowCardinality(a), header_mesh_axis), arrayResize(header_mesh_coordinate, length(header_mesh_axis))) AS mesh,
    header_emitted_spans AS emitted_spans,
    header_emitted_tensor_stats AS emitted_tensor_stats,
    header_emitted_scalars AS emitted_scalars,
    header_emitted_modules AS emitted_modules,
    header_emitted_events AS emitted_events,
    header_emitted_gaps AS emitted_gaps,
    header_emitted_run_info AS emitted_run_info,
    header_emitted_open_spans AS emitted_open_spans,
    header_emitted_hits AS emitted_hits,
    header_emitted_captures AS emitted_captures,
    toUInt32(length(spans_span_id)) AS rows_spans,
    toUInt32(length(tensor_stats_name)) AS rows_tensor_stats,
    toUInt32(length(scalars_name)) AS rows_scalars,
    toUInt32(length(modules_path)) AS rows_modules,
    toUInt32(length(events_time)) AS rows_events,
    toUInt32(length(gaps_class)) AS rows_gaps,
    toUInt32(length(run_info_status)) AS rows_run_info,
    toUInt32(length(open_spans_heartbeat)) AS rows_open_spans,
    toUInt32(length(hits_time)) AS rows_hits,
    toUInt32(length(captures_name)) AS rows_captures,
    received,
    toDate(header_week) AS week
FROM landing;

CREATE MATERIALIZED VIEW IF NOT EXISTS hits_from_landing TO hits AS
SELECT
    header_project AS project,
    header_run_id AS run_id,
    header_launch_id AS launch_id,
    header_rank AS rank,
    header_local_rank AS local_rank,
    header_world_size AS world_size,
    header_worker_index AS worker_index,
    header_node AS node,
    header_incarnation AS incarnation,
    header_seq AS seq,
    toUInt8(header_process_role) AS process_role,
    toUInt32(row_number - 1) AS idx,
    toDate(header_week) AS week,
    c_time AS `time`,
    strings[c_breakpoint + 1] AS `breakpoint`,
    strings[c_predicate + 1] AS `predicate`,
    strings[c_name + 1] AS `name`,
    strings[c_module + 1] AS `module`,
    toUInt8(c_role) AS `role`,
    if(bitTest(c_present, 0), c_step, NULL) AS `step`,
    c_microstep AS `microstep`,
    toUInt8(c_phase) AS `phase`,
    strings[c_mode + 1] AS `mode`,
    strings[c_action + 1] AS `action`,
    c_count AS `count`,
    mapFromArrays(c_seen_names, c_seen_values) AS `seen`,
    mapFromArrays(c_text_names, c_text_values) AS `seen_texts`
FROM (
    SELECT
        *,
        arrayMap(i -> strings[i + 1], arrayResize(hits_seen_names, greatest(length(hits_seen_names), length(hits_seen_values)))) AS hits_seen_names_flat,
        arrayResize(hits_seen_values, greatest(length(hits_seen_names), length(hits_seen_values))) AS hits_seen_values_flat,
        arrayMap(i -> strings[i + 1], arrayResize(hits_text_names, greatest(length(hits_text_names), length(hits_text_values)))) AS hits_text_names_flat,
        arrayMap(i -> strings[i + 1], arrayResize(hits_text_values, greatest(length(hits_text_names), length(hits_text_values)))) AS hits_text_values_flat,
        arrayMap((n, e) -> arraySlice(hits_seen_names_flat, e - n + 1, n), arrayResize(hits_seen_n, length(hits_time)), arrayCumSum(arrayResize(hits_seen_n, length(hits_time)))) AS hits_seen_names_rows,
        arrayMap((n, e) -> arraySlice(hits_seen_values_flat, e - n + 1, n), arrayResize(hits_seen_n, length(hits_time)), arrayCumSum(arrayResize(hits_seen_n, length(hits_time)))) AS hits_seen_values_rows,
        arrayMap((n, e) -> arraySlice(hits_text_names_flat, e - n + 1, n), arrayResize(hits_text_n, length(hits_time)), arrayCumSum(arrayResize(hits_text_n, length(hits_time)))) AS hits_text_names_rows,
        arrayMap((n, e) -> arraySlice(hits_text_values_flat, e - n + 1, n), arrayResize(hits_text_n, length(hits_time)), arrayCumSum(arrayResize(hits_text_n, length(hits_time)))) AS hits_text_values_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(hits_time) AS row_number,
    arrayResize(hits_time, length(hits_time)) AS c_time,
    arrayResize(hits_breakpoint, length(hits_time)) AS c_breakpoint,
    arrayResize(hits_predicate, length(hits_time)) AS c_predicate,
    arrayResize(hits_name, length(hits_time)) AS c_name,
    arrayResize(hits_module, length(hits_time)) AS c_module,
    arrayResize(hits_role, length(hits_time)) AS c_role,
    arrayResize(hits_step::Array(Nullable(Int64)), length(hits_time), NULL) AS c_step,
    arrayResize(hits_microstep, length(hits_time)) AS c_microstep,
    arrayResize(hits_phase, length(hits_time)) AS c_phase,
    arrayResize(hits_mode, length(hits_time)) AS c_mode,
    arrayResize(hits_action, length(hits_time)) AS c_action,
    arrayResize(hits_count, length(hits_time)) AS c_count,
    hits_seen_names_rows AS c_seen_names,
    hits_seen_values_rows AS c_seen_values,
    hits_text_names_rows AS c_text_names,
    hits_text_values_rows AS c_text_values,
    if(empty(hits_present), arrayWithConstant(length(hits_time), bitNot(toUInt64(0))), arrayResize(hits_present, length(hits_time))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS captures_from_landing TO captures AS
SELECT
    header_project AS project,
    header_run_id AS run_id,
    header_launch_id AS launch_id,
    header_rank AS rank,
    header_local_rank AS local_rank,
    header_world_size AS world_size,
    header_worker_index AS worker_index,
    header_node AS node,
    header_incarnation AS incarnation,
    header_seq AS seq,
    toUInt8(header_process_role) AS process_role,
    toUInt32(row_number - 1) AS idx,
    toDate(header_week) AS week,
    strings[c_name + 1] AS `name`,
    strings[c_module + 1] AS `module`,
    toUInt8(c_role) AS `role`,
    if(bitTest(c_present, 0), c_step, NULL) AS `step`,
    c_microstep AS `microstep`,
    toUInt8(c_phase) AS `phase`,
    c_time AS `time`,
    strings[c_dtype + 1] AS `dtype`,
    c_shape AS `shape`,
    c_full_shape AS `full_shape`,
    strings[c_part + 1] AS `part`,
    strings[c_part_of + 1] AS `part_of`,
    c_digest_hi AS `digest_hi`,
    c_digest_lo AS `digest_lo`,
    c_bytes AS `bytes`,
    c_chunk AS `chunk`,
    c_chunks AS `chunks`,
    c_data AS `data`,
    strings[c_cause + 1] AS `cause`
FROM (
    SELECT
        *,
        captures_shape AS captures_shape_flat,
        captures_full_shape AS captures_full_shape_flat,
        arrayMap((n, e) -> arraySlice(captures_shape_flat, e - n + 1, n), arrayResize(captures_shape_n, length(captures_name)), arrayCumSum(arrayResize(captures_shape_n, length(captures_name)))) AS captures_shape_rows,
        arrayMap((n, e) -> arraySlice(captures_full_shape_flat, e - n + 1, n), arrayResize(captures_full_shape_n, length(captures_name)), arrayCumSum(arrayResize(captures_full_shape_n, length(captures_name)))) AS captures_full_shape_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(captures_name) AS row_number,
    arrayResize(captures_name, length(captures_name)) AS c_name,
    arrayResize(captures_module, length(captures_name)) AS c_module,
    arrayResize(captures_role, length(captures_name)) AS c_role,
    arrayResize(captures_step::Array(Nullable(Int64)), length(captures_name), NULL) AS c_step,
    arrayResize(captures_microstep, length(captures_name)) AS c_microstep,
    arrayResize(captures_phase, length(captures_name)) AS c_phase,
    arrayResize(captures_time, length(captures_name)) AS c_time,
    arrayResize(captures_dtype, length(captures_name)) AS c_dtype,
    captures_shape_rows AS c_shape,
    captures_full_shape_rows AS c_full_shape,
    arrayResize(captures_part, length(captures_name)) AS c_part,
    arrayResize(captures_part_of, length(captures_name)) AS c_part_of,
    arrayResize(captures_digest_hi, length(captures_name)) AS c_digest_hi,
    arrayResize(captures_digest_lo, length(captures_name)) AS c_digest_lo,
    arrayResize(captures_bytes, length(captures_name)) AS c_bytes,
    arrayResize(captures_chunk, length(captures_name)) AS c_chunk,
    arrayResize(captures_chunks, length(captures_name)) AS c_chunks,
    arrayResize(captures_data, length(captures_name)) AS c_data,
    arrayResize(captures_cause, length(captures_name)) AS c_cause,
    if(empty(captures_present), arrayWithConstant(length(captures_name), bitNot(toUInt64(0))), arrayResize(captures_present, length(captures_name))) AS c_present;

CREATE OR REPLACE VIEW spans_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(kind, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], ['', 'rollout', 'env_step', 'model', 'tool', 'retrieval', 'reward', 'evaluator', 'dataset', 'preprocessing', 'postprocessing', 'checkpoint', 'artifact', 'system', 'custom'], toString(kind)) AS kind,
    transform(status, [0, 1, 2, 3, 4], ['', 'ok', 'error', 'interrupted', 'cancelled'], toString(status)) AS status,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    transform(capture, [0, 1, 2], ['', 'off', 'preview'], toString(capture)) AS capture,
    transform(redaction_state, [0, 1, 2], ['', 'nothing_to_redact', 'redacted'], toString(redaction_state)) AS redaction_state,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM spans;

CREATE OR REPLACE VIEW tensor_stats_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(role, [0, 1, 2, 3, 4, 5, 6, 7, 8], ['', 'weight', 'grad', 'activation', 'activation_grad', 'update', 'optimizer_state', 'buffer', 'grad_increment'], toString(role)) AS role,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM tensor_stats;

CREATE OR REPLACE VIEW scalars_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM scalars;

CREATE OR REPLACE VIEW modules_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM modules;

CREATE OR REPLACE VIEW events_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(severity, [0, 1, 2, 3, 4], ['', 'debug', 'info', 'warning', 'error'], toString(severity)) AS severity,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM events;

CREATE OR REPLACE VIEW gaps_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(class, [0, 1, 2], ['', 'lost', 'not_captured'], toString(class)) AS class,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM gaps;

CREATE OR REPLACE VIEW runs_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(status, [0, 1, 2, 3, 4], ['', 'running', 'finished', 'failed', 'interrupted'], toString(status)) AS status,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM runs;

CREATE OR REPLACE VIEW open_spans_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM open_spans;

CREATE OR REPLACE VIEW hits_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(role, [0, 1, 2, 3, 4, 5, 6, 7, 8], ['', 'weight', 'grad', 'activation', 'activation_grad', 'update', 'optimizer_state', 'buffer', 'grad_increment'], toString(role)) AS role,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM hits;

CREATE OR REPLACE VIEW captures_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(role, [0, 1, 2, 3, 4, 5, 6, 7, 8], ['', 'weight', 'grad', 'activation', 'activation_grad', 'update', 'optimizer_state', 'buffer', 'grad_increment'], toString(role)) AS role,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM captures;
