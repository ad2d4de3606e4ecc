#!lua flags=allow-oom
-- Forgets a letter and its mark; safe to repeat.
--
-- KEYS: letters (stream), bytes they take, mark of this one
-- ARGV: id
-- Returns 1 when it was there.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
redis.call('DEL', KEYS[3])
if #found == 0 then
  return 0
end
local size = 0
for _, part in ipairs(found[1][2]) do
  size = size + #part
end
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('DECRBY', KEYS[2], size)
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[2])
end
return 1
