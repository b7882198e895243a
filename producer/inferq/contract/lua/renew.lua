#!lua flags=allow-oom
-- Prolong the leases of workers, of those only that are known.
--
-- KEYS[1] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- KEYS[2...] {Q}:worker:WORKER, hash - one for each worker, in the order of the ids
-- ARGV[1] lease, ms - how long from now on they count as alive
-- ARGV[2] information life, ms - at least a second
-- ARGV[3...] worker id - whose leases to prolong
--
-- Returns {known...} - for each worker: 1 its lease begins anew, 0 it is unknown and stays so
--
-- Twice: the same again. A late copy prolongs a member that has died by one lease at most.

local workers = KEYS[1]
local lease_ms, life_ms = tonumber(ARGV[1]), math.max(1000, tonumber(ARGV[2]))

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local known = {}
for at = 3, #ARGV do
  local worker, information = ARGV[at], KEYS[at - 1]
  local is_known = redis.call('ZSCORE', workers, worker)
  if is_known then
    redis.call('ZADD', workers, now_ms + lease_ms, worker)
    redis.call('PEXPIRE', information, life_ms)
  end
  known[#known + 1] = is_known and 1 or 0
end
return known
