#!lua flags=allow-oom
-- Keeps what a writer is about to insert, if it still holds every shard concerned; else keeps nothing.
--
-- KEYS: manifest, then for each shard its lease and what is begun in it
-- ARGV: the manifest's text, lifetime (s), writer's id, what to note as begun, then a fence for each shard
-- Returns the positions (from 1) of the shards that are not the caller's.
local lost = {}
for i = 1, (#KEYS - 1) / 2 do
  local holder = redis.call('HMGET', KEYS[i * 2], 'id', 'fence')
  if holder[1] ~= ARGV[3] or holder[2] ~= ARGV[4 + i] then
    lost[#lost + 1] = i
  end
end
if #lost > 0 then
  return lost
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
for i = 1, (#KEYS - 1) / 2 do
  redis.call('SET', KEYS[1 + i * 2], ARGV[4], 'EX', ARGV[2])
end
return lost
