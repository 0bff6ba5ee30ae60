package stream

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// auxCheckpoint is the hash that holds a run's newest checkpoint: v version, at and sum the entry that it is of, n how many
// entries the run had come to, meta and data.
const (
	auxCheckpoint     = "checkpoint"
	checkpointVersion = "1"
)

// Checkpoint is what a hub wrote down of a run as of one entry, so that the next one needn't read what comes before it.
// Anybody may have written it: Meta and Data are untrusted, and whether the entry is still there and the same is for the
// reader to see.
type Checkpoint struct {
	At      ID
	Sum     uint32 // of the entry's event, as in a cursor
	Entries int    // that the run had up to it; only set to be written
	Meta    []byte
	Data    []byte
}

// checkpointScript: KEYS stream, checkpoint, trim and the others beside the run; ARGV version, entry, sum, meta, data,
// running, entries, keep. The newer one wins, unless it is ahead of the stream: then it is of another generation. It
// expires with the stream, and a run that goes on doesn't. Where entries are to be trimmed, keep above 0, the one before
// becomes the place to trim to if there is none, and is returned once keep entries stand behind it.
var checkpointScript = redis.NewScript(`
local head = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if not head[1] then return 0 end
local function parse(id)
  local ms, seq = string.match(id or '', '^(%d+)%-(%d+)$')
  return tonumber(ms or '0'), tonumber(seq or '0')
end
local function less(a, b)
  local am, as = parse(a)
  local bm, bs = parse(b)
  return am < bm or (am == bm and as < bs)
end
if less(head[1][1], ARGV[2]) then return 0 end
if redis.call('TYPE', KEYS[2]).ok ~= 'hash' then redis.call('DEL', KEYS[2]) end
local h = redis.call('HMGET', KEYS[2], 'v', 'at')
if h[1] == ARGV[1] and h[2] and not less(h[2], ARGV[2]) and not less(head[1][1], h[2]) then return 0 end
local keep, place = tonumber(ARGV[8]), ''
if keep > 0 then
  if redis.call('TYPE', KEYS[3]).ok ~= 'hash' then redis.call('DEL', KEYS[3]) end
  local t = redis.call('HMGET', KEYS[3], 'v', 'at', 'n')
  if t[1] ~= ARGV[1] or not less(t[2], ARGV[2]) then
    redis.call('DEL', KEYS[3])
    if h[1] == ARGV[1] and h[2] and less(h[2], ARGV[2]) then
      redis.call('RENAME', KEYS[2], KEYS[3])
      t = redis.call('HMGET', KEYS[3], 'v', 'at', 'n')
    else t = {} end
  end
  if t[2] and t[3] and tonumber(ARGV[7]) - (tonumber(t[3]) or 0) >= keep then place = t[2] end
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'v', ARGV[1], 'at', ARGV[2], 'sum', ARGV[3], 'n', ARGV[7], 'meta', ARGV[4], 'data', ARGV[5])
local left = redis.call('PTTL', KEYS[1])
if left > 0 and ARGV[6] == '1' then
  for _, key in ipairs({KEYS[1], KEYS[3], KEYS[4]}) do redis.call('PERSIST', key) end
elseif left > 0 then
  for _, key in ipairs({KEYS[2], KEYS[3]}) do redis.call('PEXPIRE', key, left) end
end
return place == '' and 1 or place
`)

// PutCheckpoint writes a run's checkpoint down unless a newer one is there, or the run has no such entry: then it returns
// false and no error. running says that the run goes on, and so isn't to expire. Where keep is above 0 the run may be
// trimmed: trimTo is the entry up to which it now may be, by [Redis.TrimTo], with keep entries or more behind it; zero
// where it may not yet.
func (l *Redis) PutCheckpoint(ctx context.Context, run RunID, c Checkpoint, running bool, keep int) (written bool, trimTo ID, err error) {
	keys := []string{l.keys.Run(run)}
	for _, aux := range [...]string{auxCheckpoint, auxTrim, auxTrimmed} {
		keys = append(keys, l.keys.Aux(run, aux))
	}
	answer, err := checkpointScript.Run(ctx, l.commands, keys, checkpointVersion, c.At.String(), hexSum(c.Sum), c.Meta, c.Data,
		flag(running), c.Entries, keep).Result()
	if err != nil {
		return false, ID{}, classify(ctx, "checkpoint", err)
	}
	if place, some := answer.(string); some {
		trimTo, err = ParseID(place)
		return true, trimTo, err
	}
	n, _ := answer.(int64)
	return n == 1, ID{}, nil
}

// Checkpoint reads a run's checkpoint. ok is false where there is none that this version can read; unknown says that
// there is one all the same.
func (l *Redis) Checkpoint(ctx context.Context, run RunID) (c Checkpoint, ok, unknown bool, err error) {
	return l.checkpoint(ctx, run, auxCheckpoint)
}

// checkpoint reads one of a run's checkpoints.
func (l *Redis) checkpoint(ctx context.Context, run RunID, aux string) (c Checkpoint, ok, unknown bool, err error) {
	fields, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.SliceCmd {
		return pipe.HMGet(ctx, l.keys.Aux(run, aux), checkpointFields...)
	}).Result()
	if err = classify(ctx, "checkpoint", err); err != nil {
		if errors.Is(err, ErrWrongType) {
			return c, false, true, nil
		}
		return c, false, false, err
	}
	c, ok, unknown = checkpointOf(fields)
	return c, ok, unknown, nil
}

var checkpointFields = []string{"v", "at", "sum", "meta", "data"}

// checkpointOf reads checkpointFields. Damage is a miss, which is counted, and no error.
func checkpointOf(fields []any) (c Checkpoint, ok, unknown bool) {
	var text [5]string
	for i := range min(len(fields), len(text)) {
		text[i], _ = fields[i].(string)
	}
	if text[0] == "" {
		return c, false, false
	}
	sum, sumErr := strconv.ParseUint(text[2], 16, 32)
	at, atErr := ParseID(text[1])
	if text[0] != checkpointVersion || sumErr != nil || atErr != nil || at.IsZero() {
		return c, false, true
	}
	return Checkpoint{At: at, Sum: uint32(sum), Meta: []byte(text[3]), Data: []byte(text[4])}, true, false
}

// PutCheckpoint writes as [Redis.PutCheckpoint] does.
func (m *Memory) PutCheckpoint(_ context.Context, run RunID, c Checkpoint, _ bool, keep int) (bool, ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms, err := m.stream(m.keys.Run(run))
	if err != nil || len(ms) == 0 {
		return false, ID{}, err
	}
	head := ms[len(ms)-1].id
	if head.Less(c.At) {
		return false, ID{}, nil
	}
	old, ok := m.checkpoints[run]
	if ok && !old.At.Less(c.At) && !head.Less(old.At) {
		return false, ID{}, nil
	}
	if m.checkpoints == nil {
		m.checkpoints = map[RunID]Checkpoint{}
	}
	m.checkpoints[run] = c
	var place ID
	if keep > 0 {
		if !old.At.Less(c.At) {
			old = Checkpoint{}
		}
		place = m.place(run, old, c, keep)
	}
	return true, place, nil
}

// Checkpoint reads as [Redis.Checkpoint] does.
func (m *Memory) Checkpoint(_ context.Context, run RunID) (c Checkpoint, ok, unknown bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return c, false, false, m.fault
	}
	c, ok = m.checkpoints[run]
	return c, ok, false, nil
}

// EraseThread removes as [Redis.EraseThread] does.
func (m *Memory) EraseThread(_ context.Context, thread ThreadID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.zsets, m.keys.Thread(thread))
	delete(m.left, thread)
	return m.fault
}

// Revive does nothing: a Memory forgets nothing by itself.
func (m *Memory) Revive(context.Context, RunID) (bool, error) { return false, nil }

// Abandon is Expire.
func (m *Memory) Abandon(ctx context.Context, run RunID, keep time.Duration) (bool, error) {
	return m.Expire(ctx, run, keep)
}

// Expire tells whether the run is there: a Memory forgets nothing by itself.
func (m *Memory) Expire(_ context.Context, run RunID, _ time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams[m.keys.Run(run)] != nil, m.fault
}

// SetCheckpoint puts a checkpoint there whatever is wrong with it, as somebody who may write to Redis can.
func (m *Memory) SetCheckpoint(run RunID, c Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checkpoints[run] = c
}
