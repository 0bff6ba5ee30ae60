package ws

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/gobwas/httphead"
	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

var recorded struct {
	once     sync.Once
	messages []json.RawMessage
}

// messages are those that the recorded streams end with. They weigh more together than what deflate looks back at: so in
// turn they are no easier for it than others would be.
func messages(tb testing.TB) []json.RawMessage {
	tb.Helper()
	recorded.once.Do(func() {
		seen, weight := map[string]bool{}, 0
		for _, s := range oracle.Corpus(tb) {
			run := agui.NewRun(nil, agui.RunConfig{})
			for i, l := range s.Lines {
				run.Apply(agui.Entry{At: agui.Position{Lo: uint64(i)}, Event: l})
			}
			var ended []json.RawMessage
			if err := json.Unmarshal(run.View().Messages(), &ended); err != nil {
				tb.Fatal(err)
			}
			for _, m := range ended {
				if text := string(ids.ReplaceAll(m, nil)); !seen[text] {
					seen[text], weight = true, weight+len(m)
					recorded.messages = append(recorded.messages, m)
				}
			}
		}
		if weight < 40<<10 {
			tb.Fatalf("there are %d bytes of messages", weight)
		}
	})
	return recorded.messages
}

// talk is a MESSAGES_SNAPSHOT of a conversation of size bytes or a little more: the messages in turn, each under an id of
// its own.
func talk(tb testing.TB, size int) string {
	tb.Helper()
	pool := messages(tb)
	r := rand.New(rand.NewPCG(1, 2))
	out := []byte(`{"type":"MESSAGES_SNAPSHOT","messages":[`)
	for i := 0; len(out) < size; i++ {
		if i > 0 {
			out = append(out, ',')
		}
		id := fmt.Appendf(nil, `${1}"id":"%08x-%04x-4%03x-%016x"`, r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.Uint64())
		out = append(out, ids.ReplaceAll(pool[i%len(pool)], id)...)
	}
	return string(append(out, `]}`...))
}

// ids finds ids of messages, and of tool calls.
var ids = regexp.MustCompile(`([{,])"id":"[^"]*"`)

const offer = "permessage-deflate; client_max_window_bits" // as browsers write it

// dialDeflating attaches with a client that reads frames one by one.
func (f *fixture) dialDeflating(tb testing.TB, path, protocol string) *raw {
	tb.Helper()
	r := f.raw(tb, path, protocol+"\r\nSec-WebSocket-Extensions: "+offer)
	if !strings.Contains(r.head, "\r\nSec-Websocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n") {
		tb.Fatalf("nothing agreed: %s", r.head)
	}
	return r
}

// text reads a text message, how many bytes came, and whether deflated.
func (r *raw) text() (text string, size int, deflated bool) {
	r.t.Helper()
	op, payload := r.frame()
	if op&^rsv1 != opText {
		r.t.Fatalf("a frame of kind %x: %q", op, payload)
	}
	if op&rsv1 == 0 {
		return string(payload), len(payload), false
	}
	var out bytes.Buffer
	_, err := out.ReadFrom(flate.NewReader(bytes.NewReader(append(payload, flushed+"\x01\x00\x00\xff\xff"...))))
	if err != nil {
		r.t.Fatal(err)
	}
	return out.String(), len(payload), true
}

// TestTheRatioOfADeflatedPreamble: what may be sent of a conversation of 1 MiB is 0.35 of it.
func TestTheRatioOfADeflatedPreamble(t *testing.T) {
	event := talk(t, 1<<20)
	frame := deflatedFrame([]byte(event))
	ratio := float64(len(frame)) / float64(len(event))
	t.Logf("%d of %d bytes: %.3f", len(frame), len(event), ratio)
	if ratio > 0.35 || frame == nil {
		t.Errorf("%.3f", ratio)
	}
}

// TestLargeSnapshotsGoDeflated: and nothing else does, on both subprotocols, in the same order as without.
func TestLargeSnapshotsGoDeflated(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	big := talk(t, 200<<10)
	custom := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("a large value ", 2000) + `"}`
	small := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", agui.LargeEvent-40) + `"}`
	f.Append(t, "r1", big, `{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`, small, custom)
	f.Append(t, "r1", tt.TextStart)
	for i, path := range []string{"/v1/runs/r1/ws", "/v1/threads/t1/ws"} {
		for _, protocol := range []string{bareName, linesName} {
			t.Run(protocol+" at "+path, func(t *testing.T) {
				stop := fmt.Sprintf("stop %d %s", i, protocol)
				plain, r := f.raw(t, path, protocol), f.dialDeflating(t, path, protocol)
				want, none := collect(plain, nil, stop, 1)
				if len(none) > 0 {
					t.Error("something is deflated where nobody has offered it")
				}
				got, deflated := collect(r, nil, stop, 1)
				// What was read is past: so the rest is live.
				f.Append(t, "r1", custom, `{"type":"CUSTOM","name":"`+stop+`","value":1}`)
				want, none = collect(plain, want, stop, -1)
				if len(none) > 0 {
					t.Error("something is deflated where nobody has offered it")
				}
				past := deflated
				got, deflated = collect(r, got, stop, -1)
				deflated = append(past, deflated...)
				if !slices.Equal(got, want) {
					t.Errorf("%d lines, and %d plain", len(got), len(want))
				}
				if len(deflated) != 2+i*2+map[string]int{bareName: 0, linesName: 1}[protocol] {
					t.Errorf("%d are deflated", len(deflated))
				}
				for j, text := range deflated {
					if strings.Contains(text, "MESSAGES_SNAPSHOT") != (j == 0) || len(text) <= agui.LargeEvent || strings.Contains(text, "\n") {
						t.Errorf("deflated is %.80s", text)
					}
				}
			})
		}
	}
}

// collect adds the lines of messages up to one with stop, or of so many messages, and tells which messages came deflated.
func collect(r *raw, lines []string, stop string, messages int) (all, deflated []string) {
	for stopped := false; !stopped && messages != 0; messages-- {
		text, size, flat := r.text()
		lines = append(lines, strings.Split(text, "\n")...)
		if flat {
			deflated = append(deflated, text)
			if size > len(text)/2 {
				r.t.Errorf("%d of %d bytes", size, len(text))
			}
		}
		stopped = strings.Contains(text, stop)
	}
	return lines, deflated
}

// TestWhatIsNegotiated: a client gets the extension as it can have it, or none.
func TestWhatIsNegotiated(t *testing.T) {
	f, off := start(t, backfill.Config{}, transport.Config{}), start(t, backfill.Config{}, transport.Config{Plain: true})
	const agreed = "permessage-deflate; client_no_context_takeover; server_no_context_takeover"
	for _, c := range []struct{ name, offer, want string }{
		{"as browsers offer it", offer, agreed},
		{"bare", "permessage-deflate", agreed},
		{"with all parameters", "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=15; client_max_window_bits=10", agreed + "; server_max_window_bits=15"},
		{"with a window that isn't kept to", "permessage-deflate; server_max_window_bits=10", ""},
		{"the second of two", "permessage-deflate; server_max_window_bits=10, permessage-deflate", agreed},
		{"the second of two lines", "permessage-deflate; server_max_window_bits=10\r\nSec-WebSocket-Extensions: permessage-deflate", agreed},
		{"with an unknown parameter", "permessage-deflate; level=9", ""},
		{"with a parameter twice", "permessage-deflate; client_max_window_bits; client_max_window_bits=9", ""},
		{"with a zero in front", "permessage-deflate; server_max_window_bits=015", ""},
		{"by another name", "x-webkit-deflate-frame", ""},
		{"nonsense", ";;,=", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range []*fixture{f, off} {
				want := c.want
				if f == off {
					want = ""
				}
				r := f.raw(t, "/v1/runs/none/ws", linesName+"\r\nSec-WebSocket-Extensions: "+c.offer)
				_, got, _ := strings.Cut(r.head, "\r\nSec-Websocket-Extensions: ")
				if got, _, _ = strings.Cut(got, "\r\n"); got != want {
					t.Errorf("answered with %q, want %q", got, want)
				}
			}
		})
	}
}

// TestClientsTakeWhatIsDeflated: libraries read it, and what they send deflated is understood.
func TestClientsTakeWhatIsDeflated(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	big := talk(t, 100<<10)
	f.Append(t, "r1", big)
	for name, mode := range map[string]websocket.CompressionMode{
		"none": websocket.CompressionDisabled, "a window a message": websocket.CompressionNoContextTakeover, "one window": websocket.CompressionContextTakeover,
	} {
		t.Run("coder/websocket with "+name, func(t *testing.T) {
			p := f.dialWith(t, "/v1/runs/r1/ws", &websocket.DialOptions{
				Subprotocols: []string{linesName}, CompressionMode: mode, CompressionThreshold: 1,
			})
			lines := p.until("live")
			if !slices.ContainsFunc(lines, func(l line) bool { return len(l.Event) >= len(big) }) {
				t.Error("the snapshot isn't there")
			}
			for range 3 {
				p.send(websocket.MessageText, `{"control":"ping"}`)
				p.until("pong")
			}
		})
	}
	t.Run("gobwas/ws", func(t *testing.T) {
		c, err := f.dialer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		d := gobwas.Dialer{Extensions: []httphead.Option{wsflate.DefaultParameters.Option()}}
		b, hs, err := d.Upgrade(c, &url.URL{Scheme: "ws", Host: "localhost", Path: "/v1/runs/r1/ws"})
		if err != nil || len(hs.Extensions) != 1 {
			t.Fatal(err, hs)
		}
		r := io.Reader(c)
		if b != nil {
			r = b
		}
		for {
			frame, err := gobwas.ReadFrame(r)
			if err != nil {
				t.Fatal(err)
			}
			if flat, _ := wsflate.IsCompressed(frame.Header); !flat {
				continue
			}
			if frame, err = wsflate.DecompressFrame(frame); err != nil || len(frame.Payload) < len(big) || !json.Valid(frame.Payload) {
				t.Fatal(err, len(frame.Payload))
			}
			return
		}
	})
}

// TestACrowdSharesOneCompression: fresh or by a catch-up, those who are brought to the same entry, until the run moves on.
func TestACrowdSharesOneCompression(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	cursor := f.Append(t, "r1", `{"type":"CUSTOM","name":"n","value":1}`)
	f.Append(t, "r1", talk(t, 100<<10))
	attach := func(n int, query string) {
		var crowd sync.WaitGroup
		for range n {
			crowd.Go(func() {
				p := f.dialWith(t, "/v1/runs/r1/ws"+query, &websocket.DialOptions{
					Subprotocols: []string{linesName}, CompressionMode: websocket.CompressionNoContextTakeover,
				})
				p.until("live")
			})
		}
		crowd.Wait()
	}
	expect := func(what string, n int64) {
		t.Helper()
		if got := f.server.Figures().Deflations; got != n {
			t.Errorf("%s: %d compressions, want %d", what, got, n)
		}
	}
	attach(12, "")
	expect("12 at once", 1)
	attach(12, "?after="+cursor)
	expect("12 who come back", 1)
	if saved := f.server.Figures().Saved; saved < 24*60<<10 {
		t.Errorf("%d bytes saved", saved)
	}
	f.Append(t, "r1", `{"type":"CUSTOM","name":"n","value":2}`)
	attach(5, "")
	expect("5 behind the next entry", 2)
}

// TestWhatDoesNotPayGoesPlain, and what can't be done now is put off.
func TestWhatDoesNotPayGoesPlain(t *testing.T) {
	noise := make([]byte, 64<<10)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(noise)
	if frame := deflatedFrame(noise); frame != nil {
		t.Errorf("%d bytes of noise make %d", len(noise), len(frame))
	}
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	f.Append(t, "r1", talk(t, 100<<10))
	busy := int64(runtime.GOMAXPROCS(0))
	deflating.Add(busy)
	path, past := "/v1/runs/r1/ws", `"control":"live"`
	if _, deflated := collect(f.dialDeflating(t, path, linesName), nil, past, -1); len(deflated) > 0 {
		t.Error("deflated although all cores do that")
	}
	deflating.Add(-busy)
	if _, deflated := collect(f.dialDeflating(t, path, linesName), nil, past, -1); len(deflated) != 1 {
		t.Error("not deflated although the cores are free again")
	}
}

// payloadOf takes the header off a frame of the hub's.
func payloadOf(frame []byte) []byte {
	switch frame[1] {
	case 126:
		return frame[4:]
	case 127:
		return frame[10:]
	default:
		return frame[2:]
	}
}

// masked is a client's frame, with a mask of zeros.
func masked(first byte, payload []byte) []byte {
	head := appendHeader(nil, len(payload))
	head[0], head[1] = first, head[1]|0x80
	return append(append(head, 0, 0, 0, 0), payload...)
}

// TestDeflatedMessagesOfClients: what bounds a message holds for what it inflates to, and for what comes to nothing.
func TestDeflatedMessagesOfClients(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	bomb := payloadOf(deflatedFrame(make([]byte, 16<<20)))       // a thousandth of it
	empty := bytes.Repeat([]byte("\x00\x00\x00\xff\xff"), 1<<18) // blocks of nothing
	for _, protocol := range []string{bareName, linesName} {
		for _, c := range []struct {
			name   string
			frames []byte
			code   int
		}{
			{"16 MiB in a thousandth", masked(final|rsv1|opText, bomb), 1009},
			{"blocks of nothing", masked(final|rsv1|opText, empty), 1009},
			{"blocks of nothing that never end", masked(rsv1|opText, empty), 1009},
			{"no deflate at all", masked(final|rsv1|opText, []byte("\xff\xff\xff\xff")), 1002},
			{"text that isn't UTF-8", masked(final|rsv1|opText, payloadOf(deflatedFrame(bytes.Repeat([]byte("\xff"), 100)))), 1007},
			{"a control frame", masked(final|rsv1|0x9, nil), 1002},
			{"a continuation", append(masked(rsv1|opText, nil), masked(final|rsv1, nil)...), 1002},
		} {
			t.Run(c.name+" on "+protocol, func(t *testing.T) {
				r := f.dialDeflating(t, "/v1/runs/r1/ws", protocol)
				sent := make(chan struct{})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				go func() {
					defer close(sent)
					_, _ = r.Write(c.frames) // it may be cut
				}()
				if code := r.untilClose(); code != c.code {
					t.Errorf("closed with %d, want %d", code, c.code)
				}
				runtime.ReadMemStats(&after)
				if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
					t.Errorf("%d bytes were allocated", used)
				}
				_ = r.Close()
				<-sent
			})
		}
	}
}

// TestAMessageInFramesOfOneByte is what the bound of arriving bytes leaves room for.
func TestAMessageInFramesOfOneByte(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{MaxInbound: 4 << 10})
	f.Begin(t, "r1", "t1")
	r := f.dialDeflating(t, "/v1/runs/r1/ws", linesName)
	collect(r, nil, `"control":"live"`, -1)
	text := `{"control":"ping","pad":"` + strings.Repeat("x", 4<<10-27) + `"}`
	frames := masked(opText, []byte(text[:1]))
	for i := range text[1:] {
		frames = append(frames, masked(0, []byte{text[1+i]})...)
	}
	r.write(append(frames, masked(final, nil)...)...)
	if text, _, _ := r.text(); text != `{"control":"pong"}` {
		t.Errorf("answered with %s", text)
	}
}

// BenchmarkDeflatedPreamble is what a conversation of 1 MiB takes: for the first who attaches at an entry, and for each other.
func BenchmarkDeflatedPreamble(b *testing.B) {
	event := []byte(talk(b, 1<<20))
	s := &Server{}
	b.Run("first", func(b *testing.B) {
		size := 0
		b.SetBytes(int64(len(event)))
		for b.Loop() {
			frame, made := s.deflater(lines)(event)
			if size = len(frame); !made || size == 0 {
				b.Fatal("it went plain")
			}
		}
		b.ReportMetric(float64(size)/float64(len(event)), "deflated/raw")
	})
	b.Run("shared", func(b *testing.B) {
		run := agui.NewRun(nil, agui.RunConfig{})
		run.Apply(agui.Entry{Event: []byte(tt.Started("r", "t"))})
		run.Apply(agui.Entry{Event: event})
		c := &conn{server: s, protocol: lines, deflates: true}
		attach := func() {
			view := run.View()
			for _, e := range view.Preamble().Past {
				if r := view.Restated(e); r != nil && c.deflated(&backfill.Item{Event: e, Restated: r}) == nil {
					b.Fatal("it went plain")
				}
			}
		}
		attach()
		for b.Loop() {
			attach()
		}
	})
}
