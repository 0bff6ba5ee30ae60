package stream

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// auxCheckpoint is the hash that holds a run's newest checkpoint: v version, at and sum the entry that it is of, meta and
// data.
const (
	auxCheckpoint     = "checkpoint"
	checkpointVersion = "1"
)

// Checkpoint is what a hub wrote down of a run as of one entry, so that the next one needn't read what comes before it.
// Anybody may have written it: Meta and Data are untrusted, and whether the entry is still there and the same is for the
// reader to see.
type Checkpoint struct {
	At   ID
	Sum  uint32 // of the entry's event, as in a cursor
	Meta []byte
	Data []byte
}

// checkpointScript: KEYS stream, checkpoint; ARGV version, entry, sum, meta, data, running. The newer one wins, unless it
// is ahead of the stream: then it is of another generation. It expires with the stream, and a run that goes on doesn't.
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
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'v', ARGV[1], 'at', ARGV[2], 'sum', ARGV[3], 'meta', ARGV[4], 'data', ARGV[5])
local left = redis.call('PTTL', KEYS[1])
if left > 0 then
  if ARGV[6] == '1' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[2], left) end
end
return 1
`)

// PutCheckpoint writes a run's checkpoint down unless a newer one is there, or the run has no such entry: then it returns
// false and no error. running says that the run goes on, and so isn't to expire.
func (l *Redis) PutCheckpoint(ctx context.Context, run RunID, c Checkpoint, running bool) (written bool, err error) {
	n, err := checkpointScript.Run(ctx, l.commands, []string{l.keys.Run(run), l.keys.Aux(run, auxCheckpoint)},
		checkpointVersion, c.At.String(), strconv.FormatUint(uint64(c.Sum), 16), c.Meta, c.Data, flag(running)).Int()
	return n == 1, classify(ctx, "checkpoint", err)
}

// Checkpoint reads a run's checkpoint. ok is false where there is none that this version can read; unknown says that
// there is one all the same.
func (l *Redis) Checkpoint(ctx context.Context, run RunID) (c Checkpoint, ok, unknown bool, err error) {
	fields, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.SliceCmd {
		return pipe.HMGet(ctx, l.keys.Aux(run, auxCheckpoint), "v", "at", "sum", "meta", "data")
	}).Result()
	if err = classify(ctx, "checkpoint", err); err != nil {
		if errors.Is(err, ErrWrongType) {
			return c, false, true, nil
		}
		return c, false, false, err
	}
	var text [5]string
	for i, f := range fields {
		text[i], _ = f.(string)
	}
	if text[0] == "" {
		return c, false, false, nil
	}
	sum, sumErr := strconv.ParseUint(text[2], 16, 32)
	at, atErr := ParseID(text[1])
	if text[0] != checkpointVersion || sumErr != nil || atErr != nil || at.IsZero() {
		return c, false, true, nil //nolint:nilerr // damage is a miss, which is counted, and no error
	}
	return Checkpoint{At: at, Sum: uint32(sum), Meta: []byte(text[3]), Data: []byte(text[4])}, true, false, nil
}

// PutCheckpoint writes as [Redis.PutCheckpoint] does.
func (m *Memory) PutCheckpoint(_ context.Context, run RunID, c Checkpoint, _ bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms, err := m.stream(m.keys.Run(run))
	if err != nil || len(ms) == 0 {
		return false, err
	}
	head := ms[len(ms)-1].id
	if head.Less(c.At) {
		return false, nil
	}
	if old, ok := m.checkpoints[run]; ok && !old.At.Less(c.At) && !head.Less(old.At) {
		return false, nil
	}
	if m.checkpoints == nil {
		m.checkpoints = map[RunID]Checkpoint{}
	}
	m.checkpoints[run] = c
	return true, nil
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

// Erase removes as [Redis.Erase] does.
func (m *Memory) Erase(_ context.Context, run RunID, thread ThreadID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return m.fault
	}
	delete(m.streams, m.keys.Run(run))
	delete(m.fences, run)
	delete(m.checkpoints, run)
	delete(m.zsets[m.keys.Thread(thread)], string(run))
	if m.left[thread].Run == run {
		delete(m.left, thread)
	}
	m.announce()
	return nil
}

// EraseThread removes as [Redis.EraseThread] does.
func (m *Memory) EraseThread(_ context.Context, thread ThreadID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.zsets, m.keys.Thread(thread))
	delete(m.left, thread)
	return m.fault
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
