package ws

import (
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// sink is a connection that takes everything.
type sink struct {
	net.Conn
	writes int
}

func (s *sink) Write(p []byte) (int, error) { s.writes++; return len(p), nil }

// TestADeliveryAllocatesNothing is about the steady state: from the feed to the system call, with what each event takes
// once taken off.
func TestADeliveryAllocatesNothing(t *testing.T) {
	for name, protocol := range map[string]protocol{bareName: bare, linesName: lines} {
		t.Run(name, func(t *testing.T) {
			const warm, events, many = 50, 200, 100
			mallocs := func(readers int) float64 {
				f := start(t, backfill.Config{}, transport.Config{})
				f.Begin(t, "r1", "t1")
				f.Append(t, "r1", tt.TextStart)
				conns, sessions := make([]*conn, readers), make([]*backfill.Session, readers)
				for i := range conns {
					c := newConn(f.server, protocol)
					c.socket = &socket{Conn: &sink{}, server: f.server}
					session, err := f.Service.Attach(t.Context(), backfill.Request{Run: "r1"})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(session.Close)
					conns[i], sessions[i] = c, session
					for live := false; !live; {
						items, err := session.Next(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						live = slices.ContainsFunc(items, func(it backfill.Item) bool { return it.Control == backfill.ControlLive })
					}
				}
				wait := t.Context()
				round := func() {
					f.Append(t, "r1", tt.Text("eight by"))
					for i, c := range conns {
						for {
							items, err := sessions[i].Next(wait)
							if err != nil {
								t.Fatal(err)
							}
							c.isAt(sessions[i].Current())
							if err := c.write(items); err != nil {
								t.Fatal(err)
							}
							if sessions[i].Tailing() {
								transport.ObserveAge(f.server.stats.age, items)
								break
							}
						}
					}
				}
				for range warm {
					round()
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range events {
					round()
				}
				runtime.ReadMemStats(&after)
				if writes := conns[0].socket.Conn.(*sink).writes; writes < warm+events {
					t.Fatalf("%d writes", writes)
				}
				return float64(after.Mallocs - before.Mallocs)
			}
			per := (mallocs(1+many) - mallocs(1)) / (many * events)
			t.Logf("%.3f allocations a delivery", per)
			if most := 0.05; per > most && !raced {
				t.Errorf("%.3f allocations a delivery", per)
			}
		})
	}
}
