#!lua
-- Accepts one sealed batch: the watermark, the entry and the byte budget change together or not at
-- all, so a marker never outlives its data nor data its marker. Safe to repeat. Not allow-oom: a
-- full broker refuses it before its first write, and the sender is asked to wait.
--
-- KEYS: stream, state of the incarnation (hash), bytes held by the shard, quarantine (hash)
-- ARGV: payload, incarnation, seq, digest, rows, week, base, budget bytes, lifetime of the state (s),
--       bytes that the rows take once each carries its own text
-- Returns {outcome, accepted, durable, bytes held}; outcome as in Ack.Outcome, 0 for no room.
local REMEMBERED = 128
local payload, incarnation, seq, digest = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local base, budget, lifetime = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local slot = 'digest:' .. (seq % REMEMBERED)

local state = redis.call('HMGET', KEYS[2], 'accepted', 'durable', slot)
local accepted, durable = tonumber(state[1] or 0), tonumber(state[2] or 0)
local held = tonumber(redis.call('GET', KEYS[3]) or 0)

if seq < accepted then
  if seq + REMEMBERED >= accepted and state[3] and state[3] ~= digest then
    redis.call('HSETNX', KEYS[4], incarnation .. ':' .. ARGV[3] .. ':' .. digest, payload)
    redis.call('EXPIRE', KEYS[4], lifetime)
    return {4, accepted, durable, held}
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
redis.call('HSET', KEYS[2], 'accepted', string.format('%.0f', seq + 1), slot, digest)
redis.call('EXPIRE', KEYS[2], lifetime)
held = redis.call('INCRBY', KEYS[3], #payload)
return {1, seq + 1, durable, held}
