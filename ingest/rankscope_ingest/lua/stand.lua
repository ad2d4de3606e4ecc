#!lua flags=no-writes
-- Where incarnations of one shard stand. What is durable was accepted, also where the rest of a state was lost.
-- Of an incarnation that two senders share, nothing is called durable: one of them would let go of what only it holds.
--
-- KEYS: states of the incarnations (hashes)
-- Returns accepted and durable of each, one after the other.
local answer = {}
for i = 1, #KEYS do
  local state = redis.call('HMGET', KEYS[i], 'accepted', 'durable', 'contested')
  local durable = tonumber(state[2] or 0)
  answer[#answer + 1] = math.max(tonumber(state[1] or 0), durable)
  answer[#answer + 1] = state[3] and 0 or durable
end
return answer
