package stream

import (
	"context"
	"math/rand/v2"
	"time"
)

// sweeper says when the next step of a sweep is due, whether or not wake-ups leave a pause.
type sweeper struct {
	timer *time.Timer // fires when it is
	every time.Duration
	next  time.Time

	// what a step looks at
	keys []position
	live []*followed
}

// newSweeper begins anywhere within the first step's time: hubs that were started together part.
func newSweeper(every time.Duration) *sweeper {
	wait := rand.N(every)
	return &sweeper{timer: time.NewTimer(wait), every: every, next: time.Now().Add(wait)}
}

// due says whether the next step is, and if so sets the clock. One that comes late doesn't delay those behind it.
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

// sweep is one step: it looks at the keys whose turn it is and puts those that have something new into the list of those to
// be read, and with them those whose position wasn't verified for long.
func (t *Tail) sweep(ctx context.Context, s *shard, c *sweeper) error {
	t.beginLook(s, c)
	defer clear(c.live)
	for from := 0; from < len(c.keys); from += keysPerRead {
		to := min(from+keysPerRead, len(c.keys))
		behind, err := t.src.behind(ctx, s.id, c.keys[from:to])
		if err != nil {
			t.failLook(s, c.live[from:], err)
			return err
		}
		t.endLook(s, c.live[from:to], behind)
	}
	return nil
}

// beginLook lists the keys that were neither read nor looked at for as many steps as a sweep has. Those that were read
// together would stay together: what is beyond a step's share has its next turn earlier.
func (t *Tail) beginLook(s *shard, c *sweeper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	share := (len(s.keys) + sweepSteps - 1) / sweepSteps
	var unwoken []*followed
	c.keys, c.live = c.keys[:0], c.live[:0]
	for i := range s.steps {
		if s.steps[i] = min(s.steps[i]+1, sweepSteps); s.steps[i] < sweepSteps {
			continue
		}
		fk := s.keys[i]
		if !fk.wakes.owed.IsZero() {
			unwoken = append(unwoken, fk)
		}
		if fk.wakes.looks >= verifySweeps {
			s.pendSwept(fk)
			continue
		}
		if f := fk.readFrom(); f != nil && !fk.wakes.pending {
			s.steps[i] = uint8(len(c.keys) / share) //nolint:gosec // less than sweepSteps
			fk.wakes.looks++
			c.keys, c.live = append(c.keys, f.position()), append(c.live, fk)
		}
	}
	for _, fk := range unwoken { // it may leave the shard
		t.unwoken(fk)
	}
}

// endLook has those of the keys read that have something.
func (t *Tail) endLook(s *shard, live []*followed, behind []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.err, s.lastRead = nil, time.Now()
	for _, i := range behind {
		if fk := live[i]; fk.shard == s {
			s.pendSwept(fk)
		}
	}
}

// failLook has keys read anew that couldn't be looked at.
func (t *Tail) failLook(s *shard, live []*followed, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.err = err
	t.failWoken(live)
}

// pendSwept puts a key into the list because of a sweep. Caller holds mu.
func (s *shard) pendSwept(fk *followed) {
	if !fk.wakes.pending {
		fk.wakes.swept = true
		s.pend(fk)
	}
}
