#!lua flags=allow-oom
-- Publish what a model promises, unless a live worker serves it with other tensors.
--
-- KEYS[1] {Q}:model, string - the model's description, JSON
-- KEYS[2] {Q}:workers, sorted set - worker id -> end of its lease, ms of Redis time
-- ARGV[1] description, bytes - what is to be published
-- ARGV[2] worker id - who publishes; its own lease does not count
--
-- Returns 1 - published
-- Returns worker id - one that lives and serves other tensors; nothing changed
--
-- Twice: the same text again. Late: at worst the text of a worker that has left, until the next
-- one joins.

local description, workers = KEYS[1], KEYS[2]
local text, worker = ARGV[1], ARGV[2]

local function same(one, other)
  if type(one) ~= 'table' or type(other) ~= 'table' then
    return one == other
  end
  for name, value in pairs(one) do
    if not same(value, other[name]) then
      return false
    end
  end
  for name in pairs(other) do
    if one[name] == nil then
      return false
    end
  end
  return true
end

-- What cannot be read promises nothing.
local function tensors(json)
  local read, found = pcall(cjson.decode, json)
  local metadata = read and type(found) == 'table' and found.metadata
  if type(metadata) ~= 'table' then
    return nil
  end
  return { metadata.inputs, metadata.outputs }
end

local before = redis.call('GET', description)
local promised = before and tensors(before)
if promised and not same(promised, tensors(text)) then
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', workers, '(' .. now_ms, '+inf')) do
    if other ~= worker then
      return other
    end
  end
end
redis.call('SET', description, text)
return 1
