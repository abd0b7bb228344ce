"""The Lua scripts of the Redis store; each runs atomically.

Keys of a topic:

- `state`: epoch, head, life and bytes; `base` is the offset where the stream starts, `made` the
  topic's first epoch, under which replies to retries stay valid, `former` the epochs that the
  topic's epoch followed, each with the last offset that it and the next have (`4f2a:17 90bc:44`),
  -1 if that did not continue it, `definition` the digest of the topic's definition, `removed` the
  offset of the newest request that removed a record, `filled` the mark up to which a derived topic
  is filled, and `time` a time in ms that no later entry may be before: that of the newest, or after
  a past that was read.

- `stream`: one entry per request. Its id is its last offset, `b` the payload bytes before it.

- `sow`: the newest message of each record: its offset, its time, and the rest packed.

- `refused`: there for a moment after an append by an earlier definition was refused, once for each
  definition (`held` in `state`).

- `producers`; `retries`: the number of retry keys by hour; `staged`: the start and bytes of each
  stage, and under `all` the totals, which include expired stages until room is needed.

Keys of the cluster: `epochs`, `documents`, `life` (id, server, version), and the stream `changes`
of definitions.
"""

from __future__ import annotations

from typing import Final

HELD_MS: Final = 2_000
"""How long a definition stays after an append by the one before was refused: some round trips."""

READ_MS: Final = 2_000
READ_MESSAGES: Final = 100_000
READ_BYTES: Final = 16 << 20
"""What a stream keeps of its newest entries, however short the history: others read them later.

The bounds hold where a clock that is ahead makes all of them new.
"""

# The life of the server, to which an epoch is bound: a process that may accept writes, from its
# start or its promotion on. Whatever Redis loses, it loses between two lives: at a restart, or
# where a replica takes over. So what is left of an epoch is the start of what anybody saw of it.
_LIFE: Final = """
local function life()
    local process = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
    local role = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
    return string.sub(process, 1, 16) .. string.sub(role or '', 1, 16)
end
"""

# Return 1 if the server may reply before its file has what the script did. With `appendfsync
# everysec` it delays writes while a sync runs; no sync starts between a script and the write that
# follows it. While the file is rewritten, there may be no other: a start does not read the new one
# before it is whole.
_UNWRITTEN: Final = """
local function unwritten()
    local info = redis.call('INFO', 'persistence')
    for _, name in ipairs({'pending_bio_fsync', 'rewrite_in_progress', 'rewrite_scheduled'}) do
        if (string.match(info, 'aof_' .. name .. ':(%d+)') or '0') ~= '0' then return 1 end
    end
    return 0
end
"""

# The totals of the stages, and the removal of one stage from them.
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

# Producer sequences have 63 bits, which Lua's numbers (doubles) cannot hold: compare the digits.
# The empty string, no sequence yet, is below every sequence.
_BELOW: Final = """
local function below(one, other)
    if #one ~= #other then return #one < #other end
    return one < other
end
"""

# An entry that no gateway wrote may have an id above the next one; XADD then fails, and the
# script must not write anything else.
_IN_THE_WAY: Final = """
local function is_in_the_way(added)
    local err = type(added) == 'table' and added.err or ''
    return string.find(err, 'equal or smaller') or string.find(err, 'WRONGTYPE')
end
"""

# KEYS state stream sow producers retries refused retry staged fence [stage ...]
# ARGV epoch seen now_ms count bytes items | producer run sequence | digest | head | fence
#      | messages bytes age_ms | retries producers | definition | marks of the stages
#      | since mark | records (key, index, value)... removed keys...
APPEND: Final = (
    f"local HELD_MS, READ_MS = {HELD_MS}, {READ_MS}\n"
    f"local READ_MESSAGES, READ_BYTES = {READ_MESSAGES}, {READ_BYTES}\n"
    + _LIFE
    + _UNWRITTEN
    + _BELOW
    + _UNSTAGE
    + _IN_THE_WAY
    + """
local state, stream, sow, producers, retries, refused, retry, staged, fence = unpack(KEYS, 1, 9)
local known = redis.call('HMGET', state,
    'epoch', 'head', 'life', 'bytes', 'base', 'made', 'definition', 'time', 'removed', 'filled')
local head, here = tonumber(known[2] or 0), life()
if known[1] ~= ARGV[1] or head < tonumber(ARGV[2]) or known[3] ~= here then return {'epoch'} end
if head > tonumber(known[5] or 0) and redis.call('EXISTS', stream) == 0 then return {'epoch'} end
local now_ms, count = math.max(tonumber(ARGV[3]), tonumber(known[8] or 0)), tonumber(ARGV[4])
local marks = {}
for mark in string.gmatch(ARGV[19], '[^,]+') do marks[#marks + 1] = mark end
local function is_replaced(index)
    local noted, mark = redis.call('HGET', staged, KEYS[index]), marks[index - 9]
    return mark and noted and noted ~= mark
end

if ARGV[10] ~= '' then
    local made, digest, at_ms, first, last = string.match(
        redis.call('GET', retry) or '', '^(%w*) (%w*) (%d+) (%d+) (%d+)$')
    if made == (known[6] or '') and tonumber(at_ms) + 86400000 > now_ms then
        if digest ~= ARGV[10] then return {'conflict'} end
        return {'again', tonumber(first), tonumber(last), here, unwritten()}
    end
end
if ARGV[21] ~= '' and (known[10] or '') ~= ARGV[20] then return {'moved', head} end
local is_known = false
if ARGV[7] ~= '' then
    local noted = redis.call('HGET', producers, ARGV[7]) or ''
    is_known = noted ~= ''
    local run_at, highest = string.match(noted, '^(%d+) (%d*)$')
    if run_at then
        if below(ARGV[8], run_at) then return {'fenced'} end
        if not below(highest, ARGV[9]) then
            redis.call('HSET', producers, ARGV[7], ARGV[8] .. ' ' .. highest)
            return {'known', 0, highest, here, unwritten()}
        end
    end
end
-- A write that was decided at an earlier head counts if its records are still what they were then.
-- Of a record that is not there, only that nothing at all was removed since is known.
local records = tonumber(ARGV[22])
local function has_changed(record, since)
    local noted = redis.call('HGET', sow, record)
    if noted then return tonumber(string.match(noted, '^%d+')) > since end
    return tonumber(known[9] or head) > since
end
local function is_outdated(since)
    if since < 0 or #ARGV < 23 then return true end
    for index = 23, 22 + 3 * records, 3 do
        if has_changed(ARGV[index], since) then return true end
    end
    for index = 23 + 3 * records, #ARGV do
        if has_changed(ARGV[index], since) then return true end
    end
    return false
end
local since = tonumber(ARGV[11])
if since and since ~= head and is_outdated(since) then return {'moved', head} end
for index = 10, #KEYS do
    if redis.call('EXISTS', KEYS[index]) == 0 or is_replaced(index) then
        return {'moved', head}
    end
end
if known[7] and known[7] ~= ARGV[18] then
    if not redis.call('HGET', state, 'held') then
        redis.call('HSET', state, 'held', '1')
        redis.call('SET', refused, '', 'PX', HELD_MS)
    end
    return {'redefined'}
end
if ARGV[7] ~= '' and not is_known and redis.call('HLEN', producers) >= tonumber(ARGV[17]) then
    return {'full', 'producers'}
end
local hour, asked = math.floor(now_ms / 3600000), 0
if ARGV[10] ~= '' then
    local counts = redis.call('HGETALL', retries)
    for at = 1, #counts, 2 do
        if tonumber(counts[at]) >= hour - 24 then
            asked = asked + tonumber(counts[at + 1])
        else
            redis.call('HDEL', retries, counts[at])
        end
    end
    if asked >= tonumber(ARGV[16]) then return {'full', 'retries'} end
end
if ARGV[12] ~= '' and redis.call('GET', fence) ~= ARGV[12] then
    return {'superseded'}
end

-- A commit without stages, or a mark without rows: the stream stays as it is.
if count == 0 then
    if ARGV[7] ~= '' then redis.call('HSET', producers, ARGV[7], ARGV[8] .. ' ' .. ARGV[9]) end
    if ARGV[21] ~= '' then redis.call('HSET', state, 'filled', ARGV[21]) end
    return {'new', head + 1, head, here, unwritten()}
end

local first, last = head + 1, head + count
local before = tonumber(known[4] or 0)
local bytes = before + tonumber(ARGV[5])
local added = redis.pcall('XADD', stream, string.format('%d-0', last), 'e', ARGV[1],
    'f', string.format('%d', first), 't', string.format('%d', now_ms),
    'b', string.format('%d', before), 'i', ARGV[6])
if is_in_the_way(added) then return {'epoch'} end
if type(added) == 'table' and added.err then return added end
if ARGV[7] ~= '' then redis.call('HSET', producers, ARGV[7], ARGV[8] .. ' ' .. ARGV[9]) end
if ARGV[10] ~= '' then
    local noted = string.format(
        '%s %s %s %d %d', known[6] or '', ARGV[10], ARGV[3], first, last)
    redis.call('SET', retry, noted, 'PX', 86400000)
    redis.call('HINCRBY', retries, string.format('%d', hour), 1)
    redis.call('PEXPIRE', retries, 90000000)
end
for index = 10, #KEYS do
    unstage(staged, KEYS[index])
    redis.call('DEL', KEYS[index])
end
for index = 23, 22 + 3 * records, 3 do
    local place = string.format('%d %d ', first + tonumber(ARGV[index + 1]), now_ms)
    redis.call('HSET', sow, ARGV[index], place .. ARGV[index + 2])
end
for index = 23 + 3 * records, #ARGV do redis.call('HDEL', sow, ARGV[index]) end
if 23 + 3 * records <= #ARGV then
    redis.call('HSET', state, 'removed', string.format('%d', last))
end

-- The oldest entries go, but none that a gateway behind a slow link may still have to read.
local oldest_ms = ARGV[15] ~= '' and now_ms - tonumber(ARGV[15]) or -math.huge
local bytes_max = ARGV[14] ~= '' and tonumber(ARGV[14]) or math.huge
local function is_kept(offset, at_ms, later_bytes, messages_max, since_ms, most_bytes)
    return offset > last - messages_max and at_ms >= since_ms and later_bytes <= most_bytes
end
for _ = 1, 100 do
    local entry = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    local offset, fields = tonumber(string.match(entry[1], '^%d+')), entry[2]
    -- An entry that no gateway wrote may have other fields, or none.
    local at_ms = tonumber(fields[6] or '') or 0
    local since_bytes = bytes - (tonumber(fields[8] or '') or 0)
    local function is_in_history(counted)
        return is_kept(offset, at_ms, counted, tonumber(ARGV[13]), oldest_ms, bytes_max)
    end
    if offset == last or is_in_history(since_bytes)
        or is_kept(offset, at_ms, since_bytes, READ_MESSAGES, now_ms - READ_MS, READ_BYTES)
    then break end
    -- The bound on bytes may divide an entry: the journal of a gateway has its newest messages.
    if is_in_history(0) then
        local later = redis.call('XRANGE', stream, '(' .. entry[1], '+', 'COUNT', 1)[1]
        if is_in_history(bytes - (tonumber(later[2][8] or '') or 0) + 1) then break end
    end
    redis.call('XDEL', stream, entry[1])
end
-- Together: a file that ends before this has neither the head nor the mark.
local noted = {'head', string.format('%d', last), 'bytes', string.format('%d', bytes),
    'time', string.format('%d', now_ms)}
if ARGV[21] ~= '' then noted[7], noted[8] = 'filled', ARGV[21] end
redis.call('HSET', state, unpack(noted))
return {'new', first, last, here, unwritten()}
"""
)

# A stage belongs to an epoch: items validated by another definition are no stage of this one.
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

# Return the valid epoch, a new one if the stream or the server lost data, or may have: in another
# life of the server. A new epoch continues the one before up to what is left of it, and every
# gateway that asks in this life gets the same one. Stored messages stay.
# KEYS state stream sow producers retries refused; ARGV known-epoch new-epoch seen
CONFIRM_EPOCH: Final = (
    _LIFE
    + """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'head', 'life', 'former', 'base')
local head, here, former = tonumber(known[2] or 0), life(), known[4] or ''
local is_followed = known[1] and known[1] ~= ARGV[1]
    and string.find(' ' .. former, ' ' .. ARGV[1] .. ':', 1, true)
if is_followed and known[3] == here then return known[1] end
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local through = tonumber(newest and (string.match(newest[1], '^(%d+)%-0$') or -1) or known[5] or 0)
if known[1] == ARGV[1] and through == head and head >= tonumber(ARGV[3]) and known[3] == here then
    return known[1]
end
if not known[1] then
    redis.call('DEL', unpack(KEYS))
    redis.call('HSET', KEYS[1], 'made', ARGV[2])
end
-- Redis may shorten its file within a transaction, and run the half that is left at its next start:
-- an entry of an epoch behind its end, in the place of another one.
local function has_half()
    for epoch, bound in string.gmatch(former, '(%S+):(%d+)') do
        local entry = redis.call('XRANGE', KEYS[2], '(' .. bound .. '-0', '+', 'COUNT', 1)[1]
        if entry and entry[2][2] == epoch then return true end
    end
end
local left, is_half = head, has_half()
if through ~= head or is_half then
    left = -1
    -- Records of the half may be behind the head: up to the offset of its entry.
    if is_half then head = math.max(head, through) end
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[1], 'base', string.format('%d', head), 'made', ARGV[2])
    local noted = redis.call('HGETALL', KEYS[4])
    for at = 1, #noted, 2 do
        local run_at = string.match(noted[at + 1], '^%d+')
        redis.call('HSET', KEYS[4], noted[at], run_at .. ' ')
    end
end
-- First: one that is not among them says nothing of those before it.
if known[1] and known[1] ~= ARGV[1] and not is_followed then
    former = ARGV[1] .. ':-1 ' .. former
end
local epochs = {}
local ended = string.format('%s:%d', known[1] or ARGV[1], left)
for each in string.gmatch(former .. ' ' .. ended, '%S+') do epochs[#epochs + 1] = each end
former = table.concat(epochs, ' ', math.max(1, #epochs - 31))
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'former', former, 'life', here,
    'head', string.format('%d', head))
return ARGV[2]
"""
)

# Write a definition if its writer has seen all earlier changes, together with what it means for the
# topic's keys: a new topic begins without messages, and a deleted one leaves nothing. In two steps
# a lost connection would leave one without the other. A topic takes the place of another one, or
# gets a source, only where that is empty and in a known epoch (otherwise -2): appends in that epoch
# or by the definition before fail from now on, and `former` lets CONFIRM_EPOCH find a new epoch.
#
# Foreign entries that block the stream are deleted with it; gateways that miss changes then read
# all definitions. Appends that were checked by the definition before fail from now on. Where the
# first one has just failed, the definition stays for a moment (-1), in which its gateway can read
# it and try again: behind a slow connection it would otherwise be late each time.
# KEYS epochs documents life changes state stream sow producers retries refused
# ARGV id version name epoch document digest new empty-epoch mark
#      (no epoch: the topic is deleted; new: 1 for a topic that begins; empty-epoch: of the topic
#      that is to be there, without messages; mark: from which it is filled)
DEFINE: Final = (
    _LIFE
    + _IN_THE_WAY
    + """
local known, here = redis.call('HMGET', KEYS[3], 'id', 'version', 'server'), life()
if known[1] ~= ARGV[1] or (known[2] or '0') ~= ARGV[2] or known[3] ~= here then return 0 end
local state, refused = KEYS[5], KEYS[10]
local stands = redis.call('HMGET', state, 'epoch', 'definition', 'head')
if stands[1] == ARGV[4] and stands[2] ~= ARGV[6] and redis.call('EXISTS', refused) == 1 then
    return -1
end
if ARGV[8] ~= '' and (stands[1] ~= ARGV[8] or tonumber(stands[3] or 0) > 0) then return -2 end
local version = tonumber(known[2] or '0') + 1
local function add(run)
    return run('XADD', KEYS[4], 'MAXLEN', '~', '10000', string.format('%d-0', version),
        'name', ARGV[3], 'epoch', ARGV[4], 'document', ARGV[5])
end
local added = add(redis.pcall)
if is_in_the_way(added) then
    redis.call('DEL', KEYS[4])
    added = add(redis.pcall)
end
if type(added) == 'table' and added.err then return added end
if ARGV[4] == '' then
    redis.call('HDEL', KEYS[1], ARGV[3])
    redis.call('HDEL', KEYS[2], ARGV[3])
    redis.call('DEL', unpack(KEYS, 5))
else
    redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
    redis.call('HSET', KEYS[2], ARGV[3], ARGV[5])
    if ARGV[7] == '1' then
        redis.call('DEL', unpack(KEYS, 5))
        redis.call('HSET', state, 'epoch', ARGV[4], 'made', ARGV[4], 'head', '0', 'removed', '0',
            'life', here, 'definition', ARGV[6])
        if ARGV[8] ~= '' then redis.call('HSET', state, 'former', ARGV[8] .. ':-1') end
    elseif stands[1] == ARGV[4] then
        redis.call('HSET', state, 'definition', ARGV[6])
        redis.call('HDEL', state, 'held')
    end
    if ARGV[9] ~= '' then redis.call('HSET', state, 'filled', ARGV[9]) end
end
return redis.call('HINCRBY', KEYS[3], 'version', 1)
"""
)

# Return the id of the definitions, another one in each life of the server, and their version. After
# a life has ended, the same version may be another definition. KEYS life; ARGV new-id
OPEN: Final = (
    _LIFE
    + """
local here = life()
local known = redis.call('HMGET', KEYS[1], 'id', 'server', 'version')
if known[2] == here then return {known[1], known[3] or '0'} end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'server', here)
return {ARGV[1], known[3] or '0'}
"""
)

# Return the topic's epoch and last offset, an empty epoch if it is of an earlier life. Entries that
# follow are later than a time that is given, if that is past by the clock of the gateway or that of
# Redis. KEYS state; ARGV [ms now_ms]
HEAD: Final = (
    _LIFE
    + """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'head', 'life', 'time')
if known[3] ~= life() then return {'', 0} end
local time_ms = tonumber(ARGV[1])
if time_ms and tonumber(known[4] or 0) <= time_ms then
    local time = redis.call('TIME')
    local now_ms = math.max(tonumber(ARGV[2]), time[1] * 1000 + math.floor(time[2] / 1000))
    if time_ms < now_ms then
        redis.call('HSET', KEYS[1], 'time', string.format('%d', time_ms + 1))
    end
end
return {known[1], tonumber(known[2])}
"""
)

LIFE: Final = (
    _LIFE
    + """
return life()
"""
)

# Delete the stream if it has entries above the current version, which no gateway wrote.
# KEYS life changes
CLEAR_CHANGES: Final = """
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if not newest or tonumber(string.match(newest[1], '^%d+')) <= version then return 0 end
return redis.call('DEL', KEYS[2])
"""

# Extend a lease, or release it if ms is 0. KEYS name; ARGV holder ms
EXTEND_LEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# Acquire a free lease and return a fencing number above all earlier ones. It is at least the time:
# a server that takes over may have lost the last number, and must not grant it again.
# KEYS name fence; ARGV holder ms
ACQUIRE_LEASE: Final = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local number = math.max(now, tonumber(redis.call('GET', KEYS[2]) or 0) + 1)
redis.call('SET', KEYS[2], string.format('%.0f', number))
return number
"""
