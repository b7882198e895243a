#!lua flags=allow-oom
-- Set the requests of one worker free, if it is gone, and forget the worker.
--
-- KEYS[1] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- KEYS[2] {Q}:claims, hash - claimed list -> its record
-- KEYS[3] {Q}:closed, hash - worker id -> its highest closed claim number
-- KEYS[4] {Q}:suspects, list - deaths|message
-- KEYS[5] {Q}:returned, list - handed back; taken before every lane
-- KEYS[6] Q, list - the normal lane, on which idle workers wait
-- KEYS[7] {Q}:dead, list - requests given up on, newest right
-- KEYS[8] {Q}:metrics, hash - counters; here: recovered, dead
-- KEYS[9] {Q}:worker:WORKER, hash - what the worker told about itself; from now on, that it is gone
-- KEYS[10...] {Q}:claimed:WORKER:N, list - its claims, in any order; another's are left alone
-- ARGV[1] worker id - whose claims to free
-- ARGV[2] how - lapsed: only if its lease has ended; dead: its parent saw it die; leave: it says
--   goodbye
-- ARGV[3] longest lease, ms - one that ends later is cut, after a step of the clock
-- ARGV[4] limit, requests - a call moves about so many
-- ARGV[5] last resort, deaths - a request that reaches so many goes to the dead list, unanswered
-- ARGV[6] dead cap, entries - older ones are cut
--
-- Returns {moved, more} - requests moved; 1 if the lists named here hold more
--
-- Twice: every step empties what it reads. The worker is unknown from the first step on, which
-- fences whatever it still sends; that it is gone stays on record for a minute, longer than what it
-- sent can be under way, so that a late join does not bring it back. A live worker loses only what
-- late commands left in closed claims.

local workers, claims, closed, suspects, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local normal, dead, metrics, information = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local worker, how, longest_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, last_resort, dead_cap = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_end = tonumber(redis.call('ZSCORE', workers, worker) or 0)
if lease_end > now_ms + longest_ms then
  lease_end = now_ms + longest_ms
  redis.call('ZADD', workers, lease_end, worker)
end
local alive = how == 'lapsed' and lease_end > now_ms
if not alive then
  redis.call('ZREM', workers, worker)
  redis.call('UNLINK', information)
  redis.call('HSET', information, 'state', 'gone')
  redis.call('PEXPIRE', information, 60000)
end

local moved, recovered, buried = 0, 0, 0

-- As they are, from the tail, each to a head.
local function hand_back(list, left, suspect)
  while left > 0 and moved < limit do
    local home = suspect and left == 1 and suspects or returned
    redis.call('LMOVE', list, home, 'RIGHT', 'LEFT')
    left, moved = left - 1, moved + 1
  end
  return left
end

local function bury(deaths, message)
  local entry = string.format(
    '{"reason":"it was running whenever its worker died","code":"crashed","attempts":%d,'
      .. '"at_ms":%.0f,"bytes":%d}\n',
    deaths,
    now_ms,
    #message
  )
  redis.call('RPUSH', dead, entry .. string.sub(message, 1, 1048576))
  redis.call('LTRIM', dead, -dead_cap, -1)
  buried = buried + 1
end

-- To the tail of suspects, with one more death.
local function charge(message, deaths)
  deaths = deaths + 1
  if deaths >= last_resort then
    bury(deaths, message)
  else
    redis.call('RPUSH', suspects, string.format('%d|', deaths) .. message)
  end
  recovered = recovered + 1
end

local function free_suspect(list, started)
  local element = redis.call('LINDEX', list, 0)
  if started then
    local deaths, message = string.match(element, '^(%d+)|(.*)$')
    charge(message or element, tonumber(deaths or 0))
  else
    redis.call('RPUSH', suspects, element)
  end
  redis.call('LPOP', list)
  redis.call('HSET', claims, list, worker)
  moved = moved + 1
end

local function free(list, left, record, suspect)
  if suspect then
    free_suspect(list, record == worker .. ' started')
    left = left - 1
  end
  while left > 0 and moved < limit do
    charge(redis.call('LINDEX', list, 0), 0)
    redis.call('LPOP', list)
    left, moved = left - 1, moved + 1
  end
  return left
end

local lists = {}
for at = 10, #KEYS do
  -- The name is enough: a list may have lost its record, never its name.
  local owner, number = string.match(KEYS[at], ':claimed:([%w._-]+):(%d+)$')
  if owner == worker then
    local record = redis.call('HGET', claims, KEYS[at])
    lists[#lists + 1] = { key = KEYS[at], number = tonumber(number), record = record }
  end
end
-- What goes to a head goes newest first, what goes to a tail oldest first: the order is kept.
local to_head = alive or how == 'leave'
table.sort(lists, function(one, other)
  if to_head then
    one, other = other, one
  end
  return one.number < other.number
end)

local last_closed = tonumber(redis.call('HGET', closed, worker) or 0)
local more = 0
for _, list in ipairs(lists) do
  local key, record = list.key, list.record
  redis.call('LREM', key, 0, '')
  local left = redis.call('LLEN', key)
  local suspect = false
  if left > 0 then
    -- The prefix decides only where the record was deleted by hand; see claim.
    suspect = string.find(record or redis.call('LINDEX', key, 0), record and ' ' or '^%d+|') ~= nil
  end
  if alive and list.number > last_closed then
    if left > 0 and not record then
      redis.call('HSET', claims, key, suspect and worker .. ' suspect' or worker)
    end
  else
    if to_head then
      left = hand_back(key, left, suspect)
    else
      left = free(key, left, record, suspect)
    end
    if left == 0 then
      redis.call('HDEL', claims, key)
    else
      more = 1
    end
  end
end

if not alive then
  local remains = more == 1
  for _, record in ipairs(redis.call('HVALS', claims)) do
    remains = remains or string.match(record, '^%S+') == worker
  end
  if not remains then
    redis.call('HDEL', closed, worker)
  end
end
if recovered > 0 then
  redis.pcall('HINCRBY', metrics, 'recovered', recovered)
end
if buried > 0 then
  redis.pcall('HINCRBY', metrics, 'dead', buried)
end
if redis.pcall('LLEN', normal) == 0 then
  if redis.call('LLEN', returned) + redis.call('LLEN', suspects) > 0 then
    redis.call('RPUSH', normal, '')
  end
end
return { moved, more }
