#!lua flags=allow-oom
-- Hand back what a claim holds behind its first requests, in order, to the head of a list.
--
-- KEYS[1] {Q}:claimed:WORKER:N, list - the claim
-- KEYS[2] {Q}:claims, hash - claimed list -> its record
-- KEYS[3] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- KEYS[4] {Q}:closed, hash - worker id -> its highest closed claim number
-- KEYS[5] {Q}:returned, list - handed back; taken before every lane
-- KEYS[6] {Q}:suspects, list - deaths|message
-- KEYS[7] Q, list - the normal lane, on which idle workers wait
-- ARGV[1] worker id - whose claim it is
-- ARGV[2] claim number - the N of the claim
-- ARGV[3] keep, requests - so many stay, and the claim is not filled again; 0 drops the claim, and
--   leaves its number open
-- ARGV[4] how - unstarted: to returned, a suspect to suspects as it is; started: to suspects with
--   one more death
--
-- Returns moved - how many requests were handed back
-- Returns -1 - fenced: the claim is over
--
-- Twice: without the list the fence fails. With requests kept, their number is absolute: a late
-- copy moves only what was added since, which nobody has seen. Release the newest claim first.

local claimed, claims, workers, closed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local returned, suspects, normal = KEYS[5], KEYS[6], KEYS[7]
local worker, number, keep, how = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local head = redis.call('LINDEX', claimed, 0)
local over = not head
  or not redis.call('ZSCORE', workers, worker)
  or number <= tonumber(redis.call('HGET', closed, worker) or 0)
if over then
  return -1
end

-- The prefix decides only where the record was deleted by hand; see claim.
local record = redis.call('HGET', claims, claimed)
local suspect = string.find(record or head, record and ' ' or '^%d+|') ~= nil

local function charge(is_suspect)
  local deaths, message = 0, redis.call('LINDEX', claimed, -1)
  if is_suspect then
    local counted, rest = string.match(message, '^(%d+)|(.*)$')
    deaths, message = tonumber(counted or 0), rest or message
  end
  redis.call('LPUSH', suspects, string.format('%d|', deaths + 1) .. message)
  redis.call('RPOP', claimed)
end

redis.call('LREM', claimed, 0, '')
local moved = 0
for place = redis.call('LLEN', claimed), keep + 1, -1 do
  local is_suspect = suspect and place == 1
  if how == 'started' then
    charge(is_suspect)
  else
    local home = is_suspect and suspects or returned
    redis.call('LMOVE', claimed, home, 'RIGHT', 'LEFT')
  end
  moved = moved + 1
end
if keep == 0 then
  redis.call('HDEL', claims, claimed)
end

if redis.pcall('LLEN', normal) == 0 then
  if redis.call('LLEN', returned) + redis.call('LLEN', suspects) > 0 then
    redis.call('RPUSH', normal, '')
  end
end
return moved
