#!lua flags=allow-oom
-- Forgets the entries of one shard once they are durable, and says so to their senders. Safe to
-- repeat: what is gone is not counted twice. allow-oom: a full broker must be able to drain.
--
-- KEYS: stream, bytes held by the shard, then the states of the incarnations concerned
-- ARGV: consumer group, lifetime of a state (s), one durable seq for each state, then id and bytes of each entry
-- Returns the number of entries that were still there.
local group, lifetime = ARGV[1], ARGV[2]

for i = 3, #KEYS do
  local durable = ARGV[i]
  if tonumber(redis.call('HGET', KEYS[i], 'durable') or 0) < tonumber(durable) then
    redis.call('HSET', KEYS[i], 'durable', durable)
    redis.call('EXPIRE', KEYS[i], lifetime)
  end
end

local freed, gone = 0, 0
for i = #KEYS + 1, #ARGV, 2 do
  redis.call('XACK', KEYS[1], group, ARGV[i])
  if redis.call('XDEL', KEYS[1], ARGV[i]) == 1 then
    freed = freed + tonumber(ARGV[i + 1])
    gone = gone + 1
  end
end

if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
elseif freed > 0 then
  redis.call('DECRBY', KEYS[2], freed)
end
return gone
