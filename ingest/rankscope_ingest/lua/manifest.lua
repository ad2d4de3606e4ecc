#!lua flags=allow-oom
-- Keeps, or with an empty text forgets, what the writer is about to insert.
--
-- KEYS: manifest
-- ARGV: its text
if ARGV[1] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
