#!lua
-- Push new requests onto a lane and mark each as pending, all of them or none.
--
-- KEYS[1] {Q}:high, Q or {Q}:low, list - the lane to push to
-- KEYS[2] Q, list - the normal lane, on which idle workers wait
-- KEYS[3...] {Q}:reply:ID, string - one for each message, in the order of the messages
-- ARGV[1] limit, requests - the lane may not grow beyond it
-- ARGV[2] mark life, ms - how long a pending mark lives, at least a second
-- ARGV[3...] message, bytes - at most 1,000 of them
--
-- Returns {0, state...} - for each message: 1 pushed, 2 pending already, 3 answered already
-- Returns {-1, length} - the new ones are over the limit and nothing changed; the lane's length
--
-- Twice: the marks of the first run make the second find nothing new, and only what is new counts
-- against the limit. That holds until mark and reply have expired, longer than any sender repeats.

local lane, normal = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
local life_ms = tonumber(ARGV[2]) < 1000 and '1000' or ARGV[2]

-- Everything that can fail comes before the first write: these are errors on a key of another type.
local length = redis.call('LLEN', lane)
local idle = redis.call('LLEN', normal) == 0

-- One call tells for most submissions that every id is new.
local known = redis.call('EXISTS', unpack(KEYS, 3)) > 0

local answer, marks, messages, seen = { 0 }, {}, {}, {}
for at = 3, #KEYS do
  local mark = KEYS[at]
  local state = 1
  if seen[mark] then
    state = 2
  elseif known and redis.call('EXISTS', mark) == 1 then
    state = redis.call('STRLEN', mark) > 0 and 3 or 2
  else
    marks[#marks + 1] = mark
    messages[#messages + 1] = ARGV[at]
  end
  seen[mark] = true
  answer[#answer + 1] = state
end

if #messages == 0 then
  return answer
end
if length + #messages > limit then
  return { -1, length }
end
redis.call('RPUSH', lane, unpack(messages))
for _, mark in ipairs(marks) do
  redis.call('SET', mark, '', 'PX', life_ms)
end
if idle and lane ~= normal then
  redis.call('RPUSH', normal, '')
end
return answer
