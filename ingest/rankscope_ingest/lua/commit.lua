#!lua flags=allow-oom
-- Forgets the entries of one shard once they are durable, and says so to their senders, if the caller holds the
-- shard. Safe to repeat: what is gone is not counted twice. allow-oom: a full broker must be able to drain.
--
-- A durable watermark moves only over what was stored without a hole. An entry behind a hole (its predecessors
-- vanished from the stream: a foreign XTRIM, XDEL or DEL) sets `accepted` back to `durable`: the sender, which keeps
-- everything that is not durable, learns it from its next answer and sends from there.
--
-- KEYS: stream, bytes held by the shard, lease, what is begun in it, then the states of the incarnations concerned
-- ARGV: writer's id, fence, lifetime of a state (s), then for each entry its id, bytes, position of its state
--       (1-based) and seq, in stream order
-- Returns {1, entries that were still there, incarnations set back}, or {0, 0, 0} when the shard is not the caller's.
local lifetime = ARGV[3]
local holder = redis.call('HMGET', KEYS[3], 'id', 'fence')
if holder[1] ~= ARGV[1] or holder[2] ~= ARGV[2] then
  return {0, 0, 0}
end

local whole = function(number) return string.format('%.0f', number) end
local states = {}
for i = 5, #KEYS do
  local state = redis.call('HMGET', KEYS[i], 'accepted', 'durable', 'jumped')
  local durable = tonumber(state[2] or 0)
  states[i - 4] = {key = KEYS[i], exists = state[1], before = durable, durable = durable, jumped = tonumber(state[3] or 0), seqs = {}}
end

local freed, gone = 0, 0
for i = 4, #ARGV, 4 do
  local seqs = states[tonumber(ARGV[i + 2])].seqs
  seqs[#seqs + 1] = tonumber(ARGV[i + 3])
  if redis.call('XDEL', KEYS[1], ARGV[i]) == 1 then
    freed = freed + tonumber(ARGV[i + 1])
    gone = gone + 1
  end
end

local set_back = 0
for _, state in ipairs(states) do
  table.sort(state.seqs) -- a batch that was taken up again stands behind later ones
  for _, seq in ipairs(state.seqs) do
    if seq == state.durable or (seq > state.durable and seq <= state.jumped) then
      state.durable = seq + 1
    elseif seq > state.durable then
      state.hole = true
    end
  end
  if state.exists and state.durable > state.before then
    redis.call('HSET', state.key, 'durable', whole(state.durable))
    redis.call('EXPIRE', state.key, lifetime)
  end
  if state.exists and state.hole then
    redis.call('HSET', state.key, 'accepted', whole(state.durable), 'durable', whole(state.durable))
    set_back = set_back + 1
  end
end

if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
elseif freed > 0 then
  redis.call('DECRBY', KEYS[2], freed)
end
redis.call('DEL', KEYS[4])
return {1, gone, set_back}
