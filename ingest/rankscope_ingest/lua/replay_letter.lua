#!lua
-- Puts a dead letter into its stream again and forgets it, in one step: it is in one of the two places, never in both.
-- Not allow-oom: a full broker drains first.
--
-- KEYS: letters (stream), bytes they take, mark of this one, stream of its shard, bytes held by the shard
-- ARGV: id of the letter
-- Returns 1 when it was there.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then
  return 0
end
local size, letter = 0, {}
local parts = found[1][2]
for i = 1, #parts, 2 do
  letter[parts[i]] = parts[i + 1]
  size = size + #parts[i] + #parts[i + 1]
end
redis.call('XADD', KEYS[4], '*', 'payload', letter.payload, 'incarnation', letter.incarnation, 'seq', letter.seq,
  'digest', letter.digest, 'rows', letter.rows, 'week', letter.week, 'expanded', letter.expanded, 'again', '1')
redis.call('INCRBY', KEYS[5], #letter.payload)
redis.call('DEL', KEYS[3])
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('DECRBY', KEYS[2], size)
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[2])
end
return 1
