-- Tables only: the wire stays at schema version 4. Stores have applied this text: it never changes again.
--
-- An index of the traces of spans: a trace is found by its id without reading the ids of the run.
ALTER TABLE spans
    ADD INDEX IF NOT EXISTS trace_ids trace_lo TYPE bloom_filter(0.01) GRANULARITY 1;

ALTER TABLE spans
    MATERIALIZE INDEX trace_ids;
