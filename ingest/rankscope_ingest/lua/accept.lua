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
-- is known of that part only; below it the answer is 0, and `contested` says that somebody sends there.
--
-- What is durable was accepted, also where the broker lost the rest of the state and the writer
-- committed after that what it had read before.
--
-- Data can also be lost inside a stream (DEL, XTRIM, XDEL by hand) while the watermark stays. Its
-- sender, which hears of no progress, asks again; where the entry is provably gone the batch enters
-- once more, and the writer, told by `again`, looks for it in the store before it inserts.
--
-- KEYS: stream, state of the incarnation (hash), bytes held by the shard
-- ARGV: payload, incarnation, seq, digest, rows, week, base, budget bytes, lifetime of the state (s),
--       bytes that the rows take once each carries its own text, '1' where it may have been accepted before
-- Returns {outcome, accepted, durable, bytes held}; outcome as in Ack.Outcome, 0 for no room.
local REMEMBERED, DIGEST_BYTES = 128, 16
local payload, incarnation, seq, digest = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local base, budget, lifetime, again = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[11] == '1'
local whole = function(number) return string.format('%.0f', number) end
local slot, mark = 'digest:' .. (seq % REMEMBERED), ARGV[3] .. ':'

local state = redis.call('HMGET', KEYS[2], 'accepted', 'durable', slot, 'floor', 'behind', 'jumped')
local floor, behind, jumped = tonumber(state[4] or 0), tonumber(state[5] or 0), tonumber(state[6] or 0)
local lane = seq < jumped and 'behind' or 'accepted'
local durable = lane == 'accepted' and tonumber(state[2] or 0) or 0
local accepted = seq < jumped and behind or math.max(tonumber(state[1] or 0), durable)
local held = tonumber(redis.call('GET', KEYS[3]) or 0)
if held > 0 and redis.call('XLEN', KEYS[1]) == 0 then
  held = 0 -- the stream was emptied by hand: no commit will ever give back what it had held
end
local known = state[3] and string.sub(state[3], 1, #mark) == mark and string.sub(state[3], #mark + 1)

-- The id under which a slot's batch entered; nil where none is remembered.
local function id_in(text)
  local id = text and string.match(text, '^%d+:' .. string.rep('.', DIGEST_BYTES) .. '(%d+%-%d+)$')
  return id or nil
end

-- Whether the entry of an accepted batch is certainly no longer in the stream. Where its own id is
-- forgotten, that of the oldest batch remembered bounds it: ids grow with seq.
local function is_gone()
  local id = known and id_in(state[3])
  if id then
    return #redis.call('XRANGE', KEYS[1], id, id) == 0
  end
  local oldest = id_in(redis.call('HGET', KEYS[2], 'digest:' .. (accepted % REMEMBERED)))
  return #redis.call('XRANGE', KEYS[1], '-', oldest or '+', 'COUNT', 1) == 0
end

-- One batch always fits into an empty shard, or a batch above the budget could never pass.
local function has_room()
  return held == 0 or held + #payload <= budget
end

local function enter()
  local id = redis.call('XADD', KEYS[1], '*', 'payload', payload, 'incarnation', incarnation, 'seq', ARGV[3],
    'digest', digest, 'rows', ARGV[5], 'week', ARGV[6], 'expanded', ARGV[10], 'again', ARGV[11])
  redis.call('HSET', KEYS[2], slot, mark .. digest .. id)
  held = held + #payload
  redis.call('SET', KEYS[3], whole(held))
end

if seq < accepted then
  if seq < floor or (known and string.sub(known, 1, DIGEST_BYTES) ~= digest) then
    return {4, seq < floor and seq + 1 or accepted, durable, held}
  end
  if not (again and lane == 'accepted' and seq >= durable and is_gone()) then
    return {2, accepted, durable, held}
  end
  if not has_room() then
    return {0, seq, durable, held}
  end
  enter()
  redis.call('EXPIRE', KEYS[2], lifetime)
  return {1, accepted, durable, held}
end

-- What lies below the sender's base is durable or declared lost: it is not waited for.
if seq > accepted and seq ~= base then
  return {3, math.max(accepted, base), durable, held}
end

if not has_room() then
  return {0, math.max(accepted, base), durable, held}
end

enter()
if lane == 'behind' then
  redis.call('HSET', KEYS[2], 'contested', '1')
end
if seq > accepted and lane == 'behind' then
  redis.call('HSET', KEYS[2], 'floor', ARGV[3])
elseif seq > accepted then
  redis.call('HSET', KEYS[2], 'floor', whole(jumped), 'behind', whole(accepted), 'jumped', ARGV[3])
end
redis.call('HSET', KEYS[2], lane, whole(seq + 1))
redis.call('EXPIRE', KEYS[2], lifetime)
return {1, seq + 1, durable, held}
