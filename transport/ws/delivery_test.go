package ws

import (
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// sink is a connection that takes everything.
type sink struct {
	net.Conn
	null *os.File
}

func (s sink) Write(p []byte) (int, error)           { return s.null.Write(p) }
func (s sink) SyscallConn() (syscall.RawConn, error) { return s.null.SyscallConn() }

// crowd is subscribers on one run, from the feed to the system call.
type crowd struct {
	*fixture
	want int64 // deliveries
	size int
}

func gather(tb testing.TB, n int, p protocol) *crowd {
	tb.Helper()
	c := &crowd{fixture: start(tb, backfill.Config{}, transport.Config{}), size: n}
	c.Begin(tb, "r1", "t1")
	c.Append(tb, "r1", tt.TextStart)
	for range n {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = null.Close() })
		member := newConn(c.server, p)
		member.ctx, member.cancel = tb.Context(), func(error) {}
		member.socket = newSocket(c.server, sink{null: null})
		if member.session, err = c.Service.Attach(tb.Context(), backfill.Request{Run: "r1"}); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			for !member.state.CompareAndSwap(alone, queued) { // so that nobody serves it any more
				runtime.Gosched()
			}
			member.session.Close()
		})
		if err := member.serve(); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

const event = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a few words "}`

// deliver has all of them written an event.
func (c *crowd) deliver(tb testing.TB) {
	tb.Helper()
	c.want += int64(c.size)
	c.Append(tb, "r1", event)
	for c.server.stats.deliveries.Load() < c.want {
		runtime.Gosched()
	}
}

// allocations is how many objects an event takes.
func (c *crowd) allocations(tb testing.TB) float64 {
	tb.Helper()
	for range 50 {
		c.deliver(tb)
	}
	const events = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range events {
		c.deliver(tb)
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / events
}

// TestADeliveryAllocatesNothing is about the steady state, with what each event takes once taken off.
func TestADeliveryAllocatesNothing(t *testing.T) {
	for name, protocol := range map[string]protocol{bareName: bare, linesName: lines} {
		t.Run(name, func(t *testing.T) {
			const many = 100
			per := (gather(t, 1+many, protocol).allocations(t) - gather(t, 1, protocol).allocations(t)) / many
			t.Logf("%.3f allocations a delivery", per)
			if most := 0.05; per > most && !raced {
				t.Errorf("%.3f allocations a delivery", per)
			}
		})
	}
}

// BenchmarkDelivery is what the hub itself spends on a delivery, with an event in each write of a system call that does nothing.
func BenchmarkDelivery(b *testing.B) {
	const sockets = 1000
	c := gather(b, sockets, lines)
	b.ReportAllocs()
	per := (c.allocations(b) - gather(b, 1, lines).allocations(b)) / (sockets - 1)
	for b.Loop() {
		c.deliver(b)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sockets), "ns/delivery")
	b.ReportMetric(max(per, 0), "allocs/delivery") // those of the single one may be more by chance
}
