package ws

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// conn is one WebSocket.
type conn struct {
	// static once it serves
	server   *Server
	socket   *socket
	protocol protocol
	inbound  *rate.Limiter           // of messages and pings
	ctx      context.Context         //nolint:containedctx // who serves it changes, and what ends it doesn't
	cancel   context.CancelCauseFunc // ends ctx, with the reason: see stop
	called   func()                  // is call
	leave    func()                  // the server
	deflates bool                    // the peer takes deflated messages
	asks     transport.Ask           // what the peer was allowed
	reader   sync.WaitGroup          // while something may come from the peer

	state atomic.Int32 // who serves it

	// owned by who serves it
	session *backfill.Session
	broken  error     // why nothing can be written any more
	owed    time.Time // when the oldest live entry was published of which a hand couldn't write all; zero for none
	left    int64     // the ping that is in what a hand couldn't write: see asked

	waker    transport.Waker
	replies  atomic.Pointer[chan []byte] // control lines for the peer, from its reader; nil before the first
	farewell atomic.Pointer[[]byte]      // the code that the peer closed with, maybe none; nil before
	pong     atomic.Pointer[[]byte]      // what the peer's newest ping held, until it is answered
	pingDue  atomic.Bool
	run      atomic.Pointer[stream.RunID] // the run that the attach is at; nil before the first
	// asked is when the ping was written that the peer has yet to answer; 0 where there is none.
	asked atomic.Int64

	// caller is who attaches, as of the newest token; nil where the attach was refused.
	caller atomic.Pointer[transport.Caller]
	// expiring is when the peer's token ends, in milliseconds since 1970, until it was told; else 0.
	expiring atomic.Int64

	// away is after how many milliseconds the peer, which is about to be closed, should come back, until it was told.
	away atomic.Int64

	// owned by the keeper
	nextPing int64
	leaves   time.Time         // when the connection is too old; zero until it was met
	leaving  bool              // the peer was told
	watched  *transport.Caller // whose token is watched
	warnAt   time.Time         // when the peer is told that it ends
	warned   bool
}

// replyRoom is how many answers may wait to be written before the reader waits, too.
const replyRoom = 8

// waiting is how many answers wait to be written.
func (c *conn) waiting() int {
	if replies := c.replies.Load(); replies != nil {
		return len(*replies)
	}
	return 0
}

// box is where the reader puts answers.
func (c *conn) box() chan<- []byte {
	if c.replies.Load() == nil {
		replies := make(chan []byte, replyRoom)
		c.replies.Store(&replies)
	}
	return *c.replies.Load()
}

func newConn(s *Server, p protocol) *conn {
	per := s.config.MaxInboundRate
	c := &conn{server: s, protocol: p, inbound: rate.NewLimiter(rate.Limit(per), 2*per)}
	c.called = c.call
	return c
}

// Reasons of an end that is the peer's: it has gone, or it doesn't speak WebSocket as it should.
var (
	errLeft     = errors.New("ws: the peer has gone")
	errProtocol = errors.New("ws: the peer breaks the protocol")
)

// work serves the connection until there is nothing to do for now, or to its end.
func (c *conn) work() {
	if err := c.serve(); err != nil {
		c.finish(err)
	}
}

// serve writes what the session gives and waits for what has to be waited for. It returns nil where the connection rests;
// else it is over, since the session ends, the peer leaves or ctx ends.
func (c *conn) serve() error {
	// Whoever ends ctx wakes as well. A wait that is ctx's child would leave its traces in it while the connection rests.
	always := context.WithoutCancel(c.ctx)
	wait := c.waker.Arm(always)
	defer c.waker.Wake()
	if c.broken == nil {
		c.broken = c.write(nil) // what is left, and what was due before a wake could reach the wait
		c.wrote(c.left)
		c.left = 0
	}
	if c.broken == nil && !c.owed.IsZero() {
		c.server.stats.age.Observe(time.Since(c.owed))
		c.owed = time.Time{}
	}
	for c.broken == nil {
		if c.isOver() {
			return context.Cause(c.ctx)
		}
		items, err := c.session.Poll(wait, c.called)
		if c.isOver() {
			return context.Cause(c.ctx)
		}
		c.isAt(c.session.Current())
		if wait.Err() != nil {
			// First, so that what comes while the rest is written wakes again.
			wait = c.waker.Arm(always) //nolint:fatcontext // its parent isn't the one before
		}
		if c.broken = c.write(items); c.broken != nil {
			break
		}
		if c.session.Tailing() {
			transport.ObserveAge(c.server.stats.age, items, time.Now())
		}
		switch {
		case errors.Is(err, backfill.ErrIdle):
			if c.rest() {
				return nil
			}
		case err != nil && !errors.Is(err, context.Canceled):
			return err
		}
	}
	if errors.Is(c.broken, errStuck) { // whatever else there is: no close frame gets through
		return c.broken
	}
	return c.cause(c.broken)
}

// isOver says whether the connection is being closed.
func (c *conn) isOver() bool { return c.ctx.Err() != nil }

// stop ends the connection for a reason.
func (c *conn) stop(reason error) {
	c.cancel(reason)
	c.wake()
}

// sendAway tells the peer that it is about to be closed and may come back.
func (c *conn) sendAway() {
	c.away.Store(transport.RetryAfter().Milliseconds())
	c.wake()
}

// isAt notes which run the attach is at, for the reader.
func (c *conn) isAt(run stream.RunID) {
	if at := c.run.Load(); run != "" && (at == nil || *at != run) {
		kept := run // or else each call would put its argument on the heap
		c.run.Store(&kept)
	}
}

// cause is why ctx ended, where it did, else err.
func (c *conn) cause(err error) error {
	if c.isOver() {
		return context.Cause(c.ctx)
	}
	return err
}

// write writes items and whatever else is due.
func (c *conn) write(items []backfill.Item) error {
	p, asked, reset := c.pack(items)
	if err := c.socket.writeFrames(p); err != nil {
		if errors.Is(err, errStuck) {
			return err
		}
		return errLeft
	}
	c.wrote(asked)
	return reset
}

// pack makes frames of items and of whatever else is due. asked is when the peer was asked to answer, 0 where it isn't.
func (c *conn) pack(items []backfill.Item) (p *parcel, asked int64, reset error) {
	p = newParcel()
	if c.pingDue.Swap(false) {
		p.control(opPing, nil)
		asked = c.server.now()
		c.asked.Store(asked) // before the answer can come
	}
	if payload := c.pong.Swap(nil); payload != nil {
		p.control(opPong, *payload)
	}
	if c.protocol == bare {
		reset = c.fillBare(p, items)
	} else {
		c.fillLines(p, items)
	}
	if len(p.parts) > 0 {
		c.server.stats.writes.Add(1)
	}
	return p, asked, reset
}

// wrote notes that what pack made was written, which may have taken long.
func (c *conn) wrote(asked int64) {
	if asked != 0 {
		c.asked.CompareAndSwap(asked, c.server.now())
	}
}

// fillBare adds one frame an event. A reset ends it: what follows would be a second beginning in one pipeline.
func (c *conn) fillBare(p *parcel, items []backfill.Item) error {
	stats := &c.server.stats
	for i := range items {
		it := &items[i]
		switch {
		case it.Event != nil:
			if frame := c.deflated(it); frame != nil {
				p.add(frame)
			} else {
				p.set(p.hold(), len(it.Event))
				p.add(it.Event)
			}
			stats.messages.Add(1)
		case it.Delivery != nil:
			stats.deliveries.Add(1)
			stats.messages.Add(int64(len(it.Delivery.Events)))
			if it.Delivery.Reason != "" {
				stats.skipped.Add(1)
			}
			if len(it.Delivery.Events) > 0 {
				p.add(transport.Encoded(it, transport.FormFrames, encodeFrames))
			}
		case it.Control == backfill.ControlReset:
			return errReset
		}
	}
	return nil
}

// errReset ends a connection that can't be told to begin anew.
var errReset = &transport.Error{Code: "run_restarted", Message: "the run began anew or lost entries", Close: transport.CloseGone}

func encodeFrames(d *hub.Delivery, _ stream.Cursor) []byte {
	var b []byte
	for _, e := range d.Events {
		b = append(appendHeader(b, len(e)), e...)
	}
	return b
}

// fillLines adds the lines of items and replies, as many to a message as fit.
func (c *conn) fillLines(p *parcel, items []backfill.Item) {
	m := message{parcel: p, max: c.server.config.MaxMessage, stats: &c.server.stats}
	for i := range items {
		it := &items[i]
		switch {
		case it.Delivery != nil:
			m.stats.deliveries.Add(1)
			if it.Delivery.Reason != "" {
				m.stats.skipped.Add(1)
			}
			if b := transport.Encoded(it, transport.FormLines, encodeLines); len(b) > 0 {
				m.add(b)
			}
		case it.Event != nil:
			if frame := c.deflated(it); frame != nil {
				m.frame(frame)
			} else {
				m.add(transport.AppendLine(nil, it.Event, it.Cursor))
			}
		default:
			m.add(it.Line)
		}
	}
	if at := c.expiring.Swap(0); at != 0 {
		m.add(fmt.Appendf(nil, `{"control":"expiring","atMs":%d}`, at))
	}
	if ms := c.away.Swap(0); ms != 0 {
		m.add(fmt.Appendf(nil, `{"control":"draining","retryAfterMs":%d}`, ms))
	}
	for range c.waiting() {
		m.add(<-*c.replies.Load())
	}
	m.close()
}

func encodeLines(d *hub.Delivery, cursor stream.Cursor) []byte {
	return transport.AppendLines(make([]byte, 0, transport.LinesSize(d)), d, cursor, false)
}

// message gathers lines into text frames of at most max bytes, unless one line is larger.
type message struct {
	parcel *parcel
	stats  *stats
	max    int
	open   bool
	place  int // of the header
	size   int
}

var newline = []byte{'\n'}

func (m *message) add(line []byte) {
	if m.open && m.size+1+len(line) > m.max {
		m.close()
	}
	if m.open {
		m.parcel.add(newline)
		m.size++
	} else {
		m.open, m.place, m.size = true, m.parcel.hold(), 0
	}
	m.parcel.add(line)
	m.size += len(line)
}

// frame adds a message that is a frame already.
func (m *message) frame(b []byte) {
	m.close()
	m.parcel.add(b)
	m.stats.messages.Add(1)
}

func (m *message) close() {
	if m.open {
		m.parcel.set(m.place, m.size)
		m.stats.messages.Add(1)
		m.open = false
	}
}

// closeWait is how long a peer has to answer a close frame.
const closeWait = 5 * time.Second

// maxReason is how long the reason of a close frame may be: RFC 6455, section 5.5.
const maxReason = 123

// end closes the connection for a reason: why it is over, or why it wasn't served.
func (c *conn) end(err error) {
	c.cancel(err) // the reader must not wait for who writes any more
	// What is left may wait for the peer.
	defer c.socket.cut()
	defer time.AfterFunc(closeWait, c.socket.cut).Stop()
	stats := &c.server.stats
	code, reason := transport.CloseEnded, "the run ended"
	switch {
	case errors.Is(err, io.EOF):
	case errors.Is(err, errLeft):
		stats.left.Add(1)
		if farewell := c.farewell.Load(); farewell != nil {
			_ = c.socket.writeClose(*farewell)
		}
		return
	case errors.Is(err, errProtocol):
		stats.left.Add(1)
		c.say(closeProtocol, "")
		return
	case errors.Is(err, errStuck): // a close frame would stand in the middle of another
		stats.closes[transport.CloseSlow.Index()].Add(1)
		return
	case errors.Is(err, context.Canceled):
		e := transport.Draining()
		code, reason = e.Close, e.Message
	default:
		e := transport.ErrorFor(err)
		code, reason = e.Close, e.Message
		if c.waiting() > 0 {
			_ = c.write(nil) // why, in a control line
		}
		if code == transport.CloseInternal {
			c.server.logger.Warn("attach", zap.Error(err))
		}
	}
	stats.closes[code.Index()].Add(1)
	c.say(uint16(code), reason)
}

// closeProtocol is the code for a peer that breaks the protocol: RFC 6455, section 7.4.1.
const closeProtocol = 1002

// say writes a close frame and waits until the peer has answered, or has gone.
func (c *conn) say(code uint16, reason string) {
	for len(reason) > maxReason || !utf8.ValidString(reason) {
		reason = reason[:min(len(reason), maxReason+1)-1]
	}
	if c.socket.writeClose(append(binary.BigEndian.AppendUint16(nil, code), reason...)) == nil {
		c.reader.Wait()
	}
}
