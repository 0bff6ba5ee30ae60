package ws

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/aguihub/aguihub/transport"
)

// errSilent says that a ping wasn't answered.
var errSilent = &transport.Error{Code: "silent", Message: "a ping wasn't answered", Close: transport.CloseSlow}

// beats is how often in the shortest of its times the keeper walks, so that these are kept to an eighth.
const beats = 8

// keep walks over the connections: it has pings sent, in bursts since that costs a fifth of single ones
// (docs/profiles.md), ends those who don't answer, and nudges writes that don't get on.
func (s *Server) keep(ctx context.Context) {
	beat := min(s.config.WriteTimeout, s.config.PongWait, s.config.PingEvery)/beats + time.Millisecond
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	var conns []*conn
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			conns = s.snapshot(conns)
			for _, c := range conns {
				c.check(now, beat)
			}
			clear(conns)
		}
	}
}

// check is the keeper's look at one connection.
func (c *conn) check(t time.Time, beat time.Duration) {
	now, config := c.server.since(t), &c.server.config
	c.checkToken(t)
	c.checkAge(t, config.MaxAge)
	if since := c.socket.blocked.Load(); since != 0 {
		// While the peer takes bytes slowly, its pong is behind them: the write's own timeout counts.
		if now-since >= int64(beat) {
			c.socket.nudge(t)
		}
		return
	}
	switch asked := c.asked.Load(); {
	case asked != 0 && now-asked >= int64(config.PongWait):
		c.stop(errSilent)
	case c.nextPing == 0:
		// The first comes within the whole time, so that those who came together aren't pinged together for ever.
		c.nextPing = now + int64(rand.N(config.PingEvery))
	case asked == 0 && now >= c.nextPing:
		c.nextPing = now + int64(config.PingEvery) - int64(rand.N(config.PingEvery/10+1))
		c.pingDue.Store(true)
		c.wake()
	}
}

// A peer is told that its token ends a third of its life ahead, but at most warnAhead and at least warnLeast: the keeper
// needs its beats.
const (
	warnAhead = 30 * time.Second
	warnLeast = 3 * time.Second
)

// checkToken tells a peer that its token ends soon, and ends the connection when it does.
func (c *conn) checkToken(now time.Time) {
	if caller := c.caller.Load(); caller != c.watched {
		c.watched, c.warnAt, c.warned = caller, time.Time{}, false
		if ends := caller.Grant.Expires; !ends.IsZero() {
			c.warnAt = ends.Add(-min(warnAhead, max(ends.Sub(now)/3, warnLeast)))
		}
	}
	if c.warnAt.IsZero() || now.Before(c.warnAt) {
		return
	}
	ends := c.watched.Grant.Expires
	switch {
	case !now.Before(ends):
		c.stop(transport.ErrTokenExpired)
	case !c.warned:
		c.warned = true
		c.expiring.Store(ends.UnixMilli())
		c.wake()
	}
}

// checkAge sends away who has been here for too long, jittered by a tenth: it may come back, perhaps to another hub.
func (c *conn) checkAge(now time.Time, most time.Duration) {
	switch {
	case most <= 0:
	case c.leaves.IsZero():
		c.leaves = now.Add(most - rand.N(most/10+1))
	case now.Before(c.leaves):
	case !c.leaving:
		c.leaving = true
		c.sendAway()
	default:
		c.stop(transport.Draining())
	}
}

func (s *Server) now() int64 { return s.since(time.Now()) }
