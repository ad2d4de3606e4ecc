-- Tables only: the wire stays at schema version 3. Stores have applied this text: it never changes again.
--
-- The last end of a trace is not before any of its starts, whatever the duration that a client wrote.
ALTER TABLE trace_index_from_landing MODIFY QUERY
SELECT
    header_project AS project,
    header_run_id AS run_id,
    trace_hi,
    trace_lo,
    groupUniqArrayIf(step, has_step) AS steps,
    groupUniqArray(ifNull(stated_rank, header_rank)) AS ranks,
    min(start) AS first_start,
    max(multiIf(duration < 0, start, start + duration < start, toInt64(9223372036854775807), start + duration)) AS last_end,
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
