#!lua flags=allow-oom
-- Keeps a batch that cannot go on, unless it is kept already or there is no room. allow-oom: a batch
-- that blocks a full broker must be able to leave its stream; the bound on all letters holds all the same.
--
-- KEYS: letters (stream), bytes they take, mark of this one
-- ARGV: most bytes of all letters, lifetime of the mark (s), then fields and values
-- Returns the letter's id, '' where there is no room, 'kept' where it was kept before.
local size, fields = 0, {}
for i = 3, #ARGV do
  fields[#fields + 1] = ARGV[i]
  size = size + #ARGV[i]
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'kept'
end
if tonumber(redis.call('GET', KEYS[2]) or 0) + size > tonumber(ARGV[1]) then
  return ''
end
local id = redis.call('XADD', KEYS[1], '*', unpack(fields))
redis.call('INCRBY', KEYS[2], size)
redis.call('SET', KEYS[3], id, 'EX', ARGV[2])
return id
