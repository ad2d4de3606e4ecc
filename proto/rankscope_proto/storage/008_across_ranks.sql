-- Schema version 5. Stores have applied this text: it never changes again.
--
-- Collectives, clocks, figures of nodes, and where processes stand.
ALTER TABLE batches
    ADD COLUMN IF NOT EXISTS `emitted_collectives` UInt64 AFTER `emitted_captures`,
    ADD COLUMN IF NOT EXISTS `emitted_clocks` UInt64 AFTER `emitted_collectives`,
    ADD COLUMN IF NOT EXISTS `emitted_system_stats` UInt64 AFTER `emitted_clocks`,
    ADD COLUMN IF NOT EXISTS `emitted_standings` UInt64 AFTER `emitted_system_stats`,
    ADD COLUMN IF NOT EXISTS `rows_collectives` UInt32 AFTER `rows_captures`,
    ADD COLUMN IF NOT EXISTS `rows_clocks` UInt32 AFTER `rows_collectives`,
    ADD COLUMN IF NOT EXISTS `rows_system_stats` UInt32 AFTER `rows_clocks`,
    ADD COLUMN IF NOT EXISTS `rows_standings` UInt32 AFTER `rows_system_stats`;

CREATE TABLE IF NOT EXISTS collectives
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
    `entry` Int64,
    `exit` Nullable(Int64),
    `group` LowCardinality(String),
    `group_ranks` LowCardinality(String),
    `cseq` UInt64,
    `op` LowCardinality(String),
    `entry_source` LowCardinality(String),
    `exit_source` LowCardinality(String),
    `device` Nullable(Int64),
    `bytes` UInt64,
    `dtype` LowCardinality(String),
    `shape` LowCardinality(String),
    `reduction` LowCardinality(String),
    `step` Nullable(Int64),
    `microstep` UInt32,
    `phase` UInt8,
    `module` LowCardinality(String),
    `flags` UInt32
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, ifNull(step, -1), group, cseq, rank)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS clocks
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
    `of_hi` UInt64,
    `of_lo` UInt64,
    `offset` Int64,
    `error` Int64,
    `drift` Nullable(Int64),
    `rtt` Int64,
    `samples` UInt32,
    `server` LowCardinality(String)
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, of_hi, of_lo, time)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS system_stats
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
    `device` LowCardinality(String),
    `value` Float64,
    `time` Int64
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, name, node, device, time)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS standings
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
    `of_hi` UInt64,
    `of_lo` UInt64,
    `state` LowCardinality(String),
    `group` LowCardinality(String),
    `enqueued` UInt64,
    `completed` UInt64,
    `op` LowCardinality(String),
    `shape` LowCardinality(String),
    `since` Nullable(Int64),
    `step` Nullable(Int64),
    `phase` UInt8,
    `stack` String
)
ENGINE = MergeTree
PARTITION BY week
ORDER BY (project, run_id, of_hi, of_lo, time)
TTL toDateTime(intDiv(time, 1000000000), 'UTC') + INTERVAL 1 DAY
SETTINGS non_replicated_deduplication_window = 10000;

ALTER TABLE landing
    ADD COLUMN IF NOT EXISTS `header_emitted_collectives` UInt64 AFTER `header_emitted_captures`,
    ADD COLUMN IF NOT EXISTS `header_emitted_clocks` UInt64 AFTER `header_emitted_collectives`,
    ADD COLUMN IF NOT EXISTS `header_emitted_system_stats` UInt64 AFTER `header_emitted_clocks`,
    ADD COLUMN IF NOT EXISTS `header_emitted_standings` UInt64 AFTER `header_emitted_system_stats`,
    ADD COLUMN IF NOT EXISTS `collectives_entry` Array(Int64) AFTER `captures_present`,
    ADD COLUMN IF NOT EXISTS `collectives_exit` Array(Int64) AFTER `collectives_entry`,
    ADD COLUMN IF NOT EXISTS `collectives_group` Array(UInt32) AFTER `collectives_exit`,
    ADD COLUMN IF NOT EXISTS `collectives_group_ranks` Array(UInt32) AFTER `collectives_group`,
    ADD COLUMN IF NOT EXISTS `collectives_cseq` Array(UInt64) AFTER `collectives_group_ranks`,
    ADD COLUMN IF NOT EXISTS `collectives_op` Array(UInt32) AFTER `collectives_cseq`,
    ADD COLUMN IF NOT EXISTS `collectives_entry_source` Array(UInt32) AFTER `collectives_op`,
    ADD COLUMN IF NOT EXISTS `collectives_exit_source` Array(UInt32) AFTER `collectives_entry_source`,
    ADD COLUMN IF NOT EXISTS `collectives_device` Array(Int64) AFTER `collectives_exit_source`,
    ADD COLUMN IF NOT EXISTS `collectives_bytes` Array(UInt64) AFTER `collectives_device`,
    ADD COLUMN IF NOT EXISTS `collectives_dtype` Array(UInt32) AFTER `collectives_bytes`,
    ADD COLUMN IF NOT EXISTS `collectives_shape` Array(UInt32) AFTER `collectives_dtype`,
    ADD COLUMN IF NOT EXISTS `collectives_reduction` Array(UInt32) AFTER `collectives_shape`,
    ADD COLUMN IF NOT EXISTS `collectives_step` Array(Int64) AFTER `collectives_reduction`,
    ADD COLUMN IF NOT EXISTS `collectives_microstep` Array(UInt32) AFTER `collectives_step`,
    ADD COLUMN IF NOT EXISTS `collectives_phase` Array(UInt32) AFTER `collectives_microstep`,
    ADD COLUMN IF NOT EXISTS `collectives_module` Array(UInt32) AFTER `collectives_phase`,
    ADD COLUMN IF NOT EXISTS `collectives_flags` Array(UInt32) AFTER `collectives_module`,
    ADD COLUMN IF NOT EXISTS `collectives_present` Array(UInt64) AFTER `collectives_flags`,
    ADD COLUMN IF NOT EXISTS `clocks_time` Array(Int64) AFTER `collectives_present`,
    ADD COLUMN IF NOT EXISTS `clocks_of_hi` Array(UInt64) AFTER `clocks_time`,
    ADD COLUMN IF NOT EXISTS `clocks_of_lo` Array(UInt64) AFTER `clocks_of_hi`,
    ADD COLUMN IF NOT EXISTS `clocks_offset` Array(Int64) AFTER `clocks_of_lo`,
    ADD COLUMN IF NOT EXISTS `clocks_error` Array(Int64) AFTER `clocks_offset`,
    ADD COLUMN IF NOT EXISTS `clocks_drift` Array(Int64) AFTER `clocks_error`,
    ADD COLUMN IF NOT EXISTS `clocks_rtt` Array(Int64) AFTER `clocks_drift`,
    ADD COLUMN IF NOT EXISTS `clocks_samples` Array(UInt32) AFTER `clocks_rtt`,
    ADD COLUMN IF NOT EXISTS `clocks_server` Array(UInt32) AFTER `clocks_samples`,
    ADD COLUMN IF NOT EXISTS `clocks_present` Array(UInt64) AFTER `clocks_server`,
    ADD COLUMN IF NOT EXISTS `system_stats_name` Array(UInt32) AFTER `clocks_present`,
    ADD COLUMN IF NOT EXISTS `system_stats_device` Array(UInt32) AFTER `system_stats_name`,
    ADD COLUMN IF NOT EXISTS `system_stats_value` Array(Float64) AFTER `system_stats_device`,
    ADD COLUMN IF NOT EXISTS `system_stats_time` Array(Int64) AFTER `system_stats_value`,
    ADD COLUMN IF NOT EXISTS `standings_time` Array(Int64) AFTER `system_stats_time`,
    ADD COLUMN IF NOT EXISTS `standings_of_hi` Array(UInt64) AFTER `standings_time`,
    ADD COLUMN IF NOT EXISTS `standings_of_lo` Array(UInt64) AFTER `standings_of_hi`,
    ADD COLUMN IF NOT EXISTS `standings_state` Array(UInt32) AFTER `standings_of_lo`,
    ADD COLUMN IF NOT EXISTS `standings_group` Array(UInt32) AFTER `standings_state`,
    ADD COLUMN IF NOT EXISTS `standings_enqueued` Array(UInt64) AFTER `standings_group`,
    ADD COLUMN IF NOT EXISTS `standings_completed` Array(UInt64) AFTER `standings_enqueued`,
    ADD COLUMN IF NOT EXISTS `standings_op` Array(UInt32) AFTER `standings_completed`,
    ADD COLUMN IF NOT EXISTS `standings_shape` Array(UInt32) AFTER `standings_op`,
    ADD COLUMN IF NOT EXISTS `standings_since` Array(Int64) AFTER `standings_shape`,
    ADD COLUMN IF NOT EXISTS `standings_step` Array(Int64) AFTER `standings_since`,
    ADD COLUMN IF NOT EXISTS `standings_phase` Array(UInt32) AFTER `standings_step`,
    ADD COLUMN IF NOT EXISTS `standings_stack` Array(String) AFTER `standings_phase`,
    ADD COLUMN IF NOT EXISTS `standings_present` Array(UInt64) AFTER `standings_stack`;

ALTER TABLE landing_probe
    ADD COLUMN IF NOT EXISTS `header_emitted_collectives` UInt64 AFTER `header_emitted_captures`,
    ADD COLUMN IF NOT EXISTS `header_emitted_clocks` UInt64 AFTER `header_emitted_collectives`,
    ADD COLUMN IF NOT EXISTS `header_emitted_system_stats` UInt64 AFTER `header_emitted_clocks`,
    ADD COLUMN IF NOT EXISTS `header_emitted_standings` UInt64 AFTER `header_emitted_system_stats`,
    ADD COLUMN IF NOT EXISTS `collectives_entry` Array(Int64) AFTER `captures_present`,
    ADD COLUMN IF NOT EXISTS `collectives_exit` Array(Int64) AFTER `collectives_entry`,
    ADD COLUMN IF NOT EXISTS `collectives_group` Array(UInt32) AFTER `collectives_exit`,
    ADD COLUMN IF NOT EXISTS `collectives_group_ranks` Array(UInt32) AFTER `collectives_group`,
    ADD COLUMN IF NOT EXISTS `collectives_cseq` Array(UInt64) AFTER `collectives_group_ranks`,
    ADD COLUMN IF NOT EXISTS `collectives_op` Array(UInt32) AFTER `collectives_cseq`,
    ADD COLUMN IF NOT EXISTS `collectives_entry_source` Array(UInt32) AFTER `collectives_op`,
    ADD COLUMN IF NOT EXISTS `collectives_exit_source` Array(UInt32) AFTER `collectives_entry_source`,
    ADD COLUMN IF NOT EXISTS `collectives_device` Array(Int64) AFTER `collectives_exit_source`,
    ADD COLUMN IF NOT EXISTS `collectives_bytes` Array(UInt64) AFTER `collectives_device`,
    ADD COLUMN IF NOT EXISTS `collectives_dtype` Array(UInt32) AFTER `collectives_bytes`,
    ADD COLUMN IF NOT EXISTS `collectives_shape` Array(UInt32) AFTER `collectives_dtype`,
    ADD COLUMN IF NOT EXISTS `collectives_reduction` Array(UInt32) AFTER `collectives_shape`,
    ADD COLUMN IF NOT EXISTS `collectives_step` Array(Int64) AFTER `collectives_reduction`,
    ADD COLUMN IF NOT EXISTS `collectives_microstep` Array(UInt32) AFTER `collectives_step`,
    ADD COLUMN IF NOT EXISTS `collectives_phase` Array(UInt32) AFTER `collectives_microstep`,
    ADD COLUMN IF NOT EXISTS `collectives_module` Array(UInt32) AFTER `collectives_phase`,
    ADD COLUMN IF NOT EXISTS `collectives_flags` Array(UInt32) AFTER `collectives_module`,
    ADD COLUMN IF NOT EXISTS `collectives_present` Array(UInt64) AFTER `collectives_flags`,
    ADD COLUMN IF NOT EXISTS `clocks_time` Array(Int64) AFTER `collectives_present`,
    ADD COLUMN IF NOT EXISTS `clocks_of_hi` Array(UInt64) AFTER `clocks_time`,
    ADD COLUMN IF NOT EXISTS `clocks_of_lo` Array(UInt64) AFTER `clocks_of_hi`,
    ADD COLUMN IF NOT EXISTS `clocks_offset` Array(Int64) AFTER `clocks_of_lo`,
    ADD COLUMN IF NOT EXISTS `clocks_error` Array(Int64) AFTER `clocks_offset`,
    ADD COLUMN IF NOT EXISTS `clocks_drift` Array(Int64) AFTER `clocks_error`,
    ADD COLUMN IF NOT EXISTS `clocks_rtt` Array(Int64) AFTER `clocks_drift`,
    ADD COLUMN IF NOT EXISTS `clocks_samples` Array(UInt32) AFTER `clocks_rtt`,
    ADD COLUMN IF NOT EXISTS `clocks_server` Array(UInt32) AFTER `clocks_samples`,
    ADD COLUMN IF NOT EXISTS `clocks_present` Array(UInt64) AFTER `clocks_server`,
    ADD COLUMN IF NOT EXISTS `system_stats_name` Array(UInt32) AFTER `clocks_present`,
    ADD COLUMN IF NOT EXISTS `system_stats_device` Array(UInt32) AFTER `system_stats_name`,
    ADD COLUMN IF NOT EXISTS `system_stats_value` Array(Float64) AFTER `system_stats_device`,
    ADD COLUMN IF NOT EXISTS `system_stats_time` Array(Int64) AFTER `system_stats_value`,
    ADD COLUMN IF NOT EXISTS `standings_time` Array(Int64) AFTER `system_stats_time`,
    ADD COLUMN IF NOT EXISTS `standings_of_hi` Array(UInt64) AFTER `standings_time`,
    ADD COLUMN IF NOT EXISTS `standings_of_lo` Array(UInt64) AFTER `standings_of_hi`,
    ADD COLUMN IF NOT EXISTS `standings_state` Array(UInt32) AFTER `standings_of_lo`,
    ADD COLUMN IF NOT EXISTS `standings_group` Array(UInt32) AFTER `standings_state`,
    ADD COLUMN IF NOT EXISTS `standings_enqueued` Array(UInt64) AFTER `standings_group`,
    ADD COLUMN IF NOT EXISTS `standings_completed` Array(UInt64) AFTER `standings_enqueued`,
    ADD COLUMN IF NOT EXISTS `standings_op` Array(UInt32) AFTER `standings_completed`,
    ADD COLUMN IF NOT EXISTS `standings_shape` Array(UInt32) AFTER `standings_op`,
    ADD COLUMN IF NOT EXISTS `standings_since` Array(Int64) AFTER `standings_shape`,
    ADD COLUMN IF NOT EXISTS `standings_step` Array(Int64) AFTER `standings_since`,
    ADD COLUMN IF NOT EXISTS `standings_phase` Array(UInt32) AFTER `standings_step`,
    ADD COLUMN IF NOT EXISTS `standings_stack` Array(String) AFTER `standings_phase`,
    ADD COLUMN IF NOT EXISTS `standings_present` Array(UInt64) AFTER `standings_stack`;

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
    header_emitted_collectives AS emitted_collectives,
    header_emitted_clocks AS emitted_clocks,
    header_emitted_system_stats AS emitted_system_stats,
    header_emitted_standings AS emitted_standings,
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
    toUInt32(length(collectives_entry)) AS rows_collectives,
    toUInt32(length(clocks_time)) AS rows_clocks,
    toUInt32(length(system_stats_name)) AS rows_system_stats,
    toUInt32(length(standings_time)) AS rows_standings,
    received,
    toDate(header_week) AS week
FROM landing;

CREATE MATERIALIZED VIEW IF NOT EXISTS collectives_from_landing TO collectives AS
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
    c_entry AS `entry`,
    if(bitTest(c_present, 0), c_exit, NULL) AS `exit`,
    strings[c_group + 1] AS `group`,
    strings[c_group_ranks + 1] AS `group_ranks`,
    c_cseq AS `cseq`,
    strings[c_op + 1] AS `op`,
    strings[c_entry_source + 1] AS `entry_source`,
    strings[c_exit_source + 1] AS `exit_source`,
    if(bitTest(c_present, 1), c_device, NULL) AS `device`,
    c_bytes AS `bytes`,
    strings[c_dtype + 1] AS `dtype`,
    strings[c_shape + 1] AS `shape`,
    strings[c_reduction + 1] AS `reduction`,
    if(bitTest(c_present, 2), c_step, NULL) AS `step`,
    c_microstep AS `microstep`,
    toUInt8(c_phase) AS `phase`,
    strings[c_module + 1] AS `module`,
    c_flags AS `flags`
FROM landing
ARRAY JOIN
    arrayEnumerate(collectives_entry) AS row_number,
    arrayResize(collectives_entry, length(collectives_entry)) AS c_entry,
    arrayResize(collectives_exit::Array(Nullable(Int64)), length(collectives_entry), NULL) AS c_exit,
    arrayResize(collectives_group, length(collectives_entry)) AS c_group,
    arrayResize(collectives_group_ranks, length(collectives_entry)) AS c_group_ranks,
    arrayResize(collectives_cseq, length(collectives_entry)) AS c_cseq,
    arrayResize(collectives_op, length(collectives_entry)) AS c_op,
    arrayResize(collectives_entry_source, length(collectives_entry)) AS c_entry_source,
    arrayResize(collectives_exit_source, length(collectives_entry)) AS c_exit_source,
    arrayResize(collectives_device::Array(Nullable(Int64)), length(collectives_entry), NULL) AS c_device,
    arrayResize(collectives_bytes, length(collectives_entry)) AS c_bytes,
    arrayResize(collectives_dtype, length(collectives_entry)) AS c_dtype,
    arrayResize(collectives_shape, length(collectives_entry)) AS c_shape,
    arrayResize(collectives_reduction, length(collectives_entry)) AS c_reduction,
    arrayResize(collectives_step::Array(Nullable(Int64)), length(collectives_entry), NULL) AS c_step,
    arrayResize(collectives_microstep, length(collectives_entry)) AS c_microstep,
    arrayResize(collectives_phase, length(collectives_entry)) AS c_phase,
    arrayResize(collectives_module, length(collectives_entry)) AS c_module,
    arrayResize(collectives_flags, length(collectives_entry)) AS c_flags,
    if(empty(collectives_present), arrayWithConstant(length(collectives_entry), bitNot(toUInt64(0))), arrayResize(collectives_present, length(collectives_entry))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS clocks_from_landing TO clocks AS
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
    c_of_hi AS `of_hi`,
    c_of_lo AS `of_lo`,
    c_offset AS `offset`,
    c_error AS `error`,
    if(bitTest(c_present, 0), c_drift, NULL) AS `drift`,
    c_rtt AS `rtt`,
    c_samples AS `samples`,
    strings[c_server + 1] AS `server`
FROM landing
ARRAY JOIN
    arrayEnumerate(clocks_time) AS row_number,
    arrayResize(clocks_time, length(clocks_time)) AS c_time,
    arrayResize(clocks_of_hi, length(clocks_time)) AS c_of_hi,
    arrayResize(clocks_of_lo, length(clocks_time)) AS c_of_lo,
    arrayResize(clocks_offset, length(clocks_time)) AS c_offset,
    arrayResize(clocks_error, length(clocks_time)) AS c_error,
    arrayResize(clocks_drift::Array(Nullable(Int64)), length(clocks_time), NULL) AS c_drift,
    arrayResize(clocks_rtt, length(clocks_time)) AS c_rtt,
    arrayResize(clocks_samples, length(clocks_time)) AS c_samples,
    arrayResize(clocks_server, length(clocks_time)) AS c_server,
    if(empty(clocks_present), arrayWithConstant(length(clocks_time), bitNot(toUInt64(0))), arrayResize(clocks_present, length(clocks_time))) AS c_present;

CREATE MATERIALIZED VIEW IF NOT EXISTS system_stats_from_landing TO system_stats AS
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
    strings[c_device + 1] AS `device`,
    c_value AS `value`,
    c_time AS `time`
FROM landing
ARRAY JOIN
    arrayEnumerate(system_stats_name) AS row_number,
    arrayResize(system_stats_name, length(system_stats_name)) AS c_name,
    arrayResize(system_stats_device, length(system_stats_name)) AS c_device,
    arrayResize(system_stats_value, length(system_stats_name)) AS c_value,
    arrayResize(system_stats_time, length(system_stats_name)) AS c_time;

CREATE MATERIALIZED VIEW IF NOT EXISTS standings_from_landing TO standings AS
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
    c_of_hi AS `of_hi`,
    c_of_lo AS `of_lo`,
    strings[c_state + 1] AS `state`,
    strings[c_group + 1] AS `group`,
    c_enqueued AS `enqueued`,
    c_completed AS `completed`,
    strings[c_op + 1] AS `op`,
    strings[c_shape + 1] AS `shape`,
    if(bitTest(c_present, 0), c_since, NULL) AS `since`,
    if(bitTest(c_present, 1), c_step, NULL) AS `step`,
    toUInt8(c_phase) AS `phase`,
    c_stack AS `stack`
FROM landing
ARRAY JOIN
    arrayEnumerate(standings_time) AS row_number,
    arrayResize(standings_time, length(standings_time)) AS c_time,
    arrayResize(standings_of_hi, length(standings_time)) AS c_of_hi,
    arrayResize(standings_of_lo, length(standings_time)) AS c_of_lo,
    arrayResize(standings_state, length(standings_time)) AS c_state,
    arrayResize(standings_group, length(standings_time)) AS c_group,
    arrayResize(standings_enqueued, length(standings_time)) AS c_enqueued,
    arrayResize(standings_completed, length(standings_time)) AS c_completed,
    arrayResize(standings_op, length(standings_time)) AS c_op,
    arrayResize(standings_shape, length(standings_time)) AS c_shape,
    arrayResize(standings_since::Array(Nullable(Int64)), length(standings_time), NULL) AS c_since,
    arrayResize(standings_step::Array(Nullable(Int64)), length(standings_time), NULL) AS c_step,
    arrayResize(standings_phase, length(standings_time)) AS c_phase,
    arrayResize(standings_stack, length(standings_time)) AS c_stack,
    if(empty(standings_present), arrayWithConstant(length(standings_time), bitNot(toUInt64(0))), arrayResize(standings_present, length(standings_time))) AS c_present;

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

CREATE OR REPLACE VIEW collectives_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM collectives;

CREATE OR REPLACE VIEW clocks_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM clocks;

CREATE OR REPLACE VIEW system_stats_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM system_stats;

CREATE OR REPLACE VIEW standings_named AS
SELECT * REPLACE (
    transform(process_role, [0, 1, 2, 3, 4, 5, 6, 7], ['', 'trainer', 'worker', 'actor', 'server', 'client', 'launcher', 'agent'], toString(process_role)) AS process_role,
    transform(phase, [0, 1, 2, 3, 4, 5], ['', 'input', 'forward', 'backward', 'optimizer', 'other'], toString(phase)) AS phase,
    lower(hex(incarnation)) AS incarnation,
    lower(hex(launch_id)) AS launch_id
)
FROM standings;
