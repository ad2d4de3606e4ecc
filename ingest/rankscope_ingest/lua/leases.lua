#!lua flags=allow-oom
-- Renews what a writer holds, shows it alive, and gives it free shards up to its share, in one step: so two
-- writers never hold one shard. allow-oom: a full broker must not make live leases lapse.
--
-- A shard is free when its lease lapsed, was given back, or belongs to a writer known to be dead. Each taking draws
-- a new fence; manifest and commit name it, so what an earlier holder still has in hand is refused. It is at least the
-- broker's clock in µs: one that was emptied must not draw the same fences again.
--
-- KEYS: fence counter, living writers (sorted by last sight in ms), then for each shard its lease (hash) and the mark
--       of an orderly hand-over
-- ARGV: writer's id, what to show of it, lifetime of a lease (ms), what identifies the broker's process, ids of dead
--       writers between blanks, 1 to take free shards or 0
-- Returns {living writers, then for each shard {fence or 0, 'kept', 'clean', 'taken' or 'other', what its holder shows}}
local id, shown, lifetime, broker, dead, may_take = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6] == '1'
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

if may_take then
  redis.call('ZADD', KEYS[2], now_ms, id)
else
  redis.call('ZREM', KEYS[2], id)
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms - lifetime)
redis.call('ZREMRANGEBYSCORE', KEYS[2], now_ms + lifetime, '+inf') -- the clock was set back
for name in string.gmatch(dead, '%S+') do
  redis.call('ZREM', KEYS[2], name)
end
redis.call('PEXPIRE', KEYS[2], lifetime)
local writers = redis.call('ZCARD', KEYS[2])
local shards = (#KEYS - 2) / 2
local share = may_take and math.ceil(shards / writers) or 0

local answer, free, held = {writers}, {}, 0
for shard = 1, shards do
  local lease = KEYS[1 + shard * 2]
  local holder = redis.call('HMGET', lease, 'id', 'fence', 'shown')
  if holder[1] == id then
    redis.call('PEXPIRE', lease, lifetime)
    answer[shard + 1] = {tonumber(holder[2]), 'kept', ''}
    held = held + 1
  elseif holder[1] and not string.find(dead, ' ' .. holder[1] .. ' ', 1, true) then
    answer[shard + 1] = {0, 'other', holder[3]}
  else
    answer[shard + 1] = {0, 'other', ''}
    free[#free + 1] = shard
  end
end

for _, shard in ipairs(free) do
  if held < share then
    local lease, mark = KEYS[1 + shard * 2], KEYS[2 + shard * 2]
    local fence = string.format('%.0f', math.max(redis.call('INCR', KEYS[1]), now[1] * 1000000 + now[2]))
    redis.call('SET', KEYS[1], fence)
    local how = redis.call('GET', mark) == broker and 'clean' or 'taken'
    redis.call('DEL', mark)
    redis.call('HSET', lease, 'id', id, 'fence', fence, 'shown', shown)
    redis.call('PEXPIRE', lease, lifetime)
    answer[shard + 1] = {tonumber(fence), how, ''}
    held = held + 1
  end
end
return answer
