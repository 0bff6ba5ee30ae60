package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// goroutines is how many goroutines there are of connections, but for those that only begin or end.
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
			if n := goroutines(t); n > readers {
				t.Errorf("%d goroutines for %d subscribers", n, readers)
			}
			run, thread := "r1", "t1"
			if path != "/v1/runs/r1/ws" && path != "/v1/threads/t1/ws" {
				run, thread = "r9", strings.Split(path, "/")[3]
				f.Begin(t, run, thread)
			}
			f.Append(t, run, tt.TextStart)
			for _, p := range peers {
				p.until("TEXT_MESSAGE_START")
			}
			f.atRest()
			if n := goroutines(t); n > readers {
				t.Errorf("%d goroutines for %d subscribers that were served", n, readers)
			}
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
