package ws

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestPings(t *testing.T) {
	t.Run("come every 25 s and are answered by any client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			pings := 0
			p := f.dialWith(t, "/v1/runs/r1/ws", &websocket.DialOptions{
				OnPingReceived: func(context.Context, []byte) bool { pings++; return true },
			})
			reading := p.drop(t)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if pings < 11 || pings > 14 {
				t.Errorf("%d pings in five minutes", pings)
			}
			if s := f.server.Figures(); s.Open != 1 {
				t.Errorf("%+v", s)
			}
			_ = p.CloseNow()
			<-reading
		})
	})
	t.Run("also while a run is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, backfill.Config{AttachWait: time.Hour}, transport.Config{})
			r := f.raw(t, "/v1/runs/later/ws", linesName)
			begin := time.Now()
			if op, _ := r.frame(); op != opPing || time.Since(begin) > 29*time.Second {
				t.Fatal(op, time.Since(begin))
			}
		})
	})
	t.Run("don't make the wait for an unknown run longer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, backfill.Config{}, transport.Config{PingEvery: 8 * time.Second, PongWait: 5 * time.Second})
			p := f.dial(t, "/v1/runs/never/ws")
			begin := time.Now()
			_, _, err := p.Read(t.Context())
			if websocket.CloseStatus(err) != 4404 || time.Since(begin).Round(time.Second) != 30*time.Second {
				t.Fatal(err, time.Since(begin))
			}
		})
	})
	t.Run("that aren't answered in 10 s close with 4408", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			r := f.raw(t, "/v1/runs/r1/ws", bareName)
			for {
				if op, _ := r.frame(); op == opPing {
					break
				}
			}
			pinged := time.Now()
			if code := r.untilClose(); code != 4408 {
				t.Fatal(code)
			}
			if d := time.Since(pinged); d < 10*time.Second || d > 13*time.Second {
				t.Fatalf("after %v", d)
			}
		})
	})
	t.Run("of those who came together don't all come together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			first := map[int]int{}
			begin := time.Now()
			for range 50 {
				r := f.raw(t, "/v1/runs/r1/ws", bareName)
				for {
					if op, _ := r.frame(); op == opPing {
						break
					}
				}
				first[int(time.Since(begin)/time.Second)]++
				_ = r.Close()
				begin = time.Now()
			}
			if len(first) < 8 {
				t.Errorf("first pings after so many seconds: %v", first)
			}
		})
	})
}

// drop reads and drops messages until the connection is closed.
func (p *peer) drop(tb testing.TB) (done chan struct{}) {
	tb.Helper()
	done = make(chan struct{})
	ctx := context.WithoutCancel(tb.Context())
	go func() {
		defer close(done)
		for {
			if _, _, err := p.Read(ctx); err != nil {
				return
			}
		}
	}()
	return done
}

// flood is a run of many large events, which no buffer of the test's network holds.
func flood(tb testing.TB, f *fixture, run string, events int) {
	tb.Helper()
	f.Begin(tb, run, "t1")
	f.Append(tb, run, tt.TextStart)
	for range events {
		f.Append(tb, run, tt.Text(strings.Repeat("x", 10<<10)))
	}
}

func TestSlowPeers(t *testing.T) {
	config := backfill.Config{Hub: hub.Config{QueueBytes: 64 << 20, RingBytes: 64 << 20}}
	t.Run("a peer that takes nothing for 10 s is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, config, transport.Config{})
			flood(t, f, "r1", 100)
			f.raw(t, "/v1/runs/r1/ws?from=start", linesName)
			time.Sleep(9 * time.Second)
			synctest.Wait()
			if s := f.server.Figures(); s.Open != 1 {
				t.Fatalf("closed early: %+v", s)
			}
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if s := f.server.Figures(); s.Open != 0 || s.Closes[transport.CloseSlow] != 1 {
				t.Fatalf("%+v", s)
			}
		})
	})
	t.Run("a peer that takes a little now and then gets everything", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, config, transport.Config{})
			flood(t, f, "r1", 20)
			f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
			r := f.raw(t, "/v1/runs/r1/ws?from=start", linesName)
			slow := &raw{Conn: slowly{r.Conn}, t: t}
			begin := time.Now()
			if code := slow.untilClose(); code != 1000 {
				t.Fatal(code)
			}
			if d := time.Since(begin); d < time.Minute {
				t.Fatalf("it took only %v", d)
			}
		})
	})
	t.Run("a peer that lags behind a run is closed, and the others go on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			slow, fast := f.raw(t, "/v1/runs/r1/ws", linesName), f.dial(t, "/v1/runs/r1/ws")
			fast.message()
			synctest.Wait()
			f.Append(t, "r1", tt.TextStart)
			for range 150 {
				f.Append(t, "r1", tt.Text(strings.Repeat("x", 10<<10)))
				for typeOf(fast.message()) != "TEXT_MESSAGE_CONTENT" {
				}
			}
			if code := slow.untilClose(); code != 4408 { // it reads again, within the 10 s
				t.Fatal(code)
			}
		})
	})
	t.Run("whose token ends in the middle of the past are closed then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, config, transport.Config{})
			flood(t, f, "r1", 20)
			f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
			r := f.raw(t, "/v1/runs/r1/ws?from=start", linesName)
			slow := &raw{Conn: slowly{r.Conn}, t: t}
			synctest.Wait()
			ends := time.Now().Add(20 * time.Second) // the whole past takes this peer more than a minute
			for _, c := range f.server.snapshot(nil) {
				c.caller.Store(&transport.Caller{Grant: &auth.Grant{Expires: ends}})
			}
			if code := slow.untilClose(); code != 4401 {
				t.Fatal(code)
			}
			if s := f.server.Figures(); s.Open != 0 || s.Closes[4401] != 1 {
				t.Fatalf("%+v", s)
			}
		})
	})
	t.Run("closing the server doesn't wait for them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startInMemory(t, config, transport.Config{})
			flood(t, f, "r1", 100)
			f.raw(t, "/v1/runs/r1/ws?from=start", linesName)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			begin := time.Now()
			f.server.Close(ctx)
			if d := time.Since(begin); d != 3*time.Second || f.server.Figures().Open != 0 {
				t.Fatal(d)
			}
		})
	})
}

// slowly is a connection of which at most 8 KiB are read at a time, with a pause before.
type slowly struct{ net.Conn }

// Read implements net.Conn.
func (s slowly) Read(p []byte) (int, error) {
	if len(p) > 2 { // the headers of frames cost no pause
		time.Sleep(4 * time.Second)
	}
	return s.Conn.Read(p[:min(len(p), 8<<10)])
}
