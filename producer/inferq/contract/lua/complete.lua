#!lua flags=allow-oom
-- Write the replies of a claim, each unless one is there, and close the claim with its last part.
--
-- KEYS[1] {Q}:claimed:WORKER:N, list - the claim
-- KEYS[2] {Q}:claims, hash - claimed list -> its record
-- KEYS[3] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- KEYS[4] {Q}:closed, hash - worker id -> its highest closed claim number
-- KEYS[5] {Q}:metrics, hash - counters
-- KEYS[6] {Q}:dead, list - requests given up on, newest right
-- KEYS[7] {Q}:returned, list - handed back; taken before every lane
-- KEYS[8] {Q}:suspects, list - deaths|message
-- KEYS[9] Q, list - the normal lane, on which idle workers wait
-- KEYS[10...] {Q}:reply:ID, string - one for each reply
-- KEYS[10+replies...] {Q}:inbox:BOX, list - one for each box
-- ARGV[1] worker id - empty for a batch that was never claimed (at most once)
-- ARGV[2] claim number - the N of the claim
-- ARGV[3] held, requests - what the worker was given; 0 if further parts follow
-- ARGV[4] replies - how many, at most 1,000
-- ARGV[5] boxes - how many
-- ARGV[6] inbox life, ms - at least a second
-- ARGV[7] inbox cap, ids - older ones are cut
-- ARGV[8] dead cap, entries - older ones are cut
-- ARGV[9...] life (ms), outcome (counter), reply - for each reply; a life is at least a second; an
--   empty reply stands for one that was written before. Then, for each box: count, id... Then, for
--   the closing part: count, dead entry... and to the end: counter, increment
--
-- Returns written - how many replies were written
-- Returns -1 - fenced: the claim is over, by an earlier copy of this call or by a recovery
--
-- Twice: the closing part fails the fence, since it closed the number. Another part finds its
-- replies written, and only what it writes is counted.

local claimed, claims, workers, closed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local metrics, dead, returned, suspects, normal = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local worker, number, held = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local replies, boxes = tonumber(ARGV[4]), tonumber(ARGV[5])
local inbox_ms, inbox_cap = math.max(1000, tonumber(ARGV[6])), tonumber(ARGV[7])
local dead_cap = tonumber(ARGV[8])

local length = 0
if worker ~= '' then
  length = redis.call('LLEN', claimed)
  local over = length == 0
    or not redis.call('ZSCORE', workers, worker)
    or number <= tonumber(redis.call('HGET', closed, worker) or 0)
  if over then
    return -1
  end
end

local counts = {}
local function count(field)
  counts[field] = (counts[field] or 0) + 1
end

-- A client names these keys and may have made something else of them, so every write is a pcall.
local function write(key, reply, life_ms)
  if reply == '' then
    return 'discarded'
  end
  local size = redis.pcall('STRLEN', key)
  if size == 0 then
    return redis.pcall('SET', key, reply, 'PX', life_ms).err and 'unwritable' or 'written'
  end
  return type(size) == 'number' and 'discarded' or 'unwritable'
end

local written = 0
local at = 9
for reply = 1, replies do
  -- The text as it came: formatting a number anew is a tenth of this script's time on Redis 7.0.
  local life_ms = (tonumber(ARGV[at]) or 0) < 1000 and '1000' or ARGV[at]
  local fate = write(KEYS[9 + reply], ARGV[at + 2], life_ms)
  if fate == 'written' then
    written = written + 1
    fate = ARGV[at + 1]
  end
  count(fate)
  at = at + 3
end

for box = 1, boxes do
  local inbox = KEYS[9 + replies + box]
  local ids = tonumber(ARGV[at])
  local size = redis.pcall('RPUSH', inbox, unpack(ARGV, at + 1, at + ids))
  if type(size) ~= 'number' then
    count('unwritable')
  else
    if size > inbox_cap then
      redis.call('LTRIM', inbox, -inbox_cap, -1)
    end
    redis.call('PEXPIRE', inbox, inbox_ms)
  end
  at = at + 1 + ids
end

if held > 0 or worker == '' then
  local entries = tonumber(ARGV[at])
  -- A thousand at a time: Lua's unpack stops near 8,000, and a claim may be all junk.
  for first = 1, entries, 1000 do
    local last = math.min(first + 999, entries)
    local size = redis.pcall('RPUSH', dead, unpack(ARGV, at + first, at + last))
    if type(size) ~= 'number' then
      count('unwritable')
    elseif size > dead_cap then
      redis.call('LTRIM', dead, -dead_cap, -1)
    end
  end
  for at = at + 1 + entries, #ARGV, 2 do
    if type(redis.pcall('HINCRBY', metrics, ARGV[at], ARGV[at + 1])) ~= 'number' then
      count('unwritable')
    end
  end
end
for field, increment in pairs(counts) do
  redis.pcall('HINCRBY', metrics, field, increment)
end

-- The claim goes last: whatever stops this script before leaves it to be completed again.
if held > 0 and worker ~= '' then
  for _ = held + 1, length do
    if redis.call('LMOVE', claimed, returned, 'RIGHT', 'LEFT') == '' then
      redis.call('LPOP', returned)
    end
  end
  redis.call('UNLINK', claimed)
  redis.call('HDEL', claims, claimed)
  redis.call('HSET', closed, worker, number)
  if redis.pcall('LLEN', normal) == 0 then
    if redis.call('LLEN', returned) + redis.call('LLEN', suspects) > 0 then
      redis.call('RPUSH', normal, '')
    end
  end
end
return written
