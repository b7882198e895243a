#!lua flags=allow-oom
-- Make a worker known, or open its next claim before anything can be moved into it.
--
-- KEYS[1] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- KEYS[2] {Q}:claims, hash - claimed list -> its record
-- KEYS[3] {Q}:claimed:WORKER:N, list - the claim to open
-- KEYS[4] {Q}:worker:WORKER, hash - what the worker tells about itself
-- ARGV[1] worker id - one that was never used before, for join
-- ARGV[2] lease, ms - how long from now on the worker counts as alive
-- ARGV[3] verb - join: become known, once for each id; open: record the claim
-- ARGV[4] information life, ms - at least a second
-- ARGV[5...] field, value - what the worker tells about itself, in pairs
--
-- Returns 1 - the worker is known, and its lease begins anew
-- Returns 0 - join: the id is gone for ever. open: the worker is unknown; the claim is recorded all
--   the same
--
-- Twice: the same values again. A late open leaves an empty record, which recover sweeps; a late
-- join finds on record that the worker is gone.
--
-- Sent with its source, never by hash: the BLMOVE behind it in a flight runs even if this is
-- refused, and would move a request that nobody owns.

local workers, claims, claimed, information = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local worker, lease_ms, verb = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local life_ms = math.max(1000, tonumber(ARGV[4]))

if verb == 'open' then
  -- Also for an unknown worker: the BLMOVE behind this call will not ask.
  redis.call('HSETNX', claims, claimed, worker)
  if not redis.call('ZSCORE', workers, worker) then
    return 0
  end
elseif redis.call('HGET', information, 'state') == 'gone' then
  -- Known again, but with its closed numbers forgotten, it would let late copies of its claims and
  -- completions pass: requests would be taken, and dropped unanswered.
  return 0
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', workers, now_ms + lease_ms, worker)
if #ARGV > 4 then
  redis.call('HSET', information, unpack(ARGV, 5))
end
redis.call('PEXPIRE', information, life_ms)
return 1
