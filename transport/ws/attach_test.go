package ws

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestAttach(t *testing.T) {
	t.Run("the hub's subprotocol gives the bracket, then live lines with cursors", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		at := f.Append(t, "r1", tt.TextStart, tt.Text("a"))
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		if p.Subprotocol() != linesName {
			t.Fatal(p.Subprotocol())
		}
		got := p.until("live")
		if n := names(got); n != "attached catchup RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT TEXT_MESSAGE_START live" {
			t.Fatal(n)
		}
		for _, l := range got[:len(got)-1] {
			if l.ID != "" {
				t.Errorf("one could resume in the bracket: %s", l.raw)
			}
		}
		if got[len(got)-1].ID != at {
			t.Errorf("live at %s, the newest entry is %s", got[len(got)-1].ID, at)
		}
		c := f.Append(t, "r1", tt.Text("b"))
		l := p.until("TEXT_MESSAGE_CONTENT")
		if want := `{"id":"` + c + `","event":` + tt.Text("b") + `}`; l[0].raw != want {
			t.Fatalf("got %s, want %s", l[0].raw, want)
		}
	})
	t.Run("of the events of one entry only the last has the cursor, and what is wrong is said behind them", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.TextStart)
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		p.until("live")
		end := f.Append(t, "r1", tt.Finished("r1", "t1"))
		got := p.until("ended")
		if n := names(got); n != "TEXT_MESSAGE_END RUN_FINISHED skipped ended" {
			t.Fatal(n)
		}
		if got[0].ID != "" || got[1].ID != end || got[2].ID != end || got[2].Reason != "unclosed" {
			t.Fatal(got)
		}
		if code, reason, more := p.closed(); code != 1000 || more != 0 || reason == "" {
			t.Fatal(code, reason, more)
		}
	})
	for _, protocols := range [][]string{{bareName}, {}} {
		t.Run(fmt.Sprintf("with %v offered each message is one bare event and nothing else", protocols), func(t *testing.T) {
			f := start(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			f.Append(t, "r1", tt.TextStart)
			p := f.dial(t, "/v1/runs/r1/ws", protocols...)
			if want := strings.Join(protocols, ""); p.Subprotocol() != want {
				t.Fatalf("selected %q", p.Subprotocol())
			}
			for _, want := range []string{"RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "TEXT_MESSAGE_START"} {
				if got := typeOf(p.message()); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
			f.Append(t, "r1", tt.Text("a"), `{"type":"TEXT_MESSAGE_CONTENT"}`, tt.Text("b"), tt.Finished("r1", "t1"))
			for _, want := range []string{tt.Text("a"), tt.Text("b"), tt.TextEnd, tt.Finished("r1", "t1")} {
				if got := p.message(); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
			if code, _, _ := p.closed(); code != 1000 {
				t.Fatal(code)
			}
			if s := f.server.Figures(); s.Skipped != 2 || s.Closes[transport.CloseEnded] != 1 || s.Messages != 8 || s.Deliveries != 4 {
				t.Errorf("%+v", s)
			}
		})
	}
	t.Run("a withheld entry is told, and its cursor moves on", func(t *testing.T) {
		for _, pass := range []bool{false, true} {
			f := start(t, backfill.Config{PassInvalid: pass}, transport.Config{})
			f.Begin(t, "r1", "t1")
			p := f.dial(t, "/v1/runs/r1/ws", linesName)
			p.until("live")
			at := f.Append(t, "r1", "{\"type\":\"CUSTOM\",\"name\":\"x\",\"value\":\"\xed\xa0\xbd\"}")
			m := p.message()
			if !utf8.ValidString(m) {
				t.Fatalf("not UTF-8: %q", m)
			}
			if want := `{"control":"skipped","id":"` + at + `","reason":"not_utf8"}`; m != want {
				t.Fatalf("got %s, want %s", m, want)
			}
		}
	})
	t.Run("a thread's cursors name the run, and its socket stays open", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		p := f.dial(t, "/v1/threads/t1/ws", linesName)
		if l := p.until("attached"); !strings.Contains(l[0].raw, `"run":null`) {
			t.Fatal(l[0].raw)
		}
		f.Begin(t, "r1", "t1")
		p.until("live")
		c := f.Append(t, "r1", tt.TextStart)
		l := p.until("TEXT_MESSAGE_START")
		if want := c + fmt.Sprintf(".%08x", stream.HashRun("r1")); l[0].ID != want {
			t.Fatalf("got %s, want %s", l[0].ID, want)
		}
		f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
		p.until("ended")
		f.Append(t, "r2", tt.Started("r2", "t1"))
		if err := f.Registry.Announce(t.Context(), stream.RunInfo{Run: "r2", Thread: "t1", State: stream.RunStarted}); err != nil {
			t.Fatal(err)
		}
		p.until("RUN_STARTED")
	})
	t.Run("a run and its thread are followed side by side, each with its own cursors", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		run, thread := f.dial(t, "/v1/runs/r1/ws", linesName), f.dial(t, "/v1/threads/t1/ws", linesName)
		run.until("live")
		thread.until("live")
		c := f.Append(t, "r1", tt.TextStart)
		a, b := run.until("TEXT_MESSAGE_START")[0].ID, thread.until("TEXT_MESSAGE_START")[0].ID
		if a != c || b == c || !strings.HasPrefix(b, c+".") {
			t.Fatal(a, b, c)
		}
	})
	t.Run("from=start sends the run's own events, deltas joined", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		at := f.Append(t, "r1", tt.TextStart, tt.Text("a"), tt.Text("b"), tt.Text("c"))
		p := f.dial(t, "/v1/runs/r1/ws?from=start", linesName)
		got := p.until("live")
		if n := names(got); n != "attached catchup RUN_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT live" {
			t.Fatal(n)
		}
		if d := got[4]; string(d.Event) != tt.Text("abc") || d.ID != at {
			t.Fatal(d.raw)
		}
	})
	t.Run("a run that began anew is a reset on the hub's subprotocol and 4410 on the bare one", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		hubPeer, barePeer := f.dial(t, "/v1/runs/r1/ws", linesName), f.dial(t, "/v1/runs/r1/ws")
		hubPeer.until("live")
		barePeer.message()
		f.Append(t, "r1", tt.Started("r1", "t1"))
		if got := names(hubPeer.until("live")); !strings.HasPrefix(got, "reset attached catchup RUN_STARTED") {
			t.Fatal(got)
		}
		if code, _, _ := barePeer.closed(); code != 4410 {
			t.Fatal(code)
		}
	})
	t.Run("an id is decoded exactly once", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		for id, path := range map[string]string{"a b+c": "a%20b+c", "50%25": "50%2525", "ü?#": "%C3%BC%3F%23"} {
			f.Begin(t, id, "t1")
			p := f.dial(t, "/v1/runs/"+path+"/ws", linesName)
			if l := p.until("live"); !strings.Contains(l[0].raw, fmt.Sprintf(`"run":%q`, id)) {
				t.Fatal(l[0].raw)
			}
		}
	})
}

func TestMessagesAreBounded(t *testing.T) {
	t.Run("what comes at once is one message of at most 256 KiB", func(t *testing.T) {
		f := start(t, backfill.Config{Hub: hub.Config{QueueBytes: 64 << 20, RingBytes: 64 << 20}}, transport.Config{})
		f.Begin(t, "r1", "t1")
		events := []string{tt.TextStart}
		for range 3000 {
			events = append(events, tt.Text(strings.Repeat("x", 400)))
		}
		f.Append(t, "r1", events...)
		p := f.dial(t, "/v1/runs/r1/ws?from=start", linesName)
		p.until("live")
		f.Append(t, "r1", events[1:]...)
		count, messages, largest := 0, 0, 0
		for count < 3000 {
			m := p.message()
			messages++
			largest = max(largest, len(m))
			count += len(linesOf(t, m))
		}
		if largest > 256<<10 {
			t.Errorf("a message of %d bytes", largest)
		}
		if messages > 300 {
			t.Errorf("%d messages", messages)
		}
	})
	t.Run("an event that is larger goes alone", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		p, b := f.dial(t, "/v1/runs/r1/ws", linesName), f.dial(t, "/v1/runs/r1/ws")
		p.until("live")
		large := tt.Text(strings.Repeat("y", 3<<20))
		next := func(event string) (message string) {
			t.Helper()
			f.Append(t, "r1", event)
			for b.message() != event {
			}
			return p.message()
		}
		next(tt.TextStart)
		if m := next(large); !strings.HasSuffix(m, `,"event":`+large+"}") || strings.Contains(m, "\n") {
			t.Fatal("not alone")
		}
		next(tt.TextEnd)
	})
}

func TestMessageGroups(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []int
		want  []int
	}{
		{"nothing gives no frame", nil, nil},
		{"one line is one message", []int{10}, []int{10}},
		{"lines share a message up to the limit", []int{49, 50}, []int{100}},
		{"one byte more makes two", []int{50, 50}, []int{50, 50}},
		{"a line over the limit goes alone", []int{5, 500, 5, 5}, []int{5, 500, 11}},
		{"lengths have two and eight bytes", []int{126, 0xffff, 0x10000}, []int{126, 0xffff, 0x10000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newParcel()
			defer p.free()
			var s stats
			m := message{parcel: p, max: 100, stats: &s}
			for i, n := range c.lines {
				m.add([]byte(strings.Repeat(string(rune('a'+i)), n)))
			}
			m.close()
			var all []byte
			for _, part := range p.parts {
				all = append(all, part...)
			}
			for _, want := range c.want {
				header := appendHeader(nil, want)
				if len(all) < len(header)+want || !bytes.Equal(all[:len(header)], header) {
					t.Fatalf("no frame of %d", want)
				}
				all = all[len(header)+want:]
			}
			if len(all) > 0 || int(s.messages.Load()) != len(c.want) {
				t.Fatalf("%d bytes more, %d messages", len(all), s.messages.Load())
			}
		})
	}
}

func TestCloseCodes(t *testing.T) {
	attach := func(t *testing.T, f *fixture, path string) {
		t.Helper()
		f.dial(t, path, linesName).until("live")
	}
	for _, c := range []struct {
		name    string
		service backfill.Config
		path    string
		before  func(t *testing.T, f *fixture)
		after   func(t *testing.T, f *fixture)
		code    transport.CloseCode
	}{
		{
			name: "a run that stays unknown", service: backfill.Config{AttachWait: 20 * time.Millisecond},
			path: "/v1/runs/none/ws", code: transport.CloseUnknownRun,
		},
		{
			name: "a head of another thread", path: "/v1/threads/t2/ws?head=r1", code: transport.CloseUnknownRun,
			before: func(t *testing.T, f *fixture) { t.Helper(); f.Begin(t, "r1", "t1") },
		},
		{
			name: "a conversation over the limit", service: backfill.Config{MaxConversation: 10}, path: "/v1/runs/r1/ws",
			before: func(t *testing.T, f *fixture) { t.Helper(); f.Begin(t, "r1", "t1") },
			code:   transport.CloseTooLarge,
		},
		{
			name: "too many unknown runs", service: backfill.Config{Hub: hub.Config{MaxWaiting: 1}}, path: "/v1/runs/b/ws",
			before: func(t *testing.T, f *fixture) {
				t.Helper()
				f.dial(t, "/v1/runs/a/ws")
				for f.Service.Figures().Waiting == 0 {
					time.Sleep(time.Millisecond)
				}
			},
			code: transport.CloseConnections,
		},
		{
			name: "a key of another type", path: "/v1/runs/r1/ws", code: transport.CloseUnknownRun,
			before: func(_ *testing.T, f *fixture) { f.Log.SetWrongType("r1") },
		},
		{
			name: "Redis away at a thread's attach", path: "/v1/threads/t1/ws", code: transport.CloseOverloaded,
			before: func(_ *testing.T, f *fixture) { f.Log.SetFault(stream.ErrUnavailable) },
		},
		{
			name: "Redis away for as long as one waits", service: backfill.Config{AttachWait: 20 * time.Millisecond},
			path: "/v1/runs/r1/ws", code: transport.CloseOverloaded,
			before: func(_ *testing.T, f *fixture) { f.Log.SetFault(stream.ErrUnavailable) },
		},
		{
			name: "the service stopping", path: "/v1/runs/r1/ws", code: transport.CloseDraining,
			before: func(t *testing.T, f *fixture) { t.Helper(); f.Begin(t, "r1", "t1"); attach(t, f, "/v1/runs/r1/ws") },
			after:  func(_ *testing.T, f *fixture) { f.Service.Close() },
		},
		{
			name: "the server closing", path: "/v1/threads/t1/ws", code: transport.CloseDraining,
			after: func(t *testing.T, f *fixture) { t.Helper(); go f.server.Close(t.Context()) },
		},
	} {
		t.Run(c.name+" closes with "+c.code.String(), func(t *testing.T) {
			f := start(t, c.service, transport.Config{})
			if c.before != nil {
				c.before(t, f)
			}
			p := f.dial(t, c.path, linesName)
			if c.after != nil {
				p.until("attached")
				c.after(t, f)
			}
			code, reason, _ := p.closed()
			if transport.CloseCode(code) != c.code || reason == "" {
				t.Fatalf("closed with %d %q", code, reason)
			}
		})
	}
}
