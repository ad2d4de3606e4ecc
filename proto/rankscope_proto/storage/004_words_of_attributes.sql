-- Tables only: the wire stays at schema version 3. Stores have applied this text: it never changes again.
--
-- An index of the text attributes of spans, and codecs for what counts up or lies close together.
ALTER TABLE spans
    ADD INDEX IF NOT EXISTS attribute_words arrayMap((k, v) -> concat(toString(length(k)), ':', k, v), mapKeys(attributes), mapValues(attributes)) TYPE text(tokenizer = 'array');

ALTER TABLE spans
    MATERIALIZE INDEX attribute_words;

ALTER TABLE spans
    MODIFY COLUMN `idx` CODEC(Delta, Default),
    MODIFY COLUMN `span_id` CODEC(Delta, Default),
    MODIFY COLUMN `start` CODEC(T64, Default),
    MODIFY COLUMN `duration` CODEC(T64, Default);

ALTER TABLE tensor_stats
    MODIFY COLUMN `idx` CODEC(Delta, Default),
    MODIFY COLUMN `time` CODEC(T64, Default);
