#!lua flags=allow-oom
-- Renew a worker's lease, fill its claim from what waits, and return everything the claim holds.
--
-- KEYS[1] {Q}:claimed:WORKER:N, list - the claim
-- KEYS[2] {Q}:claims, hash - claimed list -> its record
-- KEYS[3] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- KEYS[4] {Q}:closed, hash - worker id -> its highest closed claim number
-- KEYS[5] {Q}:returned, list - handed back; taken before every lane
-- KEYS[6] {Q}:high, list - the lane before the normal one
-- KEYS[7] Q, list - the normal lane, on which idle workers wait
-- KEYS[8] {Q}:low, list - the lane behind the normal one
-- KEYS[9] {Q}:suspects, list - deaths|message, run one at a time
-- KEYS[10] {Q}:cancelled, string - present while a request was cancelled lately
-- ARGV[1] worker id - whose claim it is
-- ARGV[2] claim number - the N of the claim
-- ARGV[3] floor, claim number - the lowest whose closing completion is not acknowledged
-- ARGV[4] lease, ms - how long from now on the worker counts as alive
-- ARGV[5] want, requests - the claim is filled up to so many, and no more are returned
-- ARGV[6] budget, bytes - nothing is added beyond it, except to an empty claim
-- ARGV[7] kept normal, requests - slots that fall to the normal lane if it has requests
-- ARGV[8] kept low, requests - slots that fall to the low lane if it has requests
-- ARGV[9] mode - what an empty claim may take: first: a suspect before anything else; last: a
--   suspect if nothing else waits; never: no suspect; start: nothing is taken, and the suspect that
--   the claim holds counts as touched from now on
--
-- Returns {1, attempts, waiting, flags, message...} - deaths so far of a suspect, else 0; elements
--   left in returned and the lanes; the sum of 1 a request was cancelled lately, 2 a lease has
--   ended, 4 a lane is a key of another type and was passed over, 8 the claim is a suspect's, alone
--   and without its prefix; all messages of the claim, up to want
-- Returns {-1, closed} - the number is closed; what the list held was handed back
-- Returns {-2} - the worker is unknown; what the list held was handed back
--
-- Twice: an open claim grows at its tail and never shrinks, so every earlier answer is a prefix of
-- a later one; what a late copy with a larger want added is not told, and handed back by complete.
-- Only a suspect's claim drops its company, and is never filled. A closed claim takes nothing.

local claimed, claims, workers, closed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local returned, high, normal, low = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local suspects, cancelled = KEYS[9], KEYS[10]
local worker, number, floor = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local lease_ms, want, budget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local kept_normal, kept_low, mode = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local wrong_type = false

-- What the claim holds, without the tokens that a BLMOVE brought.
local held, bytes = {}, 0
local elements = redis.call('LRANGE', claimed, 0, -1)
for _, element in ipairs(elements) do
  if element ~= '' then
    held[#held + 1] = element
    bytes = bytes + #element
  end
end
if #held < #elements then
  redis.call('LREM', claimed, 0, '')
end

-- The record tells a suspect's claim. Not the prefix alone: a client may push such bytes to a lane.
-- It decides only where the record was deleted by hand.
local record = redis.call('HGET', claims, claimed)
local suspect = false
if held[1] then
  suspect = string.find(record or held[1], record and ' ' or '^%d+|') ~= nil
end

local function set_record(value)
  if record ~= value then
    redis.call('HSET', claims, claimed, value)
    record = value
  end
end

local function length(list)
  local count = redis.pcall('LLEN', list)
  if type(count) == 'number' then
    return count
  end
  wrong_type = true
  return 0
end

-- Count what waits, and pass the bell on if all of it is where no idle worker looks.
local function count_and_wake()
  local in_normal = length(normal)
  local outside = length(returned) + length(high) + length(low)
  if in_normal == 0 and outside + length(suspects) > 0 then
    redis.pcall('RPUSH', normal, '')
  end
  return in_normal + outside
end

local function refuse(answer)
  for place = #held, 1, -1 do
    local home = suspect and place == 1 and suspects or returned
    redis.call('LMOVE', claimed, home, 'RIGHT', 'LEFT')
  end
  redis.call('HDEL', claims, claimed)
  count_and_wake()
  return answer
end

if not redis.call('ZSCORE', workers, worker) then
  return refuse({ -2 })
end
local last_closed = tonumber(redis.call('HGET', closed, worker) or 0)
if number <= last_closed then
  return refuse({ -1, last_closed })
end

redis.call('ZADD', workers, now_ms + lease_ms, worker)
if floor - 1 > last_closed then
  -- A failover may have lost completions that their worker saw answered.
  redis.call('HSET', closed, worker, floor - 1)
end
if not suspect then
  set_record(worker)
elseif not record then
  set_record(worker .. ' suspect')
end

-- A late copy of a BLMOVE brought company. From any other claim nothing is taken, even if it holds
-- more than want: a late copy with a smaller want would take what its worker runs, a second one
-- with a larger want put strangers in its place, and the completion drop them.
while suspect and #held > 1 do
  local back = redis.pcall('LMOVE', claimed, normal, 'RIGHT', 'LEFT')
  if type(back) == 'table' then
    redis.call('LMOVE', claimed, returned, 'RIGHT', 'LEFT')
  end
  held[#held] = nil
end

local function take_suspect()
  local element
  repeat
    element = redis.pcall('LMOVE', suspects, claimed, 'LEFT', 'RIGHT')
    if element == '' then
      redis.call('RPOP', claimed)
    end
  until element ~= ''
  if type(element) == 'table' then
    wrong_type = true
  elseif element then
    held[1] = element
    suspect = true
    set_record(worker .. ' suspect')
  end
end

local free, room = want - #held, budget - bytes

-- Choose from the front of a lane what fits into `slots` and `room`; nothing is moved yet. The
-- first looks are short, so that a lane of huge messages is not read whole to take four of them.
local function choose(lane, slots)
  slots = math.min(slots, free)
  while slots > 0 and (room > 0 or free == want) do
    local span = math.min(slots, lane.span)
    local front = redis.pcall('LRANGE', lane.key, lane.passed, lane.passed + span - 1)
    if front.err then
      return -- of another type: counting what waits will tell
    end
    for _, element in ipairs(front) do
      if element ~= '' then
        if #element > room and free < want then
          return
        end
        lane.chosen[#lane.chosen + 1] = element
        slots, free, room = slots - 1, free - 1, room - #element
        lane.largest = math.max(lane.largest, #element)
      end
      lane.passed = lane.passed + 1
    end
    if #front < span then
      return
    end
    lane.span = math.max(1, math.min(8 * lane.span, math.floor(room / lane.largest)))
  end
end

-- Nothing leaves a lane before it is in the claim.
local function move(lane)
  local chosen = lane.chosen
  for first = 1, #chosen, 1000 do
    redis.call('RPUSH', claimed, unpack(chosen, first, math.min(first + 999, #chosen)))
  end
  if lane.passed > 0 then
    redis.call('LTRIM', lane.key, lane.passed, -1)
  end
  for _, element in ipairs(chosen) do
    held[#held + 1] = element
  end
end

local function fill()
  local lanes = {}
  for place, key in ipairs({ returned, high, normal, low }) do
    lanes[place] = { key = key, passed = 0, span = 1, largest = 1, chosen = {} }
  end
  -- Kept slots first, or a busy high lane would use up the budget as well.
  choose(lanes[4], kept_low)
  choose(lanes[3], kept_normal)
  for _, lane in ipairs(lanes) do
    choose(lane, free)
  end
  for _, lane in ipairs(lanes) do
    move(lane)
  end
end

if mode == 'start' then
  -- Without a top-up: after a failover the suspect may be gone, and the claim would be filled with
  -- requests that its worker never looks at.
  if suspect then
    set_record(worker .. ' started')
  end
else
  if mode == 'first' and #held == 0 then
    take_suspect()
  end
  if not suspect then
    fill()
  end
  if mode ~= 'never' and #held == 0 then
    take_suspect()
  end
end

local waiting = count_and_wake()
local flags = redis.call('EXISTS', cancelled)
if redis.call('ZCOUNT', workers, '-inf', now_ms) > 0 then
  flags = flags + 2
end
if wrong_type then
  flags = flags + 4
end
local attempts = 0
if suspect then
  flags = flags + 8
  local deaths, message = string.match(held[1], '^(%d+)|(.*)$')
  if deaths then
    attempts, held[1] = tonumber(deaths), message
  end
end
local answer = { 1, attempts, waiting, flags }
for place = 1, math.min(#held, math.max(want, 1)) do
  answer[4 + place] = held[place]
end
return answer
