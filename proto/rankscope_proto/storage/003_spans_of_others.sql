-- Schema version 3. Stores have applied this text: it never changes again.
--
-- A rank that the program names for a span; which trace an event's span is of; traces and kinds of open spans.
ALTER TABLE events
    ADD COLUMN IF NOT EXISTS `trace_hi` UInt64 AFTER `step`,
    ADD COLUMN IF NOT EXISTS `trace_lo` UInt64 AFTER `trace_hi`;

ALTER TABLE open_spans
    ADD COLUMN IF NOT EXISTS `stack_trace_hi` Array(UInt64) AFTER `step`,
    ADD COLUMN IF NOT EXISTS `stack_trace_lo` Array(UInt64) AFTER `stack_trace_hi`,
    ADD COLUMN IF NOT EXISTS `stack_kind` Array(UInt32) AFTER `stack_trace_lo`;

ALTER TABLE landing
    ADD COLUMN IF NOT EXISTS `spans_stated_rank` Array(Int32) AFTER `spans_present`,
    ADD COLUMN IF NOT EXISTS `events_trace_hi` Array(UInt64) AFTER `events_present`,
    ADD COLUMN IF NOT EXISTS `events_trace_lo` Array(UInt64) AFTER `events_trace_hi`,
    ADD COLUMN IF NOT EXISTS `open_spans_stack_trace_hi` Array(UInt64) AFTER `open_spans_present`,
    ADD COLUMN IF NOT EXISTS `open_spans_stack_trace_lo` Array(UInt64) AFTER `open_spans_stack_trace_hi`,
    ADD COLUMN IF NOT EXISTS `open_spans_stack_kind` Array(UInt32) AFTER `open_spans_stack_trace_lo`;

ALTER TABLE landing_probe
    ADD COLUMN IF NOT EXISTS `spans_stated_rank` Array(Int32) AFTER `spans_present`,
    ADD COLUMN IF NOT EXISTS `events_trace_hi` Array(UInt64) AFTER `events_present`,
    ADD COLUMN IF NOT EXISTS `events_trace_lo` Array(UInt64) AFTER `events_trace_hi`,
    ADD COLUMN IF NOT EXISTS `open_spans_stack_trace_hi` Array(UInt64) AFTER `open_spans_present`,
    ADD COLUMN IF NOT EXISTS `open_spans_stack_trace_lo` Array(UInt64) AFTER `open_spans_stack_trace_hi`,
    ADD COLUMN IF NOT EXISTS `open_spans_stack_kind` Array(UInt32) AFTER `open_spans_stack_trace_lo`;

ALTER TABLE spans_from_landing MODIFY QUERY
SELECT
    header_project AS project,
    header_run_id AS run_id,
    header_launch_id AS launch_id,
    ifNull(if(bitTest(c_present, 2), c_stated_rank, NULL), header_rank) AS rank,
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
    if(empty(spans_present), arrayWithConstant(length(spans_span_id), bitNot(toUInt64(0))), arrayResize(spans_present, length(spans_span_id))) AS c_present,
    arrayResize(spans_stated_rank::Array(Nullable(Int32)), length(spans_span_id), NULL) AS c_stated_rank;

ALTER TABLE events_from_landing MODIFY QUERY
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
    if(bitTest(c_present, 0), c_step, NULL) AS `step`,
    c_trace_hi AS `trace_hi`,
    c_trace_lo AS `trace_lo`
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
    if(empty(events_present), arrayWithConstant(length(events_time), bitNot(toUInt64(0))), arrayResize(events_present, length(events_time))) AS c_present,
    arrayResize(events_trace_hi, length(events_time)) AS c_trace_hi,
    arrayResize(events_trace_lo, length(events_time)) AS c_trace_lo;

ALTER TABLE open_spans_from_landing MODIFY QUERY
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
    if(bitTest(c_present, 0), c_step, NULL) AS `step`,
    c_stack_trace_hi AS `stack_trace_hi`,
    c_stack_trace_lo AS `stack_trace_lo`,
    c_stack_kind AS `stack_kind`
FROM (
    SELECT
        *,
        arrayResize(open_spans_stack_span_id, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start), length(open_spans_stack_trace_hi), length(open_spans_stack_trace_lo), length(open_spans_stack_kind))) AS open_spans_stack_span_id_flat,
        arrayMap(i -> strings[i + 1], arrayResize(open_spans_stack_name, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start), length(open_spans_stack_trace_hi), length(open_spans_stack_trace_lo), length(open_spans_stack_kind)))) AS open_spans_stack_name_flat,
        arrayResize(open_spans_stack_start, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start), length(open_spans_stack_trace_hi), length(open_spans_stack_trace_lo), length(open_spans_stack_kind))) AS open_spans_stack_start_flat,
        arrayResize(open_spans_stack_trace_hi, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start), length(open_spans_stack_trace_hi), length(open_spans_stack_trace_lo), length(open_spans_stack_kind))) AS open_spans_stack_trace_hi_flat,
        arrayResize(open_spans_stack_trace_lo, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start), length(open_spans_stack_trace_hi), length(open_spans_stack_trace_lo), length(open_spans_stack_kind))) AS open_spans_stack_trace_lo_flat,
        arrayResize(open_spans_stack_kind, greatest(length(open_spans_stack_span_id), length(open_spans_stack_name), length(open_spans_stack_start), length(open_spans_stack_trace_hi), length(open_spans_stack_trace_lo), length(open_spans_stack_kind))) AS open_spans_stack_kind_flat,
        arrayMap((n, e) -> arraySlice(open_spans_stack_span_id_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_span_id_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_name_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_name_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_start_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_start_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_trace_hi_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_trace_hi_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_trace_lo_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_trace_lo_rows,
        arrayMap((n, e) -> arraySlice(open_spans_stack_kind_flat, e - n + 1, n), arrayResize(open_spans_stack_n, length(open_spans_heartbeat)), arrayCumSum(arrayResize(open_spans_stack_n, length(open_spans_heartbeat)))) AS open_spans_stack_kind_rows
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
    if(empty(open_spans_present), arrayWithConstant(length(open_spans_heartbeat), bitNot(toUInt64(0))), arrayResize(open_spans_present, length(open_spans_heartbeat))) AS c_present,
    open_spans_stack_trace_hi_rows AS c_stack_trace_hi,
    open_spans_stack_trace_lo_rows AS c_stack_trace_lo,
    open_spans_stack_kind_rows AS c_stack_kind;

ALTER TABLE trace_index_from_landing MODIFY QUERY
SELECT
    header_project AS project,
    header_run_id AS run_id,
    trace_hi,
    trace_lo,
    groupUniqArrayIf(step, has_step) AS steps,
    groupUniqArray(ifNull(stated_rank, header_rank)) AS ranks,
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
       arrayMap(p -> bitTest(p, 0), arrayResize(spans_present, length(spans_span_id)))) AS has_step,
    arrayMap((r, p) -> if(bitTest(p, 2), r, NULL),
       arrayResize(spans_stated_rank::Array(Nullable(Int32)), length(spans_span_id), NULL),
       if(empty(spans_present), arrayWithConstant(length(spans_span_id), bitNot(toUInt64(0))),
          arrayResize(spans_present, length(spans_span_id)))) AS stated_rank
GROUP BY project, run_id, trace_hi, trace_lo, week;

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
