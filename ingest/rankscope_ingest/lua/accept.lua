#!lua
-- Accepts one sealed batch: the watermark, the entry and the byte budget change together or not at
-- all, so a marker never outlives its data nor data its marker. Safe to repeat. Not allow-oom: a
-- full broker refuses it before its first write, and the sender is asked to wait.
--
-- A sender whose base passes the watermark declares what lies between lost, and never sends it again.
-- If it comes all the same, two senders share an incarnation (or one forged a base), and "duplicate"
-- would be a lie. So the state keeps the last jump: below `jumped` the watermark is `behind`, where
-- the sender that was passed over goes on; below `floor` nothing is known any more, and a batch
-- from there is a conflict. An honest sender alone only ever is at or above `jumped`. What is durable
-- is known of that part only; below it the answer is 0.
--
-- KEYS: stream, state of the incarnation (hash), bytes held by the shard, quarantine (hash)
-- ARGV: payload, incarnation, seq, digest, rows, week, base, budget bytes, lifetime of the state (s),
--       bytes that the rows take once each carries its own text
-- Returns {outcome, accepted, durable, bytes held}; outcome as in Ack.Outcome, 0 for no room.
local REMEMBERED, MOST_KEPT = 128, 8
local payload, incarnation, seq, digest = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local base, budget, lifetime = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local whole = function(number) return string.format('%.0f', number) end
local slot, mark = 'digest:' .. (seq % REMEMBERED), ARGV[3] .. ':'

local state = redis.call('HMGET', KEYS[2], 'accepted', 'durable', slot, 'floor', 'behind', 'jumped')
local floor, behind, jumped = tonumber(state[4] or 0), tonumber(state[5] or 0), tonumber(state[6] or 0)
local lane = seq < jumped and 'behind' or 'accepted'
local accepted = seq < jumped and behind or tonumber(state[1] or 0)
local durable = lane == 'accepted' and tonumber(state[2] or 0) or 0
local held = tonumber(redis.call('GET', KEYS[3]) or 0)

if seq < accepted then
  local known = state[3] and string.sub(state[3], 1, #mark) == mark
  if seq < floor or (known and state[3] ~= mark .. digest) then
    if redis.call('HLEN', KEYS[4]) < MOST_KEPT then
      redis.call('HSETNX', KEYS[4], incarnation .. ':' .. mark .. digest, payload)
      redis.call('EXPIRE', KEYS[4], lifetime)
    end
    return {4, seq < floor and seq + 1 or accepted, durable, held}
  end
  return {2, accepted, durable, held}
end

-- What lies below the sender's base is durable or declared lost: it is not waited for.
if seq > accepted and seq ~= base then
  return {3, math.max(accepted, base), durable, held}
end

-- One batch always fits into an empty shard, or a batch above the budget could never pass.
if held > 0 and held + #payload > budget then
  return {0, math.max(accepted, base), durable, held}
end

redis.call('XADD', KEYS[1], '*', 'payload', payload, 'incarnation', incarnation, 'seq', ARGV[3],
  'digest', digest, 'rows', ARGV[5], 'week', ARGV[6], 'expanded', ARGV[10])
if seq > accepted and lane == 'behind' then
  redis.call('HSET', KEYS[2], 'floor', ARGV[3])
elseif seq > accepted then
  redis.call('HSET', KEYS[2], 'floor', whole(jumped), 'behind', whole(accepted), 'jumped', ARGV[3])
end
redis.call('HSET', KEYS[2], lane, whole(seq + 1), slot, mark .. digest)
redis.call('EXPIRE', KEYS[2], lifetime)
held = redis.call('INCRBY', KEYS[3], #payload)
return {1, seq + 1, durable, held}
