#!lua flags=allow-oom
-- Takes or keeps a claim. allow-oom: a full broker must not make live claims lapse.
--
-- KEYS: claim (hash)
-- ARGV: holder's id, what to show of it, lifetime (ms), id of a holder known to be dead or ''
-- Returns nil when the claim is the caller's, else what the holder shows.
local holder = redis.call('HMGET', KEYS[1], 'id', 'shown')
if holder[1] and holder[1] ~= ARGV[1] and holder[1] ~= ARGV[4] then
  return holder[2]
end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'shown', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return false
