#!lua flags=allow-oom
-- Withdraw a request that is not answered yet, by writing its reply.
--
-- KEYS[1] {Q}:reply:ID, string - its reply, empty while it is pending
-- KEYS[2] {Q}:cancelled, string - tells workers to look at the replies of what they claim
-- KEYS[3] {Q}:metrics, hash - counters; here: requests_cancelled
-- ARGV[1] reply, bytes - the cancelled reply, the same bytes whenever this id is cancelled
-- ARGV[2] hint life, ms - at least a second
--
-- Returns 1 - the request is cancelled
-- Returns 0 - too late: it is answered
-- Returns -1 - unknown: never submitted, or so long ago that mark and reply have expired
--
-- Twice: the second run recognises its own bytes and answers as the first did.

local reply, cancelled, metrics = KEYS[1], KEYS[2], KEYS[3]
local written, life_ms = ARGV[1], math.max(1000, tonumber(ARGV[2]))

if redis.call('EXISTS', reply) == 0 then
  return -1
end
local size = redis.call('STRLEN', reply)
if size > 0 then
  -- Compared by size first: the reply of a model may be large.
  return size == #written and redis.call('GET', reply) == written and 1 or 0
end
redis.call('SET', reply, written, 'KEEPTTL')
redis.call('SET', cancelled, '1', 'PX', life_ms)
redis.pcall('HINCRBY', metrics, 'requests_cancelled', 1)
return 1
