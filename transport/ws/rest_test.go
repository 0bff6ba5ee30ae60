package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream/streamtest"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// goroutines is how many goroutines there are of connections, with those that only begin or end.
func goroutines(tb testing.TB) int {
	tb.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		tb.Fatal(err)
	}
	n := 0
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, "transport/ws.(*conn).") {
			n++
		}
	}
	return n
}

// atRest waits until nobody serves any connection.
func (f *fixture) atRest() {
	for {
		resting := 0
		conns := f.server.snapshot(nil)
		for _, c := range conns {
			if c.state.Load() == alone {
				resting++
			}
		}
		if resting == len(conns) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAnIdleSubscriberIsOneGoroutine(t *testing.T) {
	for name, path := range map[string]string{
		"of a run":                               "/v1/runs/r1/ws",
		"of a thread whose run goes on":          "/v1/threads/t1/ws",
		"of a thread whose newest run has ended": "/v1/threads/t2/ws",
		"of a thread without a run":              "/v1/threads/t3/ws",
	} {
		t.Run(name, func(t *testing.T) {
			const readers = 20
			f := start(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			f.Begin(t, "r2", "t2")
			f.Append(t, "r2", tt.Finished("r2", "t2"))
			peers := make([]*peer, readers)
			for i := range peers {
				peers[i] = f.dial(t, path, linesName)
				peers[i].until("attached")
			}
			f.atRest()
			streamtest.Eventually(t, "a goroutine for each subscriber", func() bool { return goroutines(t) <= readers })
			run := "r1"
			if path != "/v1/runs/r1/ws" && path != "/v1/threads/t1/ws" {
				run = "r9"
				f.Begin(t, run, strings.Split(path, "/")[3])
			}
			f.Append(t, run, tt.TextStart)
			for _, p := range peers {
				p.until("TEXT_MESSAGE_START")
			}
			f.atRest()
			streamtest.Eventually(t, "a goroutine for each subscriber that was served", func() bool { return goroutines(t) <= readers })
		})
	}
}

// A peer that takes nothing for a while must not hold up those who share its hands.
func TestASlowPeerHoldsNobodyUp(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{WriteTimeout: time.Minute})
	f.Begin(t, "r1", "t1")
	f.Append(t, "r1", tt.TextStart)
	const slow = 8 // more than there are hands
	for range slow {
		f.dial(t, "/v1/runs/r1/ws", linesName).until("live") // and reads no more
	}
	p := f.dial(t, "/v1/runs/r1/ws", linesName)
	p.until("live")
	large := tt.Text(strings.Repeat("x", 100_000))
	for i := range 100 { // more than their sockets hold
		f.Append(t, "r1", large, tt.Text(fmt.Sprint("number ", i)))
		for !strings.Contains(p.message(), fmt.Sprint("number ", i, `"`)) {
		}
	}
}

// What was due before a connection began to wait isn't waited over.
func TestWhatIsDueBeforeAWait(t *testing.T) {
	serve := func(t *testing.T, due func(c *conn)) (written *bytes.Buffer, err error) {
		t.Helper()
		f := startInMemory(t, backfill.Config{}, transport.Config{})
		c := newConn(f.server, lines)
		c.ctx, c.cancel = context.WithCancelCause(t.Context())
		written = &bytes.Buffer{}
		c.socket = newSocket(f.server, bufferConn{written})
		if c.session, err = f.Service.Attach(c.ctx, backfill.Request{Run: "none"}); err != nil {
			t.Fatal(err)
		}
		defer c.session.Close()
		due(c)
		return written, c.serve()
	}
	bubble := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	bubble("an end", func(t *testing.T) {
		began := time.Now()
		if _, err := serve(t, func(c *conn) { c.stop(errSilent) }); !errors.Is(err, errSilent) || time.Since(began) > 0 {
			t.Error(err, time.Since(began))
		}
	})
	bubble("an answer", func(t *testing.T) {
		written, err := serve(t, func(c *conn) {
			c.pinged([]byte("p"))
			time.AfterFunc(time.Second, func() { c.stop(errSilent) })
		})
		if written.String() != "\x8a\x01p" || !errors.Is(err, errSilent) {
			t.Errorf("%q, %v", written, err)
		}
	})
}

// bufferConn is a connection of which one sees what was written.
type bufferConn struct{ *bytes.Buffer }

func (bufferConn) Close() error                     { return nil }
func (bufferConn) LocalAddr() net.Addr              { return nil }
func (bufferConn) RemoteAddr() net.Addr             { return nil }
func (bufferConn) SetDeadline(time.Time) error      { return nil }
func (bufferConn) SetReadDeadline(time.Time) error  { return nil }
func (bufferConn) SetWriteDeadline(time.Time) error { return nil }

// talkative is a peer's network of which each write takes so long that something else comes to be written.
type talkative struct {
	syscall.RawConn
	came func()
}

// Write implements syscall.RawConn.
func (n talkative) Write(f func(uintptr) bool) error {
	n.came()
	return n.RawConn.Write(f)
}

// A run that never pauses must not have a hand to itself. The connection is the test's own, of which no other goroutine knows.
func TestAHandServesOthersBeforeItServesTheSameAgain(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.server.hands.close()
	f.server.hands = newHands() // of which ours is the only one
	f.Begin(t, "r1", "t1")
	l, d := new(net.ListenConfig), new(net.Dialer)
	peers, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peers.Close() }()
	conn, err := d.DialContext(t.Context(), "tcp", peers.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := newConn(f.server, lines)
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	defer c.cancel(nil)
	c.socket = newSocket(f.server, conn)
	passes := 0
	c.socket.raw = talkative{c.socket.raw, func() {
		if passes++; passes < 50 {
			c.call()
			c.pingDue.Store(true)
		}
	}}
	if c.session, err = f.Service.Attach(c.ctx, backfill.Request{Run: "r1"}); err != nil {
		t.Fatal(err)
	}
	defer c.session.Close()
	c.work() // until there is nothing more to do
	passes = 0
	c.state.Store(queued)
	c.pingDue.Store(true)
	c.turn(newHand())
	if passes != 1 || c.state.Load() != queued || len(f.server.hands.queue) != 1 {
		t.Errorf("%d passes", passes)
	}
}

// TestAPingThatAHandHadToLeave: the peer has the whole time to answer from when it was written.
func TestAPingThatAHandHadToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startInMemory(t, backfill.Config{}, transport.Config{PingEvery: time.Hour})
		f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.TextStart)
		r := f.raw(t, "/v1/runs/r1/ws", linesName)
		for {
			if _, b := r.frame(); strings.Contains(string(b), `"live"`) {
				break
			}
		}
		large := tt.Text(strings.Repeat("x", 60<<10))
		f.Append(t, "r1", large) // nearly fills what the network holds
		synctest.Wait()
		for _, c := range f.server.snapshot(nil) {
			c.pingDue.Store(true)
		}
		f.Append(t, "r1", large)
		time.Sleep(8 * time.Second)
		for op := byte(opText); op != opPing; {
			op, _ = r.frame()
		}
		r.frame()
		time.Sleep(5 * time.Second) // it takes its time
		synctest.Wait()
		if s := f.server.Figures(); s.Closes[transport.CloseSlow] != 0 || s.Open != 1 {
			t.Fatalf("taken for silent: %+v", s)
		}
	})
}

// TestAnswersToPingsAtRest: answers are taken while nobody reads, however they come, and nothing is lost that comes with them.
func TestAnswersToPingsAtRest(t *testing.T) {
	pong, message := masked(final|opPong, nil), masked(final|opText, []byte(`{"control":"ping"}`))
	for name, pieces := range map[string][][]byte{
		"alone":                        {pong},
		"in two pieces":                {pong[:3], pong[3:]},
		"with something in it":         {masked(final|opPong, []byte("x"))},
		"before a message":             {join(pong, message)},
		"before a piece of a message":  {join(pong, message[:8]), message[8:]},
		"behind a message":             {join(message, pong)},
		"twice, and behind a message":  {join(pong, pong, message)},
		"between pieces of one":        {join(masked(opText, []byte(`{"control":`)), pong, masked(final, []byte(`"ping"}`)))},
		"before a ping of the peer's":  {join(pong, masked(final|opPing, []byte("y")))},
		"before the end of the peer's": {join(pong, masked(final|opClose, nil))},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			r := f.raw(t, "/v1/runs/r1/ws", linesName)
			if err := r.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			until := func(op byte, what string) {
				for {
					if got, b := r.frame(); got == op && strings.Contains(string(b), what) {
						return
					}
				}
			}
			until(opText, `"live"`)
			f.atRest()
			c := f.server.snapshot(nil)[0]
			for range 3 {
				c.pingDue.Store(true)
				c.wake()
				until(opPing, "")
				for _, piece := range pieces {
					r.write(piece...)
				}
				switch all := join(pieces...); {
				case bytes.HasSuffix(all, masked(final|opClose, nil)):
					until(opClose, "")
					return
				case bytes.HasSuffix(all, []byte("y")):
					until(opPong, "y")
				case bytes.Contains(all, []byte(`"ping"`)):
					until(opText, `"pong"`)
				}
				for c.asked.Load() != 0 {
					if c.isOver() { // since it wasn't taken, for one
						t.Fatal("the answer wasn't taken")
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
}
