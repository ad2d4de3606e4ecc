-- The tables of schema version 1. Stores have applied this text: it never changes again.

-- A finished span. A step's tree, and one rank's part of it, are neighbouring rows: a training trace is a step.
CREATE TABLE IF NOT EXISTS spans
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
    `span_id` UInt64,
    `trace_hi` UInt64,
    `trace_lo` UInt64,
    `parent_span_id` UInt64,
    `name` LowCardinality(String),
    `kind` UInt8,
    `status` UInt8,
    `start` Int64,
    `duration` Int64,
    `step` Nullable(Int64),
    `microstep` UInt32,
    `microbatch` Nullable(UInt32),
    `phase` UInt8,
    `depth` UInt16,
    `path` LowCardinality(String),
    `thread_id` String,
    `rollout_id` String,
    `error_type` LowCardinality(String),
    `link_trace_hi` Array(UInt64),
    `link_trace_lo` Array(UInt64),
    `link_span_id` Array(UInt64),
    `inputs` String,
    `outputs` String,
    `error_preview` String,
    `capture` UInt8,
    `redaction_state` UInt8,
    `flags` UInt32,
    `attributes` Map(LowCardinality(String), String),
    `numbers` Map(LowCardinality(String), Float64),
    `metrics` Map(LowCardinality(String), Float64)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, ifNull(step, -1), rank, start)
SETTINGS non_replicated_deduplication_window = 10000;

-- Statistics of one tensor at one (rank, step, microstep, role). Questions are about steps; a step's tensors are neighbouring rows and no string is compared to sort an insert.
CREATE TABLE IF NOT EXISTS tensor_stats
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
    `layer_index` Nullable(UInt32),
    `layer_type` LowCardinality(String),
    `role` UInt8,
    `dtype` LowCardinality(String),
    `shape` Array(UInt64),
    `placement` LowCardinality(String),
    `numel_local` UInt64,
    `numel_global` UInt64,
    `step` Nullable(Int64),
    `microstep` UInt32,
    `microbatch` Nullable(UInt32),
    `phase` UInt8,
    `time` Int64,
    `flags` UInt32,
    `loss_scale` Nullable(Float32),
    `nonfinite_count` Nullable(UInt64),
    `nan_count` Nullable(UInt64),
    `posinf_count` Nullable(UInt64),
    `neginf_count` Nullable(UInt64),
    `inf_count` Nullable(UInt64),
    `zero_count` Nullable(UInt64),
    `zero_frac` Nullable(Float32),
    `min` Nullable(Float32),
    `max` Nullable(Float32),
    `absmax` Nullable(Float32),
    `absmin_nonzero` Nullable(Float32),
    `mean` Nullable(Float32),
    `std` Nullable(Float32),
    `l1` Nullable(Float64),
    `l2` Nullable(Float64),
    `rms` Nullable(Float32),
    `subnormal_count` Nullable(UInt64),
    `saturated_count` Nullable(UInt64),
    `log2_hist` Array(UInt64),
    `update_ratio` Nullable(Float32),
    `grad_to_weight` Nullable(Float32),
    `fingerprint` Nullable(UInt64)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, ifNull(step, -1), microstep, rank)
SETTINGS non_replicated_deduplication_window = 10000;

-- One value of a metric of the run. A series is read as a whole, one name at a time.
CREATE TABLE IF NOT EXISTS scalars
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
    `step` Nullable(Int64),
    `value` Float64,
    `time` Int64
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, name, rank, ifNull(step, -1))
SETTINGS non_replicated_deduplication_window = 10000;

-- One module of the watched model. The graph is read whole, by path.
CREATE TABLE IF NOT EXISTS modules
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
    `path` LowCardinality(String),
    `parent` LowCardinality(String),
    `class` LowCardinality(String),
    `type` LowCardinality(String),
    `layer_index` Nullable(UInt32),
    `parameters` Array(LowCardinality(String)),
    `parameter_shapes` Array(LowCardinality(String)),
    `parameter_dtypes` Array(LowCardinality(String)),
    `aliases` Array(LowCardinality(String)),
    `time` Int64
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, path, rank)
SETTINGS non_replicated_deduplication_window = 10000;

-- Something that happened at one moment. Events are read by time.
CREATE TABLE IF NOT EXISTS events
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
    `kind` LowCardinality(String),
    `name` String,
    `severity` UInt8,
    `payload` String,
    `span_id` UInt64,
    `step` Nullable(Int64)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, time)
SETTINGS non_replicated_deduplication_window = 10000;

-- A stated absence of rows. Gaps are few and read whole.
CREATE TABLE IF NOT EXISTS gaps
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
    `class` UInt8,
    `cause` LowCardinality(String),
    `data_kind` LowCardinality(String),
    `count` Nullable(UInt64),
    `seq_from` Nullable(UInt64),
    `seq_to` Nullable(UInt64),
    `step_from` Nullable(Int64),
    `step_to` Nullable(Int64),
    `step_stride` Nullable(UInt32),
    `start` Int64,
    `end` Nullable(Int64),
    `detail` String
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, start)
SETTINGS non_replicated_deduplication_window = 10000;

-- What one process said of the run, at its start and at its end; the latest row wins on reading. A run is read whole.
CREATE TABLE IF NOT EXISTS runs
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
    `status` UInt8,
    `name` String,
    `config` String,
    `tags` Array(LowCardinality(String)),
    `command` String,
    `start` Int64,
    `end` Nullable(Int64),
    `facts` Map(LowCardinality(String), String)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, rank, start)
SETTINGS non_replicated_deduplication_window = 10000;

-- The spans open on one thread at one heartbeat, outermost first. Only the last heartbeat of a rank is read; rows expire after a day.
CREATE TABLE IF NOT EXISTS open_spans
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
    `heartbeat` Int64,
    `thread` String,
    `stack_span_id` Array(UInt64),
    `stack_name` Array(LowCardinality(String)),
    `stack_start` Array(Int64),
    `step` Nullable(Int64)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, rank, heartbeat)
TTL toDateTime(intDiv(heartbeat, 1000000000), 'UTC') + INTERVAL 1 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- The ledger: one row per batch.
CREATE TABLE IF NOT EXISTS batches
(
    `schema_version` UInt32,
    `project` LowCardinality(String),
    `run_id` LowCardinality(String),
    `launch_id` FixedString(16),
    `process_role` UInt8,
    `rank` Int32,
    `local_rank` Int32,
    `world_size` UInt32,
    `worker_index` Int32,
    `parent_rank` Int32,
    `node` LowCardinality(String),
    `pid` UInt32,
    `boot_id` String,
    `incarnation` FixedString(16),
    `seq` UInt64,
    `sealed` Int64,
    `sealed_mono` Int64,
    `sdk_version` LowCardinality(String),
    `mesh` Map(LowCardinality(String), UInt32),
    `emitted_spans` UInt64,
    `emitted_tensor_stats` UInt64,
    `emitted_scalars` UInt64,
    `emitted_modules` UInt64,
    `emitted_events` UInt64,
    `emitted_gaps` UInt64,
    `emitted_run_info` UInt64,
    `emitted_open_spans` UInt64,
    `rows_spans` UInt32,
    `rows_tensor_stats` UInt32,
    `rows_scalars` UInt32,
    `rows_modules` UInt32,
    `rows_events` UInt32,
    `rows_gaps` UInt32,
    `rows_run_info` UInt32,
    `rows_open_spans` UInt32,
    `received` Int64,
    `week` Date
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, incarnation, seq)
SETTINGS non_replicated_deduplication_window = 10000;

-- From a trace to its run, steps, ranks and times.
CREATE TABLE IF NOT EXISTS trace_index
(
    `project` LowCardinality(String),
    `run_id` LowCardinality(String),
    `trace_hi` UInt64,
    `trace_lo` UInt64,
    `steps` SimpleAggregateFunction(groupUniqArrayArray, Array(Int64)),
    `ranks` SimpleAggregateFunction(groupUniqArrayArray, Array(Int32)),
    `first_start` SimpleAggregateFunction(min, Int64),
    `last_end` SimpleAggregateFunction(max, Int64),
    `week` Date
)
ENGINE = AggregatingMergeTree
PARTITION BY week
ORDER BY (project, run_id, trace_hi, trace_lo)
SETTINGS non_replicated_deduplication_window = 10000;

-- A batch is one row of landing; every table is a view of it.
CREATE TABLE IF NOT EXISTS landing
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

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_from_landing TO spans AS
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
    c_span_id AS `span_id`,
    c_trace_hi AS `trace_hi`,
    c_trace_lo AS `trace_lo`,
    c_parent_span_id AS `parent_span_id`,
    strings[c_name + 1] AS `name`,
    toUInt8(c_kind) AS `kind`,
    toUInt8(c_status) AS `status`,
    c_start AS `start`,
    c_duration AS `duration`,
    if(bitTest(c_present, 0), c_step, NULL) AS `step`,
    c_microstep AS `microstep`,
    if(bitTest(c_present, 1), c_microbatch, NULL) AS `microbatch`,
    toUInt8(c_phase) AS `phase`,
    toUInt16(c_depth) AS `depth`,
    strings[c_path + 1] AS `path`,
    strings[c_thread_id + 1] AS `thread_id`,
    strings[c_rollout_id + 1] AS `rollout_id`,
    strings[c_error_type + 1] AS `error_type`,
    c_link_trace_hi AS `link_trace_hi`,
    c_link_trace_lo AS `link_trace_lo`,
    c_link_span_id AS `link_span_id`,
    c_inputs AS `inputs`,
    c_outputs AS `outputs`,
    c_error_preview AS `error_preview`,
    toUInt8(c_capture) AS `capture`,
    toUInt8(c_redaction_state) AS `redaction_state`,
    c_flags AS `flags`,
    mapFromArrays(c_attribute_keys, c_attribute_values) AS `attributes`,
    mapFromArrays(c_number_keys, c_number_values) AS `numbers`,
    mapFromArrays(c_metric_keys, c_metric_values) AS `metrics`
FROM (
    SELECT
        *,
        arrayMap(i -> strings[i + 1], arrayResize(spans_attribute_keys, greatest(length(spans_attribute_keys), length(spans_attribute_values)))) AS spans_attribute_keys_flat,
        arrayMap(i -> strings[i + 1], arrayResize(spans_attribute_values, greatest(length(spans_attribute_keys), length(spans_attribute_values)))) AS spans_attribute_values_flat,
        arrayMap(i -> strings[i + 1], arrayResize(spans_number_keys, greatest(length(spans_number_keys), length(spans_number_values)))) AS spans_number_keys_flat,
        arrayResize(spans_number_values, greatest(length(spans_number_keys), length(spans_number_values))) AS spans_number_values_flat,
        arrayMap(i -> strings[i + 1], arrayResize(spans_metric_keys, greatest(length(spans_metric_keys), length(spans_metric_values)))) AS spans_metric_keys_flat,
        arrayResize(spans_metric_values, greatest(length(spans_metric_keys), length(spans_metric_values))) AS spans_metric_values_flat,
        arrayResize(spans_link_trace_hi, greatest(length(spans_link_trace_hi), length(spans_link_trace_lo), length(spans_link_span_id))) AS spans_link_trace_hi_flat,
        arrayResize(spans_link_trace_lo, greatest(length(spans_link_trace_hi), length(spans_link_trace_lo), length(spans_link_span_id))) AS spans_link_trace_lo_flat,
        arrayResize(spans_link_span_id, greatest(length(spans_link_trace_hi), length(spans_link_trace_lo), length(spans_link_span_id))) AS spans_link_span_id_flat,
        arrayMap((n, e) -> arraySlice(spans_attribute_keys_flat, e - n + 1, n), arrayResize(spans_attribute_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_attribute_n, length(spans_span_id)))) AS spans_attribute_keys_rows,
        arrayMap((n, e) -> arraySlice(spans_attribute_values_flat, e - n + 1, n), arrayResize(spans_attribute_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_attribute_n, length(spans_span_id)))) AS spans_attribute_values_rows,
        arrayMap((n, e) -> arraySlice(spans_number_keys_flat, e - n + 1, n), arrayResize(spans_number_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_number_n, length(spans_span_id)))) AS spans_number_keys_rows,
        arrayMap((n, e) -> arraySlice(spans_number_values_flat, e - n + 1, n), arrayResize(spans_number_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_number_n, length(spans_span_id)))) AS spans_number_values_rows,
        arrayMap((n, e) -> arraySlice(spans_metric_keys_flat, e - n + 1, n), arrayResize(spans_metric_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_metric_n, length(spans_span_id)))) AS spans_metric_keys_rows,
        arrayMap((n, e) -> arraySlice(spans_metric_values_flat, e - n + 1, n), arrayResize(spans_metric_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_metric_n, length(spans_span_id)))) AS spans_metric_values_rows,
        arrayMap((n, e) -> arraySlice(spans_link_trace_hi_flat, e - n + 1, n), arrayResize(spans_link_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_link_n, length(spans_span_id)))) AS spans_link_trace_hi_rows,
        arrayMap((n, e) -> arraySlice(spans_link_trace_lo_flat, e - n + 1, n), arrayResize(spans_link_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_link_n, length(spans_span_id)))) AS spans_link_trace_lo_rows,
        arrayMap((n, e) -> arraySlice(spans_link_span_id_flat, e - n + 1, n), arrayResize(spans_link_n, length(spans_span_id)), arrayCumSum(arrayResize(spans_link_n, length(spans_span_id)))) AS spans_link_span_id_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(spans_span_id) AS row_number,
    arrayResize(spans_span_id, length(spans_span_id)) AS c_span_id,
    arrayResize(spans_trace_hi, length(spans_span_id)) AS c_trace_hi,
    arrayResize(spans_trace_lo, length(spans_span_id)) AS c_trace_lo,
    arrayResize(spans_parent_span_id, length(spans_span_id)) AS c_parent_span_id,
    arrayResize(spans_name, length(spans_span_id)) AS c_name,
    arrayResize(spans_kind, length(spans_span_id)) AS c_kind,
    arrayResize(spans_status, length(spans_span_id)) AS c_status,
    arrayResize(spans_start, length(spans_span_id)) AS c_start,
    arrayResize(spans_duration, length(spans_span_id)) AS c_duration,
    arrayResize(spans_step::Array(Nullable(Int64)), length(spans_span_id), NULL) AS c_step,
    arrayResize(spans_microstep, length(spans_span_id)) AS c_microstep,
    arrayResize(spans_microbatch::Array(Nullable(UInt32)), length(spans_span_id), NULL) AS c_microbatch,
    arrayResize(spans_phase, length(spans_span_id)) AS c_phase,
    arrayResize(spans_depth, length(spans_span_id)) AS c_depth,
    arrayResize(spans_path, length(spans_span_id)) AS c_path,
    arrayResize(spans_thread_id, length(spans_span_id)) AS c_thread_id,
    arrayResize(spans_rollout_id, length(spans_span_id)) AS c_rollout_id,
    arrayResize(spans_error_type, length(spans_span_id)) AS c_error_type,
    spans_attribute_keys_rows AS c_attribute_keys,
    spans_attribute_values_rows AS c_attribute_values,
    spans_number_keys_rows AS c_number_keys,
    spans_number_values_rows AS c_number_values,
    spans_metric_keys_rows AS c_metric_keys,
    spans_metric_values_rows AS c_metric_values,
    spans_link_trace_hi_rows AS c_link_trace_hi,
    spans_link_trace_lo_rows AS c_link_trace_lo,
    spans_link_span_id_rows AS c_link_span_id,
    arrayResize(spans_inputs, length(spans_span_id)) AS c_inputs,
    arrayResize(spans_outputs, length(spans_span_id)) AS c_outputs,
    arrayResize(spans_error_preview, length(spans_span_id)) AS c_error_preview,
    arrayResize(spans_capture, length(spans_span_id)) AS c_capture,
    arrayResize(spans_redaction_state, length(spans_span_id)) AS c_redaction_state,
    arrayResize(spans_flags, length(spans_span_id)) AS c_flags,
    if(empty(spans_present), arrayWithConstant(length(spans_span_id), bitNot(toUInt64(0))), arrayResize(spans_present, length(spans_span_id))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS tensor_stats_from_landing TO tensor_stats AS
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
    if(bitTest(c_present, 24), c_fingerprint, NULL) AS `fingerprint`
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
    if(empty(tensor_stats_present), arrayWithConstant(length(tensor_stats_name), bitNot(toUInt64(0))), arrayResize(tensor_stats_present, length(tensor_stats_name))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS scalars_from_landing TO scalars AS
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
    if(bitTest(c_present, 0), c_step, NULL) AS `step`,
    c_value AS `value`,
    c_time AS `time`
FROM landing
ARRAY JOIN
    arrayEnumerate(scalars_name) AS row_number,
    arrayResize(scalars_name, length(scalars_name)) AS c_name,
    arrayResize(scalars_step::Array(Nullable(Int64)), length(scalars_name), NULL) AS c_step,
    arrayResize(scalars_value, length(scalars_name)) AS c_value,
    arrayResize(scalars_time, length(scalars_name)) AS c_time,
    if(empty(scalars_present), arrayWithConstant(length(scalars_name), bitNot(toUInt64(0))), arrayResize(scalars_present, length(scalars_name))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS modules_from_landing TO modules AS
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
    c_time AS `time`
FROM (
    SELECT
        *,
        arrayMap(i -> strings[i + 1], arrayResize(modules_parameters, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes)))) AS modules_parameters_flat,
        arrayMap(i -> strings[i + 1], arrayResize(modules_parameter_shapes, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes)))) AS modules_parameter_shapes_flat,
        arrayMap(i -> strings[i + 1], arrayResize(modules_parameter_dtypes, greatest(length(modules_parameters), length(modules_parameter_shapes), length(modules_parameter_dtypes)))) AS modules_parameter_dtypes_flat,
        arrayMap(i -> strings[i + 1], modules_aliases) AS modules_aliases_flat,
        arrayMap((n, e) -> arraySlice(modules_parameters_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameters_rows,
        arrayMap((n, e) -> arraySlice(modules_parameter_shapes_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameter_shapes_rows,
        arrayMap((n, e) -> arraySlice(modules_parameter_dtypes_flat, e - n + 1, n), arrayResize(modules_parameter_n, length(modules_path)), arrayCumSum(arrayResize(modules_parameter_n, length(modules_path)))) AS modules_parameter_dtypes_rows,
        arrayMap((n, e) -> arraySlice(modules_aliases_flat, e - n + 1, n), arrayResize(modules_alias_n, length(modules_path)), arrayCumSum(arrayResize(modules_alias_n, length(modules_path)))) AS modules_aliases_rows
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
    if(empty(modules_present), arrayWithConstant(length(modules_path), bitNot(toUInt64(0))), arrayResize(modules_present, length(modules_path))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS events_from_landing TO events AS
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
    strings[c_kind + 1] AS `kind`,
    strings[c_name + 1] AS `name`,
    toUInt8(c_severity) AS `severity`,
    c_payload AS `payload`,
    c_span_id AS `span_id`,
    if(bitTest(c_present, 0), c_step, NULL) AS `step`
FROM landing
ARRAY JOIN
    arrayEnumerate(events_time) AS row_number,
    arrayResize(events_time, length(events_time)) AS c_time,
    arrayResize(events_kind, length(events_time)) AS c_kind,
    arrayResize(events_name, length(events_time)) AS c_name,
    arrayResize(events_severity, length(events_time)) AS c_severity,
    arrayResize(events_payload, length(events_time)) AS c_payload,
    arrayResize(events_span_id, length(events_time)) AS c_span_id,
    arrayResize(events_step::Array(Nullable(Int64)), length(events_time), NULL) AS c_step,
    if(empty(events_present), arrayWithConstant(length(events_time), bitNot(toUInt64(0))), arrayResize(events_present, length(events_time))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS gaps_from_landing TO gaps AS
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
    strings[c_detail + 1] AS `detail`
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
    if(empty(gaps_present), arrayWithConstant(length(gaps_class), bitNot(toUInt64(0))), arrayResize(gaps_present, length(gaps_class))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS runs_from_landing TO runs AS
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
    toUInt8(c_status) AS `status`,
    strings[c_name + 1] AS `name`,
    c_config AS `config`,
    c_tags AS `tags`,
    c_command AS `command`,
    c_start AS `start`,
    if(bitTest(c_present, 0), c_end, NULL) AS `end`,
    mapFromArrays(c_fact_keys, c_fact_values) AS `facts`
FROM (
    SELECT
        *,
        arrayMap(i -> strings[i + 1], run_info_tags) AS run_info_tags_flat,
        arrayMap(i -> strings[i + 1], arrayResize(run_info_fact_keys, greatest(length(run_info_fact_keys), length(run_info_fact_values)))) AS run_info_fact_keys_flat,
        arrayMap(i -> strings[i + 1], arrayResize(run_info_fact_values, greatest(length(run_info_fact_keys), length(run_info_fact_values)))) AS run_info_fact_values_flat,
        arrayMap((n, e) -> arraySlice(run_info_tags_flat, e - n + 1, n), arrayResize(run_info_tag_n, length(run_info_status)), arrayCumSum(arrayResize(run_info_tag_n, length(run_info_status)))) AS run_info_tags_rows,
        arrayMap((n, e) -> arraySlice(run_info_fact_keys_flat, e - n + 1, n), arrayResize(run_info_fact_n, length(run_info_status)), arrayCumSum(arrayResize(run_info_fact_n, length(run_info_status)))) AS run_info_fact_keys_rows,
        arrayMap((n, e) -> arraySlice(run_info_fact_values_flat, e - n + 1, n), arrayResize(run_info_fact_n, length(run_info_status)), arrayCumSum(arrayResize(run_info_fact_n, length(run_info_status)))) AS run_info_fact_values_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(run_info_status) AS row_number,
    arrayResize(run_info_status, length(run_info_status)) AS c_status,
    arrayResize(run_info_name, length(run_info_status)) AS c_name,
    arrayResize(run_info_config, length(run_info_status)) AS c_config,
    run_info_tags_rows AS c_tags,
    arrayResize(run_info_command, length(run_info_status)) AS c_command,
    run_info_fact_keys_rows AS c_fact_keys,
    run_info_fact_values_rows AS c_fact_values,
    arrayResize(run_info_start, length(run_info_status)) AS c_start,
    arrayResize(run_info_end::Array(Nullable(Int64)), length(run_info_status), NULL) AS c_end,
    if(empty(run_info_present), arrayWithConstant(length(run_info_status), bitNot(toUInt64(0))), arrayResize(run_info_present, length(run_info_status))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS open_spans_from_landing TO open_spans AS
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
    c_heartbeat AS `heartbeat`,
    strings[c_thread + 1] AS `thread`,
    c_stack_span_id AS `stack_span_id`,
    c_stack_name AS `stack_name`,
    c_stack_start AS `stack_start`,
    if(bitTest(c_present, 0), c_step, NULL) AS `step`
FROM (
    SELECT
        *,
        arrayResize(open_spans_stack_span_id, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start))) AS open_spans_stack_span_id_flat,
        arrayMap(i -> strings[i + 1], arrayResize(open_spans_stack_name, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start)))) AS open_spans_stack_name_flat,
        arrayResize(open_spans_stack_start, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start))) AS open_spans_stack_start_flat,
        arrayMap((n, e) -> arraySlice(open_spans_stack_span_id_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_span_id_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_name_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_name_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_start_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_start_rows
    FROM landing
)
ARRAY JOIN
    arrayEnumerate(open_spans_heartbeat) AS row_number,
    arrayResize(open_spans_heartbeat, length(open_spans_heartbeat)) AS c_heartbeat,
    arrayResize(open_spans_thread, length(open_spans_heartbeat)) AS c_thread,
    open_spans_stack_span_id_rows AS c_stack_span_id,
    open_spans_stack_name_rows AS c_stack_name,
    open_spans_stack_start_rows AS c_stack_start,
    arrayResize(open_spans_step::Array(Nullable(Int64)), length(open_spans_heartbeat), NULL) AS c_step,
    if(empty(open_spans_present), arrayWithConstant(length(open_spans_heartbeat), bitNot(toUInt64(0))), arrayResize(open_spans_present, length(open_spans_heartbeat))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS batches_from_landing TO batches AS
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
    toUInt32(length(spans_span_id)) AS rows_spans,
    toUInt32(length(tensor_stats_name)) AS rows_tensor_stats,
    toUInt32(length(scalars_name)) AS rows_scalars,
    toUInt32(length(modules_path)) AS rows_modules,
    toUInt32(length(events_time)) AS rows_events,
    toUInt32(length(gaps_class)) AS rows_gaps,
    toUInt32(length(run_info_status)) AS rows_run_info,
    toUInt32(length(open_spans_heartbeat)) AS rows_open_spans,
    received,
    toDate(header_week) AS week
FROM landing;

CREATE MATERIALIZED VIEW IF NOT EXISTS trace_index_from_landing TO trace_index AS
SELECT
    header_project AS project,
    header_run_id AS run_id,
    trace_hi,
    trace_lo,
    groupUniqArrayIf(step, has_step) AS steps,
    groupUniqArray(header_rank) AS ranks,
    min(start) AS first_start,
    max(start + duration) AS last_end,
    toDate(header_week) AS week
FROM landing
ARRAY JOIN
    arrayResize(spans_trace_hi, length(spans_span_id)) AS trace_hi,
    arrayResize(spans_trace_lo, length(spans_span_id)) AS trace_lo,
    arrayResize(spans_start, length(spans_span_id)) AS start,
    arrayResize(spans_duration, length(spans_span_id)) AS duration,
    arrayResize(spans_step, length(spans_span_id)) AS step,
    if(empty(spans_present), arrayWithConstant(length(spans_span_id), notEmpty(spans_step)),
       arrayMap(p -> bitTest(p, 0), arrayResize(spans_present, length(spans_span_id)))) AS has_step
GROUP BY project, run_id, trace_hi, trace_lo, week;

CREATE VIEW IF NOT EXISTS spans_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    transform(kind, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], ['', 'rollout', 'env_step', 'model', 'tool', 'retrieval', 'reward', 'evaluator', 'dataset', 'preprocessing', 'postprocessing', 'checkpoint', 'artifact', 'system', 'custom'], toString(kind)) AS kind,
    transform(status, [0, 1, 2, 3], ['', 'ok', 'error', 'interrupted'], toString(status)) AS status,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    transform(capture, [0, 1, 2], ['', 'off', 'preview'], toString(capture)) AS capture,
    transform(redaction_state, [0, 1, 2], ['', 'nothing_to_redact', 'redacted'], toString(redaction_state)) AS redaction_state,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM spans;

CREATE VIEW IF NOT EXISTS tensor_stats_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    transform(role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'weight', 'grad', 'activation', 'activation_grad', 'update', 'optimizer_state', 'buffer'], toString(role)) AS role,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM tensor_stats;

CREATE VIEW IF NOT EXISTS scalars_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM scalars;

CREATE VIEW IF NOT EXISTS modules_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM modules;

CREATE VIEW IF NOT EXISTS events_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    transform(severity, [0, 1, 2, 3, 4], ['', 'debug', 'info', 'warning', 'error'], toString(severity)) AS severity,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM events;

CREATE VIEW IF NOT EXISTS gaps_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    transform(class, [0, 1, 2], ['', 'lost', 'not_captured'], toString(class)) AS class,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM gaps;

CREATE VIEW IF NOT EXISTS runs_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    transform(status, [0, 1, 2, 3, 4], ['', 'running', 'finished', 'failed', 'interrupted'], toString(status)) AS status,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM runs;

CREATE VIEW IF NOT EXISTS open_spans_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM open_spans;
