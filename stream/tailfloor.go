package stream

import (
	"context"
	"math/rand/v2"
	"time"
)

// sweeper says when the next part of a sweep is due, whether or not wake-ups leave a pause.
type sweeper struct {
	timer *time.Timer // fires when it is
	every time.Duration
	next  time.Time

	// room for what a part looks at
	keys []position
	live []*followed
}

// newSweeper begins anywhere within the first part's time: hubs that were started together part.
func newSweeper(every time.Duration) *sweeper {
	wait := rand.N(every)
	return &sweeper{timer: time.NewTimer(wait), every: every, next: time.Now().Add(wait)}
}

// due says whether the next part is, and if so sets the clock. A part that comes late doesn't delay those behind it.
func (c *sweeper) due() bool {
	now := time.Now()
	if now.Before(c.next) {
		return false
	}
	if c.next = c.next.Add(c.every); c.next.Before(now) {
		c.next = now
	}
	c.timer.Reset(c.next.Sub(now))
	return true
}

// sweep looks at the next part of the keys and puts those that have something new into the list of those to be read, and
// with them those whose position wasn't verified for long.
func (t *Tail) sweep(ctx context.Context, s *shard, c *sweeper) error {
	t.beginLook(s, c)
	if len(c.keys) == 0 {
		return nil
	}
	behind, err := t.src.behind(ctx, s.id, c.keys)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer clear(c.live)
	if err != nil {
		s.err = err
		t.failWoken(c.live)
		return err
	}
	s.err, s.lastRead = nil, time.Now()
	for _, i := range behind {
		if fk := c.live[i]; fk.shard == s {
			s.pendSwept(fk)
		}
	}
	return nil
}

// beginLook lists what the next part of a sweep looks at.
func (t *Tail) beginLook(s *shard, c *sweeper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.step++; s.step > sweepSteps {
		s.step, s.swept = 1, 0
	}
	to := len(s.keys) * s.step / sweepSteps
	var unwoken []*followed
	c.keys, c.live = c.keys[:0], c.live[:0]
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
			c.keys, c.live = append(c.keys, f.position()), append(c.live, fk)
		}
	}
	for _, fk := range unwoken { // it may leave the shard
		t.unwoken(fk)
	}
}

// pendSwept puts a key into the list because of a sweep. Caller holds mu.
func (s *shard) pendSwept(fk *followed) {
	if !fk.wakes.pending {
		fk.wakes.swept = true
		s.pend(fk)
	}
}
