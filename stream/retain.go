package stream

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// auxAbandoned is a string beside a run that expires because nobody went on with it, and not because it has ended.
const auxAbandoned = "abandoned"

// allKeysOf are all keys of a run, the stream first, auxAbandoned last: one slot.
func (l *Redis) allKeysOf(run RunID) []string {
	keys := []string{l.keys.Run(run)}
	for _, aux := range [...]string{auxProducer, auxControl, auxLease, auxCheckpoint, auxTrim, auxTrimmed, auxAbandoned} {
		keys = append(keys, l.keys.Aux(run, aux))
	}
	return keys
}

// expireScript: KEYS stream and what is beside it; ARGV ms, abandoned. An expiry that the stream has stays; the rest gets
// the same.
var expireScript = redis.NewScript(`
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return 0 end
local set = 0
if left == -1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  left, set = ARGV[1], 1
  if ARGV[2] == '1' then redis.call('SET', KEYS[#KEYS], '1') end
end
for i = 2, #KEYS do redis.call('PEXPIRE', KEYS[i], left) end
return set
`)

// Expire has a run's keys expire in keep, unless they do already: only then it returns true.
func (l *Redis) Expire(ctx context.Context, run RunID, keep time.Duration) (bool, error) {
	return l.expire(ctx, run, keep, false)
}

// Abandon is Expire for a run that hasn't ended: see [Redis.Revive].
func (l *Redis) Abandon(ctx context.Context, run RunID, keep time.Duration) (bool, error) {
	return l.expire(ctx, run, keep, true)
}

func (l *Redis) expire(ctx context.Context, run RunID, keep time.Duration, abandoned bool) (bool, error) {
	n, err := expireScript.Run(ctx, l.commands, l.allKeysOf(run), max(keep.Milliseconds(), 1), flag(abandoned)).Int()
	return n == 1, classify(ctx, "expire", err)
}

// reviveScript: KEYS as allKeysOf gives them; ARGV how long the producer and its control are kept (ms).
var reviveScript = redis.NewScript(`
if redis.call('DEL', KEYS[#KEYS]) == 0 or redis.call('PERSIST', KEYS[1]) == 0 then return 0 end
for i = 2, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
for i = 5, #KEYS - 1 do redis.call('PERSIST', KEYS[i]) end
return 1
`)

// Revive has a run's keys not expire that was abandoned: only then it returns true.
func (l *Redis) Revive(ctx context.Context, run RunID) (bool, error) {
	n, err := reviveScript.Run(ctx, l.commands, l.allKeysOf(run), auxKeep.Milliseconds()).Int()
	return n == 1, classify(ctx, "revive", err)
}

// EraseThread removes a thread's own keys. It may be repeated.
func (l *Redis) EraseThread(ctx context.Context, thread ThreadID) error {
	return classify(ctx, "erase", l.commands.Unlink(ctx, l.keys.Thread(thread), l.keys.ThreadAux(thread, auxConversation), l.keys.ThreadAux(thread, auxActive)).Err())
}

// Drop takes runs out of a thread's set.
func (l *Redis) Drop(ctx context.Context, thread ThreadID, runs ...RunID) error {
	if len(runs) == 0 {
		return nil
	}
	names := make([]any, len(runs))
	for i, run := range runs {
		names[i] = string(run)
	}
	return classify(ctx, "drop", l.commands.ZRem(ctx, l.keys.Thread(thread), names...).Err())
}

// Standing is how a run stands that nobody may be looking after.
type Standing struct {
	Run     RunID
	Exists  bool
	Expires bool
	Leased  bool
	// Abandoned says that the run expires because nobody went on with it.
	Abandoned bool
	Newest    Entry // zero where there is none
}

// Standings looks at runs, in their order, and at the clock of Redis.
func (l *Redis) Standings(ctx context.Context, runs ...RunID) ([]Standing, time.Time, error) {
	standings := make([]Standing, len(runs))
	var clock *redis.TimeCmd
	left := make([]*redis.DurationCmd, len(runs))
	leased, abandoned := make([]*redis.IntCmd, len(runs)), make([]*redis.IntCmd, len(runs))
	newest := make([]*redis.XMessageSliceCmd, len(runs))
	_ = l.read(ctx, func(pipe redis.Pipeliner) { // each command has its own error
		clock = pipe.Time(ctx)
		for i, run := range runs {
			left[i] = pipe.PTTL(ctx, l.keys.Run(run))
			leased[i] = pipe.Exists(ctx, l.keys.Aux(run, auxLease))
			abandoned[i] = pipe.Exists(ctx, l.keys.Aux(run, auxAbandoned))
			newest[i] = pipe.XRevRangeN(ctx, l.keys.Run(run), "+", "-", 1)
		}
	})
	if err := classify(ctx, "standings", clock.Err()); err != nil {
		return nil, time.Time{}, err
	}
	for i := range runs {
		s := &standings[i]
		s.Run = runs[i]
		err := classify(ctx, "standings", errors.Join(left[i].Err(), leased[i].Err(), abandoned[i].Err(), newest[i].Err()))
		switch {
		case errors.Is(err, ErrWrongType):
			continue // as if it weren't there
		case err != nil:
			return nil, time.Time{}, err
		}
		s.Exists, s.Expires, s.Leased = left[i].Val() != -2, left[i].Val() >= 0, leased[i].Val() == 1
		s.Abandoned = abandoned[i].Val() == 1
		if s.Newest, err = onlyEntry(newest[i].Val()); err != nil {
			return nil, time.Time{}, err
		}
	}
	return standings, clock.Val(), nil
}

// ScanThreads calls page with the threads that have a set of runs, as Scan does with runs.
func (l *Redis) ScanThreads(ctx context.Context, page func([]ThreadID) error) error {
	return l.scanKeys(ctx, l.keys.Thread(""), func(names []string) error {
		var threads []ThreadID
		for _, name := range names {
			if thread, err := ParseThreadID(name); err == nil {
				threads = append(threads, thread)
			}
		}
		if len(threads) == 0 {
			return nil
		}
		return page(threads)
	})
}

// TakeTurn says whether it is the caller's turn to do what only one hub at a time should: nobody else's for ttl.
func (l *Redis) TakeTurn(ctx context.Context, what string, ttl time.Duration) (bool, error) {
	_, err := l.commands.SetArgs(ctx, l.keys.prefix+":"+what, "1", redis.SetArgs{Mode: "NX", TTL: ttl}).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, classify(ctx, "turn", err)
}
