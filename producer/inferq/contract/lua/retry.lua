#!lua
-- Take a request off the dead list and let it run again, alone.
--
-- KEYS[1] {Q}:dead, list - requests given up on, newest right
-- KEYS[2] {Q}:reply:ID, string - its reply, pending again
-- KEYS[3] {Q}:suspects, list - deaths|message
-- KEYS[4] Q, list - the normal lane, on which idle workers wait
-- ARGV[1] entry, bytes - the dead entry as it is on the list
-- ARGV[2] message, bytes - the request in it
-- ARGV[3] mark life, ms - how long the pending mark lives, at least a second
--
-- Returns 1 - the request waits again, with no deaths
-- Returns 0 - the entry is not there
--
-- Twice: the entry is gone.

local dead, reply, suspects, normal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local entry, message, life_ms = ARGV[1], ARGV[2], math.max(1000, tonumber(ARGV[3]))

-- Fails on a key of another type while the entry is still where it was.
redis.call('LLEN', suspects)
if redis.call('LREM', dead, 1, entry) == 0 then
  return 0
end
redis.call('SET', reply, '', 'PX', life_ms)
redis.call('RPUSH', suspects, '0|' .. message)
if redis.pcall('LLEN', normal) == 0 then
  redis.call('RPUSH', normal, '')
end
return 1
