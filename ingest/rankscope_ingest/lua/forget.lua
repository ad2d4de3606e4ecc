#!lua flags=allow-oom
-- Forgets a manifest once no shard of it is begun any more; another one under the same key stays.
--
-- KEYS: manifest, then what is begun in each of its shards
-- ARGV: the manifest's token, what its shards note as begun
-- Returns 1 when it was forgotten.
for i = 2, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[2] then
    return 0
  end
end
local text = redis.call('GET', KEYS[1])
if text and string.find(text, ARGV[1], 1, true) then
  return redis.call('DEL', KEYS[1])
end
return 0
