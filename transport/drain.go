package transport

import (
	"context"
	"math/rand/v2"
	"time"
)

// drainGap is the least time between two closes of a drain, on average: what comes back elsewhere is a stream of
// handshakes of a third of a millisecond each (docs/profiles.md), and few connections needn't be kept waiting.
const drainGap = 50 * time.Millisecond

// Spread calls each with the numbers below n, at random moments of over or, where that is shorter, at twenty a second. It
// returns when all were called, or ctx ends: then the rest isn't.
func Spread(ctx context.Context, n int, over time.Duration, each func(i int)) {
	gap := drainGap
	if n > 0 {
		gap = min(gap, over/time.Duration(n))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for i := range n {
		if gap > 0 {
			timer.Reset(gap/2 + rand.N(gap))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		each(i)
	}
}

// RetryAfter is how long a client that is sent away should wait before it comes back: up to a second, so that those who
// were sent away together don't come back together.
func RetryAfter() time.Duration { return 100*time.Millisecond + rand.N(900*time.Millisecond) }

// Shut lets nobody in any more. It doesn't end what is under way.
func (g *Group) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Drain shuts the group and waits until all have left, or until ctx ends: false then. It ends nobody.
func (g *Group) Drain(ctx context.Context) bool {
	g.Shut()
	return g.left(ctx)
}
