#!lua flags=allow-oom
-- Makes a shard's consumer group; safe to repeat. allow-oom: a writer that starts on a full broker
-- must be able to drain it, and XGROUP CREATE is refused there even where the group exists.
--
-- KEYS: stream
-- ARGV: consumer group
local answer = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if type(answer) == 'table' and answer.err and not string.find(answer.err, 'BUSYGROUP') then
  return answer
end
return 1
