#!lua flags=no-writes
-- Where incarnations of one shard stand. What is durable was accepted, also where the rest of a state was lost.
-- Of an incarnation that two senders share, nothing is called durable: one of them would let go of what only it holds.
--
-- A stream may have lost entries at its front (DEL, XTRIM by hand) while the watermark stayed. Where the first batch
-- that is not durable is certainly gone, no more than what is durable is called accepted: its sender goes on from
-- there, asks for each again, and accept.lua takes up what the stream does not hold.
--
-- KEYS: stream, then states of the incarnations (hashes)
-- Returns accepted and durable of each, one after the other.
local REMEMBERED, DIGEST_BYTES = 128, 16
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]

local function is_before_the_first(id)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  local first_ms, first_number = string.match(first[1], '^(%d+)%-(%d+)$')
  ms, first_ms = tonumber(ms), tonumber(first_ms)
  return ms < first_ms or (ms == first_ms and tonumber(number) < tonumber(first_number))
end

-- The id under which the batch of that seq entered; nil where it is forgotten. Ids grow with seq, so that of the
-- oldest batch remembered bounds those before it.
local function id_of(state, seq)
  local text = redis.call('HGET', state, 'digest:' .. string.format('%.0f', seq % REMEMBERED))
  local of, id = string.match(text or '', '^(%d+):' .. string.rep('.', DIGEST_BYTES) .. '(%d+%-%d+)$')
  return tonumber(of) == seq and id or nil
end

local function is_gone(state, durable, accepted)
  if not first then
    return true
  end
  local id = id_of(state, durable) or id_of(state, accepted - REMEMBERED)
  return id ~= nil and is_before_the_first(id)
end

local answer = {}
for i = 2, #KEYS do
  local state = redis.call('HMGET', KEYS[i], 'accepted', 'durable', 'contested')
  local durable = tonumber(state[2] or 0)
  local accepted = math.max(tonumber(state[1] or 0), durable)
  if accepted > durable and is_gone(KEYS[i], durable, accepted) then
    accepted = durable
  end
  answer[#answer + 1] = accepted
  answer[#answer + 1] = state[3] and 0 or durable
end
return answer
