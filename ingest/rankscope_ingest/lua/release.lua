#!lua flags=allow-oom
-- Gives a claim back, if it is still the caller's.
--
-- KEYS: claim (hash)
-- ARGV: holder's id
-- Returns 1 when it was given back.
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
