package ws

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestAThousandSocketsOnOneRun(t *testing.T) {
	const sockets, events = 1000, 30
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	f.Append(t, "r1", tt.TextStart)
	var ready, done sync.WaitGroup
	results := make(chan string, sockets)
	for i := range sockets {
		protocol := []string{bareName, linesName}[i%2]
		p := f.dial(t, "/v1/runs/r1/ws", protocol)
		ready.Add(1)
		done.Go(func() { results <- watch(t.Context(), p, protocol == linesName, ready.Done) })
	}
	ready.Wait()
	for i := range events {
		f.Append(t, "r1", tt.Text(strconv.Itoa(i)))
	}
	f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
	want := strings.Repeat("TEXT_MESSAGE_CONTENT ", events) + "TEXT_MESSAGE_END RUN_FINISHED "
	done.Wait()
	for range sockets {
		if got := <-results; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	for f.server.Figures().Open > 0 {
		time.Sleep(time.Millisecond)
	}
	if s := f.server.Figures(); s.Accepted != sockets || s.Closes[transport.CloseEnded] != sockets || s.Deliveries != sockets*(events+2) {
		t.Errorf("%+v", s)
	}
	if s := f.Service.Figures(); s.Subscribers != 0 || s.Entries != events+4 {
		t.Errorf("the run was read more than once: %+v", s)
	}
}

// watch reads up to the end and returns the types of the events behind the preamble, or what went wrong.
func watch(ctx context.Context, p *peer, lines bool, ready func()) (got string) {
	live := false
	for {
		_, b, err := p.Read(ctx)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return got
		}
		if err != nil {
			return err.Error()
		}
		if !lines {
			if live {
				got += typeOf(string(b)) + " "
			} else if typeOf(string(b)) == "TEXT_MESSAGE_START" {
				live = true
				ready()
			}
			continue
		}
		for _, l := range linesOf(p.t, string(b)) {
			switch {
			case l.Control == "live":
				live = true
				ready()
			case live && l.Event != nil:
				got += l.name() + " "
			}
		}
	}
}

func TestClosing(t *testing.T) {
	t.Run("says 1012 to all and waits for them", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		peers := make([]*peer, 20)
		for i := range peers {
			peers[i] = f.dial(t, []string{"/v1/runs/r1/ws", "/v1/threads/t1/ws", "/v1/runs/none/ws", "/v1/threads/none/ws"}[i%4])
		}
		for f.server.Figures().Open < 20 {
			time.Sleep(time.Millisecond)
		}
		var all sync.WaitGroup
		codes := make(chan websocket.StatusCode, len(peers))
		for _, p := range peers {
			all.Go(func() {
				for {
					if _, _, err := p.Read(context.Background()); err != nil {
						codes <- websocket.CloseStatus(err)
						return
					}
				}
			})
		}
		f.server.Close(t.Context())
		if s := f.server.Figures(); s.Open != 0 || s.Closes[transport.CloseDraining] != 20 {
			t.Errorf("%+v", s)
		}
		all.Wait()
		for range peers {
			if code := <-codes; code != 1012 {
				t.Fatal(code)
			}
		}
	})
	t.Run("a peer that leaves is forgotten, and the run goes on", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		polite, rude, stays := f.dial(t, "/v1/runs/r1/ws"), f.dial(t, "/v1/runs/r1/ws"), f.dial(t, "/v1/runs/r1/ws")
		for _, p := range []*peer{polite, rude, stays} {
			p.message()
		}
		if err := polite.Close(websocket.StatusGoingAway, ""); err != nil {
			t.Fatal(err)
		}
		_ = rude.CloseNow()
		for f.server.Figures().Open != 1 || f.Service.Figures().Subscribers != 1 {
			time.Sleep(time.Millisecond)
		}
		if s := f.server.Figures(); s.Left != 2 {
			t.Errorf("%+v", s)
		}
		f.Append(t, "r1", tt.TextStart)
		for typeOf(stays.message()) != "TEXT_MESSAGE_START" {
		}
	})
}

// BenchmarkFanOut is the cost of a delivery to 100 sockets that read on the same machine.
func BenchmarkFanOut(b *testing.B) {
	const sockets = 100
	f := start(b, backfill.Config{}, transport.Config{})
	f.Begin(b, "r1", "t1")
	f.Append(b, "r1", tt.TextStart)
	var got sync.WaitGroup
	var reading sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	for range sockets {
		p := f.dial(b, "/v1/runs/r1/ws", linesName)
		p.until("live")
		reading.Go(func() {
			for {
				if _, _, err := p.Read(ctx); err != nil {
					return
				}
				got.Done()
			}
		})
	}
	event := tt.Text("twenty-three characters")
	for b.Loop() {
		got.Add(sockets)
		f.Append(b, "r1", event)
		got.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sockets), "ns/delivery")
	cancel()
	reading.Wait()
}
