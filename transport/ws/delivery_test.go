package ws

import (
	"context"
	"testing"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// crowd is subscribers on one run whose connections are driven by the test, instead of a goroutine each.
type crowd struct {
	*fixture
	conns    []*conn
	sessions []*backfill.Session
}

func gather(tb testing.TB, n int, p protocol) *crowd {
	tb.Helper()
	c := &crowd{fixture: start(tb, backfill.Config{}, transport.Config{})}
	c.Begin(tb, "r1", "t1")
	c.Append(tb, "r1", tt.TextStart)
	for range n {
		member := newConn(c.server, p)
		member.socket = &socket{Conn: &sink{}, server: c.server}
		session, err := c.Service.Attach(tb.Context(), backfill.Request{Run: "r1"})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(session.Close)
		c.conns, c.sessions = append(c.conns, member), append(c.sessions, session)
	}
	for c.serve(tb); !c.sessions[n-1].Tailing(); c.serve(tb) {
		c.Append(tb, "r1", event)
	}
	return c
}

const event = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a few words "}`

// serve does once for each of them what conn.attach does.
func (c *crowd) serve(tb testing.TB) {
	tb.Helper()
	ctx := context.Background()
	for i := range c.conns {
		items, err := c.sessions[i].Next(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		c.conns[i].isAt(c.sessions[i].Current())
		if err := c.conns[i].write(items); err != nil {
			tb.Fatal(err)
		}
		transport.ObserveAge(c.server.stats.age, items)
	}
}

// BenchmarkDelivery is what the hub itself spends on a delivery, with an event in each write and without the system call.
func BenchmarkDelivery(b *testing.B) {
	const sockets = 1000
	c := gather(b, sockets, lines)
	b.ReportAllocs()
	var deliveries int
	var spent time.Duration
	allocs := testing.AllocsPerRun(20, func() { c.Append(b, "r1", event); c.serve(b) })
	alone := gather(b, 1, lines)
	once := testing.AllocsPerRun(20, func() { alone.Append(b, "r1", event); alone.serve(b) })
	for b.Loop() {
		c.Append(b, "r1", event)
		began := time.Now()
		c.serve(b)
		spent += time.Since(began)
		deliveries += sockets
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(deliveries), "ns/delivery")
	b.ReportMetric((allocs-once)/(sockets-1), "allocs/delivery")
}
