package stream

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// keysPerWoken bounds the keys of a shard that waits for wake-ups. Few shards are better than many: the more wake-ups
	// one read serves the less it costs.
	keysPerWoken = 5000
	// A busy shard begins a read this long after the one before at the earliest, two microseconds for each of its keys
	// between these bounds, so that one read serves many runs; a quiet one reads at once. With 5,000 keys it is what a blocked
	// XREAD over as many takes to wake (docs/profiles.md).
	minWakeGap = time.Millisecond
	maxWakeGap = 10 * time.Millisecond
	// keysPerRead bounds one read of a woken shard, and one look, which takes Redis a millisecond.
	keysPerRead = 1000
	// sweepSteps is in how many steps a sweep looks at all keys that aren't read meanwhile.
	sweepSteps = 10
	// verifySweeps is how many sweeps in a row may look at a key without verifying its position. Looking costs a third of
	// reading, on either side, and shows that a run is gone; what is found out later for it is that the newest entries of a quiet
	// run were taken out by hand, or its key made anew, without an error or a wake-up.
	verifySweeps = 6
)

// wokenSource is what shards that wait for wake-ups read from.
type wokenSource interface {
	// behind names those of the keys that have more than their positions say, and may name others. It fails as
	// readAnchored does.
	behind(ctx context.Context, shard uint64, keys []position) ([]int, error)
	// readAnchored returns what keys have behind their positions and what stands there, in the order of keys. A position
	// that is zero has an anchor that is unread. It fails where the server isn't the one that takes writes.
	readAnchored(ctx context.Context, shard uint64, keys []position, count int) ([]reply, []anchor, error)
}

// runWoken reads what wake-ups tell of, and looks at each key that wasn't read for [TailConfig.Look], until the shard has no
// keys or ctx ends. A read includes the entry at the key's position, so that each one sees a loss.
func (t *Tail) runWoken(ctx context.Context, s *shard) {
	var deliveries sync.WaitGroup
	defer deliveries.Wait()
	defer t.src.forget(s.id)
	var keys []position
	var live []*followed
	count := maxReadCount
	var wait backoff
	var gap time.Duration
	sweep := newSweeper(t.cfg.Look / sweepSteps)
	defer sweep.timer.Stop()
	for {
		if sweep.due() {
			if err := t.sweep(ctx, s, sweep); !wait.after(ctx, err) {
				return
			}
		}
		var ok bool
		if keys, live, gap, ok = t.beginWoken(s, keys[:0], live[:0]); !ok {
			return
		}
		if len(keys) == 0 {
			select {
			case <-s.signal:
			case <-sweep.timer.C:
			case <-ctx.Done():
				return
			}
			continue
		}
		began := time.Now()
		replies, err := t.readWoken(ctx, s, keys, live, count)
		t.endWoken(s, live, replies, count, err)
		if !wait.after(ctx, err) {
			return
		}
		if err != nil {
			continue
		}
		count = adaptCount(count, replies)
		t.deliver(ctx, s, t.assign(keys, live, replies), &deliveries)
		if rest := gap - time.Since(began); rest > 0 && !sleep(ctx, rest) {
			return
		}
	}
}

// pend puts a key into the list of those to be read. Caller holds mu.
func (s *shard) pend(fk *followed) {
	if !fk.wakes.pending {
		fk.wakes.pending = true
		s.pending = append(s.pending, fk)
	}
}

// beginWoken lists what is to be read now, and how long the read after it has to wait. It reports false when the shard has
// ended: it has no keys and is taken out.
func (t *Tail) beginWoken(s *shard, keys []position, live []*followed) ([]position, []*followed, time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.keys) == 0 {
		t.endShard(s)
		return nil, nil, 0, false
	}
	taken := 0
	for _, fk := range s.pending {
		if len(keys) == keysPerRead {
			break
		}
		taken++
		if fk.shard != s || !fk.wakes.pending {
			continue // it went elsewhere meanwhile
		}
		fk.wakes.pending = false
		if slices.ContainsFunc(fk.followers, func(f *follower) bool { return f.busy }) {
			fk.wakes.missed = true
		}
		f := fk.readFrom()
		if f == nil {
			continue
		}
		keys = append(keys, fk.position(f))
		live = append(live, fk)
		fk.fresh, fk.bad, fk.wakes.looks = false, nil, 0
		s.steps[fk.at] = 0
	}
	s.pending = slices.Delete(s.pending, 0, taken)
	gap := min(max(2*time.Duration(len(s.keys))*time.Microsecond, minWakeGap), maxWakeGap)
	return keys, live, gap, true
}

// readWoken reads and verifies.
func (t *Tail) readWoken(ctx context.Context, s *shard, keys []position, live []*followed, count int) ([]reply, error) {
	which := make([]int, 0, len(keys))
	asked := slices.Clip(keys)
	for i := range keys {
		which = append(which, i)
	}
	for i, k := range keys {
		for _, p := range k.ahead {
			which, asked = append(which, i), append(asked, p)
		}
	}
	replies, anchors, err := t.src.readAnchored(ctx, s.id, asked, count)
	if err != nil {
		return nil, err
	}
	// What is behind the others' positions is among what is behind the key's.
	replies = slices.DeleteFunc(replies, func(r reply) bool { return r.key >= len(keys) })
	return t.judge(live, replies, which, asked, anchors), nil
}

// endWoken notes how a read went and what is to be read again. A key that can't be read is left to blocked reads, which
// try it again every second.
func (t *Tail) endWoken(s *shard, live []*followed, replies []reply, count int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.err = err; err != nil {
		t.failWoken(live)
		return
	}
	now := time.Now()
	s.lastRead = now
	for _, r := range replies {
		fk := live[r.key]
		switch {
		case concernsKey(r.err):
			fk.wakes.held = now.Add(holdTime)
			if fk.shard == s {
				t.move(fk, false)
			}
		case len(r.messages) >= count:
			t.wakeKey(fk)
		case len(r.messages) > 0 && fk.wakes.swept && !fk.wakes.pending:
			fk.wakes.owed = now
		}
	}
	for _, fk := range live {
		if !fk.wakes.pending {
			fk.wakes.swept = false
		}
	}
}

// failWoken has keys read anew whose read, or look, failed. Caller holds mu.
func (t *Tail) failWoken(live []*followed) {
	for _, fk := range live {
		fk.fresh = true
		t.wakeKey(fk)
	}
	t.doubt() // what ended this connection may have ended the subscription, too
}
