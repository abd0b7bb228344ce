"""The scripts that run inside Redis: each is one step for everybody, and touches one slot.

A topic's keys: `state` (epoch, head, run, fence, bytes, was, base: where its stream begins, made:
its first epoch; what a retry was answered holds as long as the topic, through all its epochs),
`stream` (one entry a request; its id is its last offset, `b` the payload bytes before it), `sow`
(newest message of each record), `producers`, `retries` (how many came in each hour), `staged` (of
each stage since when, and its bytes; `all` is their number and bytes, those that have lapsed too
until somebody needs the room). What all topics share: `epochs`, `documents`,
`life` (id, version) and `changes`, the definitions that were written.
"""

from __future__ import annotations

from typing import Final

# Under which life of the server an epoch holds. One that syncs every write loses nothing with its
# process, so there the epoch outlives it and nothing is noted.
_RUN: Final = """
local function run(syncs)
    if syncs == '1' then return '' end
    return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
"""

# Whether the server may answer before it has written: while a sync of the disk goes on, one that
# syncs each second puts its writes off. No sync begins between a script and the write that follows.
_WAITS: Final = """
local function waits(syncs)
    if syncs == '1' then return 0 end
    local syncing = 'aof_pending_bio_fsync:(%d+)'
    return tonumber(string.match(redis.call('INFO', 'persistence'), syncing) or 0)
end
"""

# Stages that are known of, each by its key: forgotten, and how many there are, of how many bytes.
_UNSTAGE: Final = """
local function all_of(staged)
    local count, bytes = string.match(redis.call('HGET', staged, 'all') or '0 0', '(%d+) (%d+)')
    return tonumber(count), tonumber(bytes)
end
local function unstage(staged, stage)
    local known = redis.call('HGET', staged, stage)
    if not known then return end
    local count, bytes = all_of(staged)
    redis.call('HDEL', staged, stage)
    redis.call('HSET', staged, 'all',
        string.format('%d %d', count - 1, bytes - tonumber(string.match(known, '%d+$'))))
end
"""

# Numbers of producers are of 63 bits, which Lua's own do not hold: they are compared by their
# digits. No number, "", is below any.
_BELOW: Final = """
local function below(one, other)
    if #one ~= #other then return #one < #other end
    return one < other
end
"""

# KEYS state stream sow producers retries retry staged [stage ...]
# ARGV epoch syncs seen now_ms count bytes items | producer run sequence | digest | head | fence
#      | messages bytes age_ms | retries producers | records (key, index, value)... removed keys...
APPEND: Final = (
    _RUN
    + _WAITS
    + _BELOW
    + _UNSTAGE
    + """
local state, stream, sow, producers, retries, retry, staged = unpack(KEYS, 1, 7)
local known = redis.call('HMGET', state, 'epoch', 'head', 'run', 'fence', 'bytes', 'base', 'made')
local head = tonumber(known[2] or 0)
if known[1] ~= ARGV[1] or head < tonumber(ARGV[3]) or known[3] ~= run(ARGV[2]) then
    return {'epoch'}
end
if head > tonumber(known[6] or 0) and redis.call('EXISTS', stream) == 0 then return {'epoch'} end
local now_ms, count = tonumber(ARGV[4]), tonumber(ARGV[5])
local function forget_stages()
    for index = 8, #KEYS do
        unstage(staged, KEYS[index])
        redis.call('DEL', KEYS[index])
    end
end

if ARGV[11] ~= '' then
    local made, digest, at_ms, first, last = string.match(
        redis.call('GET', retry) or '', '^(%w*) (%w*) (%d+) (%d+) (%d+)$')
    if made == (known[7] or '') and tonumber(at_ms) + 86400000 > now_ms then
        if digest ~= ARGV[11] then return {'conflict'} end
        forget_stages()
        return {'again', tonumber(first), tonumber(last), waits(ARGV[2])}
    end
end
local is_known = false
if ARGV[8] ~= '' then
    local noted = redis.call('HGET', producers, ARGV[8]) or ''
    is_known = noted ~= ''
    local run_at, highest = string.match(noted, '^(%d+) (%d*)$')
    if run_at then
        if below(ARGV[9], run_at) then return {'fenced'} end
        if not below(highest, ARGV[10]) then
            redis.call('HSET', producers, ARGV[8], ARGV[9] .. ' ' .. highest)
            forget_stages()
            return {'again', 0, 0, waits(ARGV[2])}
        end
    end
end
if ARGV[12] ~= '' and tonumber(ARGV[12]) ~= head then return {'moved'} end
if ARGV[8] ~= '' and not is_known and redis.call('HLEN', producers) >= tonumber(ARGV[18]) then
    return {'full', 'producers'}
end
local hour, asked = math.floor(now_ms / 3600000), 0
if ARGV[11] ~= '' then
    local counts = redis.call('HGETALL', retries)
    for at = 1, #counts, 2 do
        if tonumber(counts[at]) >= hour - 24 then
            asked = asked + tonumber(counts[at + 1])
        else
            redis.call('HDEL', retries, counts[at])
        end
    end
    if asked >= tonumber(ARGV[17]) then return {'full', 'retries'} end
end
if ARGV[13] ~= '' then
    if tonumber(known[4] or 0) > tonumber(ARGV[13]) then return {'superseded'} end
    redis.call('HSET', state, 'fence', ARGV[13])
end

if ARGV[8] ~= '' then redis.call('HSET', producers, ARGV[8], ARGV[9] .. ' ' .. ARGV[10]) end
local first, last = head + 1, head + count
if ARGV[11] ~= '' then
    local noted = string.format(
        '%s %s %s %d %d', known[7] or '', ARGV[11], ARGV[4], first, last)
    redis.call('SET', retry, noted, 'PX', 86400000)
    redis.call('HINCRBY', retries, string.format('%d', hour), 1)
    redis.call('PEXPIRE', retries, 90000000)
end
forget_stages()
local before = tonumber(known[5] or 0)
local bytes = before + tonumber(ARGV[6])
redis.call('XADD', stream, string.format('%d-0', last), 'e', ARGV[1],
    'f', string.format('%d', first), 't', ARGV[4], 'b', string.format('%d', before), 'i', ARGV[7])
local records = tonumber(ARGV[19])
for index = 20, 19 + 3 * records, 3 do
    local offset = string.format('%d ', first + tonumber(ARGV[index + 1]))
    redis.call('HSET', sow, ARGV[index], offset .. ARGV[index + 2])
end
for index = 20 + 3 * records, #ARGV do redis.call('HDEL', sow, ARGV[index]) end

local oldest = math.max(0, last - tonumber(ARGV[14]) + 1)
if ARGV[15] == '' and ARGV[16] == '' then
    redis.call('XTRIM', stream, 'MINID', '~', string.format('%d-0', math.min(oldest, last)))
else
    local bytes_max = ARGV[15] ~= '' and tonumber(ARGV[15]) or math.huge
    local oldest_ms = ARGV[16] ~= '' and now_ms - tonumber(ARGV[16]) or -math.huge
    for _ = 1, 100 do
        local entry = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
        local offset, fields = tonumber(string.match(entry[1], '^%d+')), entry[2]
        local fits = offset >= oldest and tonumber(fields[6]) >= oldest_ms
        if offset == last or (fits and bytes - tonumber(fields[8]) <= bytes_max) then break end
        redis.call('XDEL', stream, entry[1])
    end
end
redis.call('HSET', state, 'head', string.format('%d', last), 'bytes', string.format('%d', bytes))
return {'new', first, last, waits(ARGV[2])}
"""
)

# What is kept aside is of an epoch: what was checked by another definition is no stage of this one.
# KEYS state staged stage; ARGV epoch items ms now_ms stages bytes
STAGE: Final = (
    _UNSTAGE
    + """
local state, staged, stage = unpack(KEYS)
if redis.call('HGET', state, 'epoch') ~= ARGV[1] then return 'epoch' end
local now_ms, ms = tonumber(ARGV[4]), tonumber(ARGV[3])
local function has_room()
    local count, bytes = all_of(staged)
    local replaced = redis.call('HGET', staged, stage)
    if replaced then
        count, bytes = count - 1, bytes - tonumber(string.match(replaced, '%d+$'))
    end
    return count < tonumber(ARGV[5]) and bytes + #ARGV[2] <= tonumber(ARGV[6])
end
if not has_room() then
    local known = redis.call('HGETALL', staged)
    for at = 1, #known, 2 do
        local since_ms = string.match(known[at + 1], '^(%d+)')
        if known[at] ~= 'all' and tonumber(since_ms) + ms <= now_ms then
            unstage(staged, known[at])
        end
    end
    if not has_room() then return 'full' end
end
unstage(staged, stage)
local count, bytes = all_of(staged)
redis.call('HSET', staged, stage, ARGV[4] .. ' ' .. #ARGV[2],
    'all', string.format('%d %d', count + 1, bytes + #ARGV[2]))
redis.call('PEXPIRE', staged, ARGV[3])
redis.call('SET', stage, ARGV[2], 'PX', ARGV[3])
return 'kept'
"""
)

# What was there is another topic's: of the epoch that its maker knew, or nothing at all. The answer
# is the epoch that holds now. KEYS state stream sow producers retries; ARGV epoch syncs known-epoch
BEGIN: Final = (
    _RUN
    + """
local found = redis.call('HGET', KEYS[1], 'epoch') or ''
if found == ARGV[1] or (found ~= '' and found ~= ARGV[3]) then return found end
redis.call('DEL', unpack(KEYS))
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'made', ARGV[1], 'head', '0', 'run', run(ARGV[2]))
return ARGV[1]
"""
)

# A topic that holds nothing is made anew: from now on nothing is appended by what it was, which is
# `was` for all who doubt. 0: it holds messages.
# KEYS state stream sow producers retries; ARGV epoch syncs
SUCCEED: Final = (
    _RUN
    + """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'head')
if tonumber(known[2] or 0) > 0 then return 0 end
redis.call('DEL', unpack(KEYS))
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'made', ARGV[1], 'head', '0', 'run', run(ARGV[2]),
    'was', known[1] or '')
return 1
"""
)

# KEYS state stream sow producers retries; ARGV epoch
DROP: Final = """
if redis.call('HGET', KEYS[1], 'epoch') == ARGV[1] then redis.call('DEL', unpack(KEYS)) end
"""

# Whoever doubts that a topic went on without a hole asks for another epoch. There is one answer
# for all who ask: `was` is the epoch that it took the place of. What is there stays.
# KEYS state stream sow producers retries; ARGV known-epoch new-epoch syncs seen
RENEW: Final = (
    _RUN
    + """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'head', 'run', 'was', 'base')
local head, here = tonumber(known[2] or 0), run(ARGV[3])
if known[1] and known[1] ~= ARGV[1] and known[4] == ARGV[1] then return known[1] end
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local through = tonumber(newest and string.match(newest[1], '^%d+') or known[5] or 0)
if known[1] == ARGV[1] and through == head and head >= tonumber(ARGV[4]) and known[3] == here then
    return known[1]
end
if not known[1] then
    redis.call('DEL', unpack(KEYS))
    redis.call('HSET', KEYS[1], 'made', ARGV[2])
end
if through ~= head then
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[1], 'base', string.format('%d', head), 'made', ARGV[2])
    local noted = redis.call('HGETALL', KEYS[4])
    for at = 1, #noted, 2 do
        local run_at = string.match(noted[at + 1], '^%d+')
        redis.call('HSET', KEYS[4], noted[at], run_at .. ' ')
    end
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'was', ARGV[1], 'run', here,
    'head', string.format('%d', head))
return ARGV[2]
"""
)

# A definition is written by whoever has seen all before it.
# KEYS epochs documents life changes; ARGV life version name epoch document ('' epoch: deleted)
DEFINE: Final = """
local life = redis.call('HMGET', KEYS[3], 'id', 'version')
if life[1] ~= ARGV[1] or (life[2] or '0') ~= ARGV[2] then return 0 end
if ARGV[4] == '' then
    redis.call('HDEL', KEYS[1], ARGV[3])
    redis.call('HDEL', KEYS[2], ARGV[3])
else
    redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
    redis.call('HSET', KEYS[2], ARGV[3], ARGV[5])
end
local version = redis.call('HINCRBY', KEYS[3], 'version', 1)
redis.call('XADD', KEYS[4], 'MAXLEN', '~', '10000', string.format('%d-0', version),
    'name', ARGV[3], 'epoch', ARGV[4], 'document', ARGV[5])
return version
"""

# KEYS name; ARGV holder ms: the lease goes on, or is given back where ms is 0.
HOLD: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# A lease that is free is taken with a number above all before it. KEYS name fence; ARGV holder ms
TAKE: Final = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
return redis.call('INCR', KEYS[2])
"""
