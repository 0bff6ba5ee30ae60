package ws

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a hub that listens.
type fixture struct {
	*transporttest.Hub
	server *Server
	client *http.Client
	dialer func(ctx context.Context) (net.Conn, error)
	url    string // without the scheme's "http"
}

// start listens on a real socket. There are no pings but those that a test asks for: a machine may be so slow that one comes
// into a test that is about something else, to a peer that doesn't answer it.
func start(tb testing.TB, service backfill.Config, config transport.Config) *fixture {
	tb.Helper()
	config.PingEvery, config.PongWait = 10_000*time.Hour, time.Minute
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var d net.Dialer
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
	return serve(tb, service, config, l, dial)
}

// startInMemory listens on a network that works in a bubble and whose connections buffer 64 KiB.
func startInMemory(tb testing.TB, service backfill.Config, config transport.Config) *fixture {
	tb.Helper()
	n := transporttest.NewNetwork(64 << 10)
	return serve(tb, service, config, n, n.Dial)
}

func serve(tb testing.TB, service backfill.Config, config transport.Config, l net.Listener, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *fixture {
	tb.Helper()
	hub := transporttest.New(tb, service)
	server, err := New(context.WithoutCancel(tb.Context()), hub.Service, config, hub.Logger)
	if err != nil {
		tb.Fatal(err)
	}
	server.Mount(hub.Mux)
	h := &http.Server{Handler: hub.Handler(tb), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
	tr := &http.Transport{DialContext: dial}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		server.Close(ctx)
		tr.CloseIdleConnections()
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
		serving.Wait()
	})
	return &fixture{
		Hub: hub, server: server, client: &http.Client{Transport: tr}, url: "://127.0.0.1",
		dialer: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", "") },
	}
}

// peer is a client.
type peer struct {
	*websocket.Conn
	t testing.TB
}

func (f *fixture) dial(tb testing.TB, path string, protocols ...string) *peer {
	tb.Helper()
	return f.dialWith(tb, path, &websocket.DialOptions{Subprotocols: protocols})
}

func (f *fixture) dialWith(tb testing.TB, path string, options *websocket.DialOptions) *peer {
	tb.Helper()
	options.HTTPClient = f.client
	c, resp, err := websocket.Dial(tb.Context(), "ws"+f.url+path, options)
	if err != nil {
		tb.Fatal(err, resp)
	}
	c.SetReadLimit(64 << 20)
	tb.Cleanup(func() { _ = c.CloseNow() })
	return &peer{c, tb}
}

func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// message reads the next message.
func (p *peer) message() string {
	p.t.Helper()
	kind, b, err := p.Read(deadline(p.t))
	if err != nil {
		p.t.Fatalf("reading: %v", err)
	}
	if kind != websocket.MessageText {
		p.t.Fatalf("message of kind %v", kind)
	}
	return string(b)
}

// line is a line of the hub's subprotocol.
type line struct {
	Control string          `json:"control"`
	ID      string          `json:"id"`
	Event   json.RawMessage `json:"event"`
	Reason  string          `json:"reason"`
	Code    string          `json:"code"`
	Mode    string          `json:"mode"`
	raw     string
}

// name is what a line is, for comparisons: the control line's name or the event's type.
func (l line) name() string {
	if l.Control != "" {
		return l.Control
	}
	return typeOf(string(l.Event))
}

func typeOf(event string) string {
	var e struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal([]byte(event), &e); err != nil {
		return "no JSON: " + event
	}
	return e.Type
}

func linesOf(tb testing.TB, message string) (out []line) {
	tb.Helper()
	for s := range strings.SplitSeq(message, "\n") {
		l := line{raw: s}
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			tb.Fatalf("line %q: %v", s, err)
		}
		out = append(out, l)
	}
	return out
}

// until reads lines up to one of this name.
func (p *peer) until(name string) (out []line) {
	p.t.Helper()
	for {
		for _, l := range linesOf(p.t, p.message()) {
			out = append(out, l)
			if l.name() == name {
				return out
			}
		}
	}
}

// closed reads up to the end and returns the close code.
func (p *peer) closed() (code websocket.StatusCode, reason string, messages int) {
	p.t.Helper()
	ctx := deadline(p.t)
	for {
		_, _, err := p.Read(ctx)
		if err == nil {
			messages++
			continue
		}
		ce, ok := errors.AsType[websocket.CloseError](err)
		if !ok {
			p.t.Fatalf("no close frame: %v", err)
		}
		return ce.Code, ce.Reason, messages
	}
}

func names(lines []line) string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.name()
	}
	return strings.Join(out, " ")
}
