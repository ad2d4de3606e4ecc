#!lua flags=allow-oom
-- Gives a shard back, if it is still the caller's. The mark of an orderly hand-over says that nothing of the shard is
-- begun: the next holder need not look for its entries in the store, as long as the broker is the same process.
--
-- KEYS: lease, mark of an orderly hand-over
-- ARGV: writer's id, fence, what identifies the broker's process or '' for no mark, lifetime of the mark (s)
-- Returns 1 when it was given back.
local holder = redis.call('HMGET', KEYS[1], 'id', 'fence')
if holder[1] ~= ARGV[1] or holder[2] ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '' then
  redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[4])
end
return 1
