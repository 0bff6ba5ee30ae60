package stream

import "github.com/redis/go-redis/v9"

// The scripts. All keys of one are of one run and so of one slot; they are declared. Numbers stay below 2^53. Of the
// hash: v version, id and epoch of the producer, next sequence number, last entry of this epoch, len the stream's length
// behind it, ended the epoch in which the run ended, lapsed when the lapse of the lease was noticed, input what the run
// starts from while there is no entry of this epoch.

// claimScript: KEYS stream, producer, lease; ARGV version, producer, epoch ("0": the next), TTL, keep (both ms), peek, input, fresh.
var claimScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[2], 'v', 'id', 'epoch', 'next', 'last', 'ended')
local known = h[1] == ARGV[1]
local epoch = tonumber(h[3] or '0') or 0
local want = tonumber(ARGV[3])
local own = known and want > 0 and epoch == want and h[2] == ARGV[2]
if want == 0 then want = epoch + 1
elseif not own and epoch >= want then return {'fenced'} end
if not own and (ARGV[6] == '1' or (known and h[6])) then return {'ended'} end
local head = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if head[1] and ARGV[8] == '1' then return {'exists'} end
local id = head[1] and head[1][1] or ''
local text = string.format('%.0f', want)
local next, last = h[4], h[5]
if not own then
  redis.call('DEL', KEYS[2])
  next, last = '0', ''
  redis.call('HSET', KEYS[2], 'v', ARGV[1], 'id', ARGV[2], 'epoch', text, 'next', next, 'last', last, 'len', redis.call('XLEN', KEYS[1]))
  if ARGV[7] ~= '' then redis.call('HSET', KEYS[2], 'input', ARGV[7]) end
end
if ARGV[6] ~= '1' and not h[6] then
  redis.call('SET', KEYS[3], ARGV[2] .. ':' .. text, 'PX', ARGV[4])
  redis.call('HDEL', KEYS[2], 'lapsed')
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
return {'ok', text, next, last, id}
`)

// appendScript: KEYS stream, producer, lease, control; ARGV version, producer, epoch, sequence number, floor, TTL, keep
// after the end (both ms), end, late, and then event and input of each record, the input empty where there is none.
var appendScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[2], 'v', 'id', 'epoch', 'next', 'last', 'len', 'ended')
if h[1] ~= ARGV[1] or h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return {'fenced'} end
local seq, next, n = tonumber(ARGV[4]), tonumber(h[4]), (#ARGV - 9) / 2
if tonumber(ARGV[5]) > next then return {'gap', h[4]} end
local skip = math.min(math.max(next - seq, 0), n)
if skip < n and h[7] and ARGV[9] ~= '1' then return {'ended'} end
local out = {'ok', skip, 0, h[5]}
if skip < n then
  if redis.call('XLEN', KEYS[1]) ~= tonumber(h[6]) then out[3] = 1 end
  for i = skip, n - 1 do
    local event, input = ARGV[10 + 2 * i], ARGV[11 + 2 * i]
    local id
    if input == '' then id = redis.call('XADD', KEYS[1], '*', 'event', event)
    else id = redis.call('XADD', KEYS[1], '*', 'event', event, 'input', input) end
    out[#out + 1] = id
  end
  out[4] = out[#out]
  if next == 0 then redis.call('HDEL', KEYS[2], 'input') end
end
if seq + n > next then
  redis.call('HSET', KEYS[2], 'next', string.format('%.0f', seq + n), 'last', out[4], 'len', redis.call('XLEN', KEYS[1]))
end
if ARGV[8] == '1' then
  redis.call('HSET', KEYS[2], 'ended', ARGV[3])
  redis.call('HDEL', KEYS[2], 'lapsed')
  redis.call('DEL', KEYS[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[7])
  redis.call('PEXPIRE', KEYS[4], ARGV[7])
elseif not h[7] and redis.call('PTTL', KEYS[3]) < tonumber(ARGV[6]) / 2 then
  redis.call('SET', KEYS[3], ARGV[2] .. ':' .. ARGV[3], 'PX', ARGV[6])
  redis.call('HDEL', KEYS[2], 'lapsed')
end
return out
`)

// renewScript: KEYS producer, lease; ARGV version, producer, epoch, TTL, keep (both ms). 1 if the fence still holds.
var renewScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'v', 'id', 'epoch', 'ended')
if h[1] ~= ARGV[1] or h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return 0 end
if h[4] then return 1 end
redis.call('SET', KEYS[2], ARGV[2] .. ':' .. ARGV[3], 'PX', ARGV[4])
redis.call('HDEL', KEYS[1], 'lapsed')
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
`)

// noteScript: KEYS producer, lease; ARGV version, keep (ms). It notes a lease that nobody noted, when one lapsed, and that
// it is back.
var noteScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'v', 'ended', 'lapsed')
if redis.call('EXISTS', KEYS[2]) == 1 then
  if not h[1] then
    redis.call('HSET', KEYS[1], 'v', ARGV[1], 'id', '', 'epoch', '0', 'next', '0', 'last', '', 'len', '0')
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  elseif h[1] == ARGV[1] and h[3] then redis.call('HDEL', KEYS[1], 'lapsed') end
elseif h[1] == ARGV[1] and not h[2] and not h[3] then
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'lapsed', string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)))
end
return 1
`)

// shortenScript: KEYS producer, lease; ARGV version, the most that is left (ms).
var shortenScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'v', 'epoch')
if h[1] ~= ARGV[1] or h[2] == '0' or redis.call('PTTL', KEYS[2]) <= tonumber(ARGV[2]) then return 0 end
return redis.call('PEXPIRE', KEYS[2], ARGV[2])
`)

// reapScript: KEYS stream, producer, lease, control; ARGV version, who reaps, the epoch and the newest entry that were
// seen, grace, idle, keep (all ms), and the events.
var reapScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[3]) == 1 then return {'held'} end
local h = redis.call('HMGET', KEYS[2], 'v', 'epoch', 'ended', 'lapsed')
if (h[1] and h[1] ~= ARGV[1]) or h[3] or (h[2] or '0') ~= ARGV[3] then return {'changed'} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local idle = tonumber(ARGV[6])
if idle > 0 then
  if now - tonumber(string.match(ARGV[4], '^%d+')) < idle then return {'early'} end
elseif not h[4] then return {'changed'}
elseif now >= tonumber(h[4]) and now - tonumber(h[4]) < tonumber(ARGV[5]) then return {'early'} end
local head = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if (head[1] and head[1][1] or '0-0') ~= ARGV[4] then return {'changed'} end
local out = {'ok'}
local input = not head[1] and redis.call('HGET', KEYS[2], 'input')
for i = 8, #ARGV do
  if input and i == 8 then out[#out + 1] = redis.call('XADD', KEYS[1], '*', 'event', ARGV[i], 'input', input)
  else out[#out + 1] = redis.call('XADD', KEYS[1], '*', 'event', ARGV[i]) end
end
local epoch = string.format('%.0f', tonumber(ARGV[3]) + 1)
redis.call('HSET', KEYS[2], 'v', ARGV[1], 'id', ARGV[2], 'epoch', epoch, 'next', #out - 1, 'last', out[#out], 'len', redis.call('XLEN', KEYS[1]), 'ended', epoch)
redis.call('HDEL', KEYS[2], 'lapsed', 'input')
redis.call('PEXPIRE', KEYS[2], ARGV[7])
redis.call('PEXPIRE', KEYS[4], ARGV[7])
return out
`)

// settleScript: KEYS producer, lease, stream; ARGV version, epoch, keep (ms), unless the stream has an expiry. It notes the
// end of a run that ended otherwise.
var settleScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'v', 'epoch', 'ended')
if h[1] ~= ARGV[1] or h[2] ~= ARGV[2] or h[3] then return 0 end
redis.call('HSET', KEYS[1], 'ended', ARGV[2])
redis.call('HDEL', KEYS[1], 'lapsed')
redis.call('DEL', KEYS[2])
local left = redis.call('PTTL', KEYS[3])
if left < 0 then left = ARGV[3] end
redis.call('PEXPIRE', KEYS[1], left)
return 1
`)

// signalScript: KEYS stream, control, producer; ARGV the most entries, keep (ms), the control object.
var signalScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then return {'none'} end
local id = redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], '*', 'control', ARGV[3])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then left = ARGV[2] end
redis.call('PEXPIRE', KEYS[2], left)
return {'ok', id}
`)
