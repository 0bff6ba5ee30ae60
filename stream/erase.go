package stream

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// auxDeleted is a string that stands for a while after a run was erased: what its agent still had on its way when that
// was done is no new run.
const auxDeleted = "deleted"

// Erase removes all keys of a run, and the run from its thread where that is given. It may be repeated. For keep it is
// remembered that the run was erased: see [Redis.EraseLate].
func (l *Redis) Erase(ctx context.Context, run RunID, thread ThreadID, keep time.Duration) error {
	pipe := l.commands.Pipeline() // no MULTI: the thread lives in another slot
	pipe.Set(ctx, l.keys.Aux(run, auxDeleted), "1", max(keep, time.Millisecond))
	pipe.Unlink(ctx, l.allKeysOf(run)...)
	if thread != "" {
		pipe.ZRem(ctx, l.keys.Thread(thread), string(run))
	}
	_, err := pipe.Exec(ctx)
	if err == nil && thread != "" {
		err = eraseLeftScript.Run(ctx, l.commands, []string{l.keys.ThreadAux(thread, auxConversation)}, string(run)).Err()
		if err == nil {
			err = eraseClaimScript.Run(ctx, l.commands, []string{l.keys.ThreadAux(thread, auxActive)}, string(run)).Err()
		}
	}
	return classify(ctx, "erase", err)
}

// eraseLateScript: KEYS stream, deleted, producer; ARGV the stream's first entry.
var eraseLateScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[2]) == 0 or redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
local e = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
if not e[1] or e[1][1] ~= ARGV[1] then return 0 end
return redis.call('UNLINK', KEYS[1])
`)

// EraseLate removes a run's stream again, which somebody wrote on after the run was erased. first is its first entry: the
// caller has seen that no run begins there. It does nothing and returns false where the run wasn't erased lately, or has
// a new producer.
func (l *Redis) EraseLate(ctx context.Context, run RunID, first ID) (bool, error) {
	keys := []string{l.keys.Run(run), l.keys.Aux(run, auxDeleted), l.keys.Aux(run, auxProducer)}
	n, err := eraseLateScript.Run(ctx, l.commands, keys, first.String()).Int()
	return n == 1, classify(ctx, "erase", err)
}

// Erase removes as [Redis.Erase] does.
func (m *Memory) Erase(_ context.Context, run RunID, thread ThreadID, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return m.fault
	}
	delete(m.streams, m.keys.Run(run))
	delete(m.fences, run)
	delete(m.checkpoints, run)
	delete(m.trims, run)
	delete(m.zsets[m.keys.Thread(thread)], string(run))
	if m.left[thread].Run == run {
		delete(m.left, thread)
	}
	if m.erased == nil {
		m.erased = map[RunID]bool{}
	}
	m.erased[run] = true
	m.announce()
	return nil
}

// EraseLate removes as [Redis.EraseLate] does.
func (m *Memory) EraseLate(_ context.Context, run RunID, first ID) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms, err := m.stream(m.keys.Run(run))
	if err != nil || !m.erased[run] || m.fences[run] != nil || len(ms) == 0 || ms[0].id != first {
		return false, err
	}
	delete(m.streams, m.keys.Run(run))
	m.announce()
	return true, nil
}
