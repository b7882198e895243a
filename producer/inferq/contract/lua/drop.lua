#!lua flags=allow-oom
-- Take one entry off the dead list for good.
--
-- KEYS[1] {Q}:dead, list - requests given up on, newest right
-- ARGV[1] entry, bytes - as it is on the list
--
-- Returns 1 - it is gone
-- Returns 0 - it is not there
--
-- Twice: the entry is gone; of equal entries each run drops one.

return redis.call('LREM', KEYS[1], 1, ARGV[1])
