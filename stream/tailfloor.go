package stream

import (
	"context"
	"math/rand/v2"
	"time"
)

// sweepClock says when the next part of a sweep is due, whether or not wake-ups leave a pause.
type sweepClock struct {
	timer *time.Timer // fires when it is
	every time.Duration
	next  time.Time
}

func newSweepClock(every time.Duration) *sweepClock {
	c := &sweepClock{every: every, timer: time.NewTimer(every)}
	c.set(time.Now())
	return c
}

// set is for a part of a sweep that begins now. Hubs that were started together part.
func (c *sweepClock) set(now time.Time) {
	wait := c.every*4/5 + rand.N(c.every/5)
	c.next = now.Add(wait)
	c.timer.Reset(wait)
}

// due says whether the next part is, and if so sets the clock.
func (c *sweepClock) due() bool {
	now := time.Now()
	if now.Before(c.next) {
		return false
	}
	c.set(now)
	return true
}

// sweep looks at the next part of the keys and puts those that have something new into the list of those to be read, and
// with them those whose position wasn't verified for long.
func (t *Tail) sweep(ctx context.Context, s *shard) error {
	keys, live := t.beginLook(s)
	if len(keys) == 0 {
		return nil
	}
	behind, err := t.src.behind(ctx, s.id, keys)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		s.err = err
		t.failWoken(live)
		return err
	}
	s.err, s.lastRead = nil, time.Now()
	for _, i := range behind {
		if fk := live[i]; fk.shard == s {
			s.pendSwept(fk)
		}
	}
	return nil
}

// beginLook lists what the next part of a sweep looks at.
func (t *Tail) beginLook(s *shard) (keys []position, live []*followed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.step++; s.step > sweepSteps {
		s.step, s.swept = 1, 0
	}
	to := len(s.keys) * s.step / sweepSteps
	var unwoken []*followed
	for ; s.swept < to; s.swept++ {
		fk := s.keys[s.swept]
		if !fk.wakes.owed.IsZero() {
			unwoken = append(unwoken, fk)
		}
		if fk.wakes.looks >= verifySweeps {
			s.pendSwept(fk)
			continue
		}
		fk.wakes.looks++
		if f := fk.readFrom(); f != nil && !fk.wakes.pending {
			keys, live = append(keys, f.position()), append(live, fk)
		}
	}
	for _, fk := range unwoken { // it may leave the shard
		t.unwoken(fk)
	}
	return keys, live
}

// pendSwept puts a key into the list because of a sweep. Caller holds mu.
func (s *shard) pendSwept(fk *followed) {
	if !fk.wakes.pending {
		fk.wakes.swept = true
		s.pend(fk)
	}
}
