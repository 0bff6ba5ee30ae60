package stream

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// auxConversation is what the newest finished run of a thread has left. Its first line is the version, the run's start, its
// end, the cursor of its newest entry, and its id.
const (
	auxConversation     = "conversation"
	conversationVersion = "2"
)

// Left is what a run that has ended has left for the next of its thread. Anybody may have written it: Data is untrusted.
type Left struct {
	Run        RunID
	Start, End ID
	At         Cursor // of the newest entry that it is of: something may come after the end
	Data       []byte
}

// leaveScript: KEYS conversation; ARGV version, start, end, run, data, keep (ms), at. Of two runs the one that started last
// wins, and of one run what is of more of its entries.
var leaveScript = redis.NewScript(`
local function parse(id)
  local ms, seq = string.match(id or '', '^(%d+)%-(%d+)$')
  return tonumber(ms or '0'), tonumber(seq or '0')
end
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then redis.call('DEL', KEYS[1]) end
local function less(a, b)
  local am, as = parse(a)
  local bm, bs = parse(b)
  return am < bm or (am == bm and as < bs)
end
local v, start, _, at = string.match(redis.call('GETRANGE', KEYS[1], 0, 199), '^(%S+) (%S+) (%S+) (%S+) ')
if v == ARGV[1] then
  if less(ARGV[2], start) then return 0 end
  if not less(start, ARGV[2]) and less(string.match(ARGV[7], '^[^.]+'), string.match(at, '^[^.]+')) then return 0 end
end
redis.call('SET', KEYS[1], table.concat({ARGV[1], ARGV[2], ARGV[3], ARGV[7], ARGV[4]}, ' ') .. '\n' .. ARGV[5], 'PX', ARGV[6])
return 1
`)

// eraseLeftScript: KEYS conversation; ARGV run.
var eraseLeftScript = redis.NewScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
local head = redis.call('GETRANGE', KEYS[1], 0, 500)
local run = string.match(head, '^1 %S+ %S+ ([^\n]*)\n') or string.match(head, '^%S+ %S+ %S+ %S+ ([^\n]*)\n')
if run == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`)

// Leave writes down what a run has left, unless one that started later has left something. It is kept for keep.
func (l *Redis) Leave(ctx context.Context, thread ThreadID, left Left, keep time.Duration) error {
	err := leaveScript.Run(ctx, l.commands, []string{l.keys.ThreadAux(thread, auxConversation)}, conversationVersion,
		left.Start.String(), left.End.String(), string(left.Run), left.Data, max(keep.Milliseconds(), 1), left.At.String()).Err()
	return classify(ctx, "leave", err)
}

// Left reads what the newest finished run of a thread has left; ok is false where there is nothing that this version can
// read.
func (l *Redis) Left(ctx context.Context, thread ThreadID) (left Left, ok bool, err error) {
	raw, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.StringCmd {
		return pipe.Get(ctx, l.keys.ThreadAux(thread, auxConversation))
	}).Bytes()
	if errors.Is(err, redis.Nil) {
		return left, false, nil
	}
	if err = classify(ctx, "left", err); err != nil {
		if errors.Is(err, ErrWrongType) {
			err = nil
		}
		return left, false, err
	}
	left, ok = parseLeft(raw)
	return left, ok, nil
}

func parseLeft(raw []byte) (left Left, ok bool) {
	head, data, ok := bytes.Cut(raw, []byte{'\n'})
	parts := strings.SplitN(string(head), " ", 5)
	if !ok || len(parts) != 5 || parts[0] != conversationVersion {
		return Left{}, false
	}
	start, startErr := ParseID(parts[1])
	end, endErr := ParseID(parts[2])
	at, atErr := ParseCursor(parts[3])
	run, runErr := ParseRunID(parts[4])
	if errors.Join(startErr, endErr, atErr, runErr) != nil {
		return Left{}, false
	}
	return Left{Run: run, Start: start, End: end, At: at, Data: data}, true
}

// Leave writes as [Redis.Leave] does.
func (m *Memory) Leave(_ context.Context, thread ThreadID, left Left, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		m.left = map[ThreadID]Left{}
	}
	old, ok := m.left[thread]
	if older := left.Start.Less(old.Start) || left.Start == old.Start && left.At.Entry.Less(old.At.Entry); m.fault == nil && (!ok || !older) {
		m.left[thread] = left
	}
	return m.fault
}

// Left reads as [Redis.Left] does.
func (m *Memory) Left(_ context.Context, thread ThreadID) (Left, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left, ok := m.left[thread]
	return left, ok, m.fault
}
