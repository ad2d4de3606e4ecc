-- Schema version 2. Stores have applied this text: it never changes again.
--
-- Gaps that one process states for another: the agent for a trainer that is gone, a writer for a batch it set aside.
ALTER TABLE gaps
    ADD COLUMN IF NOT EXISTS `incarnation_hi` Nullable(UInt64) AFTER `detail`,
    ADD COLUMN IF NOT EXISTS `incarnation_lo` Nullable(UInt64) AFTER `incarnation_hi`;

ALTER TABLE landing
    ADD COLUMN IF NOT EXISTS `gaps_incarnation_hi` Array(UInt64) AFTER `gaps_present`,
    ADD COLUMN IF NOT EXISTS `gaps_incarnation_lo` Array(UInt64) AFTER `gaps_incarnation_hi`;

ALTER TABLE gaps_from_landing MODIFY QUERY
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
    toUInt8(c_class) AS `class`,
    strings[c_cause + 1] AS `cause`,
    strings[c_data_kind + 1] AS `data_kind`,
    if(bitTest(c_present, 0), c_count, NULL) AS `count`,
    if(bitTest(c_present, 1), c_seq_from, NULL) AS `seq_from`,
    if(bitTest(c_present, 2), c_seq_to, NULL) AS `seq_to`,
    if(bitTest(c_present, 3), c_step_from, NULL) AS `step_from`,
    if(bitTest(c_present, 4), c_step_to, NULL) AS `step_to`,
    if(bitTest(c_present, 5), c_step_stride, NULL) AS `step_stride`,
    c_start AS `start`,
    if(bitTest(c_present, 6), c_end, NULL) AS `end`,
    strings[c_detail + 1] AS `detail`,
    if(bitTest(c_present, 7), c_incarnation_hi, NULL) AS `incarnation_hi`,
    if(bitTest(c_present, 8), c_incarnation_lo, NULL) AS `incarnation_lo`
FROM landing
ARRAY JOIN
    arrayEnumerate(gaps_class) AS row_number,
    arrayResize(gaps_class, length(gaps_class)) AS c_class,
    arrayResize(gaps_cause, length(gaps_class)) AS c_cause,
    arrayResize(gaps_data_kind, length(gaps_class)) AS c_data_kind,
    arrayResize(gaps_count::Array(Nullable(UInt64)), length(gaps_class), NULL) AS c_count,
    arrayResize(gaps_seq_from::Array(Nullable(UInt64)), length(gaps_class), NULL) AS c_seq_from,
    arrayResize(gaps_seq_to::Array(Nullable(UInt64)), length(gaps_class), NULL) AS c_seq_to,
    arrayResize(gaps_step_from::Array(Nullable(Int64)), length(gaps_class), NULL) AS c_step_from,
    arrayResize(gaps_step_to::Array(Nullable(Int64)), length(gaps_class), NULL) AS c_step_to,
    arrayResize(gaps_step_stride::Array(Nullable(UInt32)), length(gaps_class), NULL) AS c_step_stride,
    arrayResize(gaps_start, length(gaps_class)) AS c_start,
    arrayResize(gaps_end::Array(Nullable(Int64)), length(gaps_class), NULL) AS c_end,
    arrayResize(gaps_detail, length(gaps_class)) AS c_detail,
    if(empty(gaps_present), arrayWithConstant(length(gaps_class), bitNot(toUInt64(0))), arrayResize(gaps_present, length(gaps_class))) AS c_present,
    arrayResize(gaps_incarnation_hi::Array(Nullable(UInt64)), length(gaps_class), NULL) AS c_incarnation_hi,
    arrayResize(gaps_incarnation_lo::Array(Nullable(UInt64)), length(gaps_class), NULL) AS c_incarnation_lo;

-- A batch that this twin of landing refuses is one that does not parse; it has no views.
CREATE TABLE IF NOT EXISTS landing_probe
(
    `header_schema_version` UInt32,
    `header_project` String,
    `header_run_id` String,
    `header_launch_id` FixedString(16),
    `header_process_role` UInt32,
    `header_rank` Int32,
    `header_local_rank` Int32,
    `header_world_size` UInt32,
    `header_worker_index` Int32,
    `header_parent_rank` Int32,
    `header_node` String,
    `header_pid` UInt32,
    `header_boot_id` String,
    `header_incarnation` FixedString(16),
    `header_seq` UInt64,
    `header_sealed` Int64,
    `header_sealed_mono` Int64,
    `header_week` UInt32,
    `header_sdk_version` String,
    `header_mesh_axis` Array(String),
    `header_mesh_coordinate` Array(UInt32),
    `header_emitted_spans` UInt64,
    `header_emitted_tensor_stats` UInt64,
    `header_emitted_scalars` UInt64,
    `header_emitted_modules` UInt64,
    `header_emitted_events` UInt64,
    `header_emitted_gaps` UInt64,
    `header_emitted_run_info` UInt64,
    `header_emitted_open_spans` UInt64,
    `spans_span_id` Array(UInt64),
    `spans_trace_hi` Array(UInt64),
    `spans_trace_lo` Array(UInt64),
    `spans_parent_span_id` Array(UInt64),
    `spans_name` Array(UInt32),
    `spans_kind` Array(UInt32),
    `spans_status` Array(UInt32),
    `spans_start` Array(Int64),
    `spans_duration` Array(Int64),
    `spans_step` Array(Int64),
    `spans_microstep` Array(UInt32),
    `spans_microbatch` Array(UInt32),
    `spans_phase` Array(UInt32),
    `spans_depth` Array(UInt32),
    `spans_path` Array(UInt32),
    `spans_thread_id` Array(UInt32),
    `spans_rollout_id` Array(UInt32),
    `spans_error_type` Array(UInt32),
    `spans_attribute_keys` Array(UInt32),
    `spans_attribute_values` Array(UInt32),
    `spans_attribute_n` Array(UInt32),
    `spans_number_keys` Array(UInt32),
    `spans_number_values` Array(Float64),
    `spans_number_n` Array(UInt32),
    `spans_metric_keys` Array(UInt32),
    `spans_metric_values` Array(Float64),
    `spans_metric_n` Array(UInt32),
    `spans_link_trace_hi` Array(UInt64),
    `spans_link_trace_lo` Array(UInt64),
    `spans_link_span_id` Array(UInt64),
    `spans_link_n` Array(UInt32),
    `spans_inputs` Array(String),
    `spans_outputs` Array(String),
    `spans_error_preview` Array(String),
    `spans_capture` Array(UInt32),
    `spans_redaction_state` Array(UInt32),
    `spans_flags` Array(UInt32),
    `spans_present` Array(UInt64),
    `tensor_stats_name` Array(UInt32),
    `tensor_stats_module` Array(UInt32),
    `tensor_stats_layer_index` Array(UInt32),
    `tensor_stats_layer_type` Array(UInt32),
    `tensor_stats_role` Array(UInt32),
    `tensor_stats_dtype` Array(UInt32),
    `tensor_stats_shape` Array(UInt64),
    `tensor_stats_shape_n` Array(UInt32),
    `tensor_stats_placement` Array(UInt32),
    `tensor_stats_numel_local` Array(UInt64),
    `tensor_stats_numel_global` Array(UInt64),
    `tensor_stats_step` Array(Int64),
    `tensor_stats_microstep` Array(UInt32),
    `tensor_stats_microbatch` Array(UInt32),
    `tensor_stats_phase` Array(UInt32),
    `tensor_stats_time` Array(Int64),
    `tensor_stats_flags` Array(UInt32),
    `tensor_stats_loss_scale` Array(Float32),
    `tensor_stats_nonfinite_count` Array(UInt64),
    `tensor_stats_nan_count` Array(UInt64),
    `tensor_stats_posinf_count` Array(UInt64),
    `tensor_stats_neginf_count` Array(UInt64),
    `tensor_stats_inf_count` Array(UInt64),
    `tensor_stats_zero_count` Array(UInt64),
    `tensor_stats_zero_frac` Array(Float32),
    `tensor_stats_min` Array(Float32),
    `tensor_stats_max` Array(Float32),
    `tensor_stats_absmax` Array(Float32),
    `tensor_stats_absmin_nonzero` Array(Float32),
    `tensor_stats_mean` Array(Float32),
    `tensor_stats_std` Array(Float32),
    `tensor_stats_l1` Array(Float64),
    `tensor_stats_l2` Array(Float64),
    `tensor_stats_rms` Array(Float32),
    `tensor_stats_subnormal_count` Array(UInt64),
    `tensor_stats_saturated_count` Array(UInt64),
    `tensor_stats_log2_hist` Array(UInt64),
    `tensor_stats_log2_hist_n` Array(UInt32),
    `tensor_stats_update_ratio` Array(Float32),
    `tensor_stats_grad_to_weight` Array(Float32),
    `tensor_stats_fingerprint` Array(UInt64),
    `tensor_stats_present` Array(UInt64),
    `scalars_name` Array(UInt32),
    `scalars_step` Array(Int64),
    `scalars_value` Array(Float64),
    `scalars_time` Array(Int64),
    `scalars_present` Array(UInt64),
    `modules_path` Array(UInt32),
    `modules_parent` Array(UInt32),
    `modules_class` Array(UInt32),
    `modules_type` Array(UInt32),
    `modules_layer_index` Array(UInt32),
    `modules_parameters` Array(UInt32),
    `modules_parameter_shapes` Array(UInt32),
    `modules_parameter_dtypes` Array(UInt32),
    `modules_parameter_n` Array(UInt32),
    `modules_aliases` Array(UInt32),
    `modules_alias_n` Array(UInt32),
    `modules_time` Array(Int64),
    `modules_present` Array(UInt64),
    `events_time` Array(Int64),
    `events_kind` Array(UInt32),
    `events_name` Array(UInt32),
    `events_severity` Array(UInt32),
    `events_payload` Array(String),
    `events_span_id` Array(UInt64),
    `events_step` Array(Int64),
    `events_present` Array(UInt64),
    `gaps_class` Array(UInt32),
    `gaps_cause` Array(UInt32),
    `gaps_data_kind` Array(UInt32),
    `gaps_count` Array(UInt64),
    `gaps_seq_from` Array(UInt64),
    `gaps_seq_to` Array(UInt64),
    `gaps_step_from` Array(Int64),
    `gaps_step_to` Array(Int64),
    `gaps_step_stride` Array(UInt32),
    `gaps_start` Array(Int64),
    `gaps_end` Array(Int64),
    `gaps_detail` Array(UInt32),
    `gaps_present` Array(UInt64),
    `gaps_incarnation_hi` Array(UInt64),
    `gaps_incarnation_lo` Array(UInt64),
    `run_info_status` Array(UInt32),
    `run_info_name` Array(UInt32),
    `run_info_config` Array(String),
    `run_info_tags` Array(UInt32),
    `run_info_tag_n` Array(UInt32),
    `run_info_command` Array(String),
    `run_info_fact_keys` Array(UInt32),
    `run_info_fact_values` Array(UInt32),
    `run_info_fact_n` Array(UInt32),
    `run_info_start` Array(Int64),
    `run_info_end` Array(Int64),
    `run_info_present` Array(UInt64),
    `open_spans_heartbeat` Array(Int64),
    `open_spans_thread` Array(UInt32),
    `open_spans_stack_span_id` Array(UInt64),
    `open_spans_stack_name` Array(UInt32),
    `open_spans_stack_start` Array(Int64),
    `open_spans_stack_n` Array(UInt32),
    `open_spans_step` Array(Int64),
    `open_spans_present` Array(UInt64),
    `strings` Array(LowCardinality(String)),
    `received` Int64
)
ENGINE = Null;

CREATE OR REPLACE VIEW spans_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(kind, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], ['', 'rollout', 'env_step', 'model', 'tool', 'retrieval', 'reward', 'evaluator', 'dataset', 'preprocessing', 'postprocessing', 'checkpoint', 'artifact', 'system', 'custom'], toString(kind)) AS kind,
    transform(status, [0, 1, 2, 3], ['', 'ok', 'error', 'interrupted'], toString(status)) AS status,
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
    transform(role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'weight', 'grad', 'activation', 'activation_grad', 'update', 'optimizer_state', 'buffer'], toString(role)) AS role,
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
