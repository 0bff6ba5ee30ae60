package ws

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// TestANudgeThatComesLate: the keeper may nudge a write that has just got on. What is written next is none the worse.
func TestANudgeThatComesLate(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	f.Append(t, "r1", tt.TextStart)
	p := f.dial(t, "/v1/runs/r1/ws", linesName)
	p.until("live")
	for range 3 {
		f.atRest()
		for _, c := range f.server.snapshot(nil) {
			c.socket.nudge(time.Now())
		}
		f.Append(t, "r1", tt.Text("x"))
		p.until("TEXT_MESSAGE_CONTENT")
	}
}

// startSecure is startInMemory under TLS, where clients read what the network has as like says.
func startSecure(t *testing.T, like func(net.Conn) net.Conn, service backfill.Config, config transport.Config) *fixture {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	n := tt.NewNetwork(64 << 10)
	return serve(t, service, config, tls.NewListener(n, certified.TLS), func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := n.Dial(ctx, network, addr)
		return tls.Client(like(c), &tls.Config{InsecureSkipVerify: true}), err
	})
}

// TestSlowPeersUnderTLS: a write that ran out of time can't be gone on with there.
func TestSlowPeersUnderTLS(t *testing.T) {
	config := backfill.Config{Hub: hub.Config{QueueBytes: 64 << 20, RingBytes: 64 << 20}}
	t.Run("a peer that takes a little now and then gets everything", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startSecure(t, func(c net.Conn) net.Conn { return slowly{c} }, config, transport.Config{})
			flood(t, f, "r1", 20)
			f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
			begin := time.Now()
			slow := f.raw(t, "/v1/runs/r1/ws?from=start", linesName)
			if code := slow.untilClose(); code != 1000 {
				t.Error(code)
			}
			if d := time.Since(begin); d < time.Minute {
				t.Errorf("it took only %v", d)
			}
		})
	})
	t.Run("a peer that takes nothing for 10 s is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := startSecure(t, func(c net.Conn) net.Conn { return c }, config, transport.Config{})
			flood(t, f, "r1", 100)
			f.raw(t, "/v1/runs/r1/ws?from=start", linesName)
			time.Sleep(9 * time.Second)
			if s := f.server.Figures(); s.Open != 1 {
				t.Errorf("closed early: %+v", s)
			}
			time.Sleep(8 * time.Second) // TLS says goodbye for up to 5
			if s := f.server.Figures(); s.Open != 0 || s.Closes[transport.CloseSlow] != 1 {
				t.Errorf("%+v", s)
			}
		})
	})
}
