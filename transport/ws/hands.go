package ws

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// hands are a few goroutines that write the live tail, and whatever else is due, to all connections. To wake a goroutine
// for each subscriber would cost more than all else but the system call (docs/profiles.md). A hand never waits for a
// connection: where one has to, a goroutine of the connection's own takes over.
type hands struct {
	mu     sync.Mutex
	cond   sync.Cond
	queue  []*conn // each at most once
	head   int     // how many of them are taken
	closed bool
}

func newHands() *hands {
	h := &hands{}
	h.cond.L = &h.mu
	return h
}

// turns is how many connections a hand takes at once: enough that the lock is nothing, few enough that the subscribers of
// one run are shared among hands.
const turns = 16

// add has a connection served.
func (h *hands) add(c *conn) {
	h.mu.Lock()
	if h.head > len(h.queue)/2 {
		n := copy(h.queue, h.queue[h.head:])
		clear(h.queue[n:])
		h.queue, h.head = h.queue[:n], 0
	}
	h.queue = append(h.queue, c)
	h.mu.Unlock()
	h.cond.Signal()
}

// take waits for connections that are to be served; there are none once the hands are closed.
func (h *hands) take(buf []*conn) []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.head == len(h.queue) && !h.closed {
		h.cond.Wait()
	}
	n := min(turns, len(h.queue)-h.head)
	buf = append(buf[:0], h.queue[h.head:h.head+n]...)
	clear(h.queue[h.head : h.head+n])
	h.head += n
	return buf
}

// close ends the hands once the queue is empty.
func (h *hands) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cond.Broadcast()
}

// work has as many hands as there are processors serve connections, until they are closed.
func (h *hands) work(context.Context) {
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() { //nolint:contextcheck // each connection has its own
			hand := newHand()
			var conns []*conn
			for conns = h.take(conns); len(conns) > 0; conns = h.take(conns) {
				hand.now = time.Now() // to ask the clock for each would be a tenth of what a delivery costs
				for _, c := range conns {
					c.turn(hand)
				}
				clear(conns)
			}
		})
	}
	all.Wait()
}

// hand is what one of them works with.
type hand struct {
	room backfill.Room
	now  time.Time // about

	// of one write
	p   []byte
	n   int
	err error
	try func(fd uintptr) bool // made once, so that no write allocates
}

func newHand() *hand {
	h := &hand{}
	h.try = func(fd uintptr) bool {
		h.n, h.err = writeFD(fd, h.p)
		return true
	}
	return h
}

// write writes what the network takes without waiting, which may be nothing.
func (h *hand) write(conn syscall.RawConn, p []byte) (int, error) {
	h.p, h.n, h.err = p, 0, nil
	err := conn.Write(h.try)
	h.p = nil
	if err == nil {
		err = h.err
	}
	return h.n, err
}

// Who serves a connection.
const (
	running int32 = iota // somebody does
	again                // somebody does, and has to look again before it is left alone
	alone                // nobody: there was nothing to do
	queued               // a hand will
)

// wake has whoever serves the connection look at what is due: what was given to it before this is seen.
func (c *conn) wake() {
	c.waker.Wake()
	c.call()
}

// call is wake for what comes in the live tail: it interrupts no wait for something else.
func (c *conn) call() {
	for {
		switch c.state.Load() {
		case alone:
			if c.state.CompareAndSwap(alone, queued) {
				c.server.hands.add(c)
				return
			}
		case running:
			if c.state.CompareAndSwap(running, again) {
				return
			}
		default:
			return
		}
	}
}

// rest leaves the connection alone until it is called; false where it was called already.
func (c *conn) rest() bool {
	if c.state.CompareAndSwap(running, alone) {
		return true
	}
	c.state.Store(running)
	return false
}

// turn serves the connection once, if that needs no waiting. Where more came meanwhile others have their turn first.
func (c *conn) turn(h *hand) {
	c.state.Store(running)
	if !c.pass(h) {
		go c.work()
		return
	}
	if !c.rest() {
		c.state.Store(queued)
		c.server.hands.add(c)
	}
}

// pass writes what is due; false where a goroutine of the connection's own has to go on.
func (c *conn) pass(h *hand) bool {
	if c.isOver() {
		return false
	}
	items, ok := c.session.Tail(&h.room, c.called)
	if !ok {
		return false
	}
	p, asked, err := c.pack(items)
	done := false
	if err == nil {
		done, err = c.socket.writeNow(p, h)
	}
	switch {
	case err != nil:
		c.broken = errLeft
		return false
	case !done:
		c.left = asked
		c.owed, _ = transport.Oldest(items)
		return false
	}
	c.wrote(asked)
	transport.ObserveAge(c.server.stats.age, items, h.now)
	return true
}
