package ws

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/transporttest"
)

func TestSubprotocols(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	for _, c := range []struct {
		name     string
		offered  []string
		selected string
		lines    bool
		code     int
	}{
		{name: "none is as good as the bare one"},
		{name: "the bare one", offered: []string{bareName}, selected: bareName},
		{name: "the hub's", offered: []string{linesName}, selected: linesName, lines: true},
		{name: "of two the client's first", offered: []string{bareName, linesName}, selected: bareName},
		{name: "of two the client's first, the other way round", offered: []string{linesName, bareName}, selected: linesName, lines: true},
		{name: "an unknown one before a known one", offered: []string{"graphql-ws", linesName}, selected: linesName, lines: true},
		{name: "a token is never selected", offered: []string{"ag-ui.bearer.abc", linesName}, selected: linesName, lines: true},
		{name: "a token alone is as good as none", offered: []string{"ag-ui.bearer.abc"}},
		{name: "unknown ones only", offered: []string{"graphql-ws", "ag-ui.v2.json"}, code: 4400},
		{name: "an unknown one and a token", offered: []string{"graphql-ws", "ag-ui.bearer.abc"}, code: 4400},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := f.dial(t, "/v1/runs/r1/ws", c.offered...)
			if p.Subprotocol() != c.selected {
				t.Fatalf("selected %q, want %q", p.Subprotocol(), c.selected)
			}
			if c.code != 0 {
				if code, reason, n := p.closed(); int(code) != c.code || n != 0 || !strings.Contains(reason, linesName) {
					t.Fatal(code, reason, n)
				}
				return
			}
			if got := strings.Contains(p.message(), `"control"`); got != c.lines {
				t.Fatalf("control lines: %v", got)
			}
		})
	}
}

func TestQueries(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	for _, c := range []struct {
		name, path string
		bare       bool
		reason     string // "" where it attaches
	}{
		{name: "all that there is", path: "/v1/threads/t1/ws?catchup=auto&from=snapshot&head=r1&raw=1&ticket=x"},
		{name: "empty values are as good as none", path: "/v1/runs/r1/ws?catchup=&from=&raw=&after=&head="},
		{name: "unknown names are ignored", path: "/v1/runs/r1/ws?color=blue"},
		{name: "a cursor attaches fresh for now", path: "/v1/runs/r1/ws?after=1-0.00000000"},
		{name: "what is no cursor, too", path: "/v1/runs/r1/ws?after=!!"},
		{name: "a cursor on the bare subprotocol", path: "/v1/runs/r1/ws?after=1-0.00000000", bare: true, reason: "after"},
		{name: "a wrong catchup", path: "/v1/runs/r1/ws?catchup=all", reason: "catchup"},
		{name: "a wrong from", path: "/v1/runs/r1/ws?from=end", reason: "from"},
		{name: "a wrong raw", path: "/v1/runs/r1/ws?raw=yes", reason: "raw"},
		{name: "head on a run", path: "/v1/runs/r1/ws?head=r1", reason: "head"},
		{name: "a head that is no run id", path: "/v1/threads/t1/ws?head=a%2Fb", reason: "head"},
		{name: "a query that can't be read", path: "/v1/runs/r1/ws?raw=%zz", reason: "query"},
		{name: "a run id with a slash", path: "/v1/runs/a%2Fb/ws", reason: "'/'"},
		{name: "a run id that is two dots", path: "/v1/runs/%2E%2E/ws", reason: "reserved"},
		{name: "a run id with braces", path: "/v1/runs/a%7Bb%7D/ws", reason: "'{'"},
		{name: "a run id that was encoded twice", path: "/v1/runs/a%250Ab/ws?from=x", reason: "from"},
		{name: "a run id with a line feed", path: "/v1/runs/a%0Ab/ws", reason: "U+000A"},
		{name: "a run id that isn't UTF-8", path: "/v1/runs/%FF/ws", reason: "UTF-8"},
		{name: "a thread id that is too long", path: "/v1/threads/" + strings.Repeat("x", 257) + "/ws", reason: "257"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := linesName
			if c.bare {
				name = bareName
			}
			p := f.dial(t, c.path, name)
			if c.reason == "" {
				p.until("live")
				return
			}
			if code, reason, _ := p.closed(); code != 4400 || !strings.Contains(reason, c.reason) {
				t.Fatalf("closed with %d %q, want 4400 and %q", code, reason, c.reason)
			}
		})
	}
}

func TestHandshakeProblems(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	good := map[string]string{
		"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	}
	for _, c := range []struct {
		name, method    string
		header          map[string]string
		status          int
		code            string
		answer, answers string
	}{
		{name: "no upgrade", header: map[string]string{"Upgrade": ""}, status: 426, code: "upgrade_required", answer: "Upgrade", answers: "websocket"},
		{name: "no connection", header: map[string]string{"Connection": "close"}, status: 426, code: "upgrade_required"},
		{name: "another version", header: map[string]string{"Sec-WebSocket-Version": "8"}, status: 426, code: "upgrade_required", answer: "Sec-Websocket-Version", answers: "13"},
		{name: "no key", header: map[string]string{"Sec-WebSocket-Key": ""}, status: 400, code: "bad_handshake"},
		{name: "a short key", header: map[string]string{"Sec-WebSocket-Key": "AAAA"}, status: 400, code: "bad_handshake"},
		{name: "a foreign origin", header: map[string]string{"Origin": "https://evil.example"}, status: 403, code: "origin_not_allowed"},
		{name: "a foreign host", header: map[string]string{"Host": "evil.example"}, status: 403, code: "host_not_allowed"},
		{name: "POST", method: "POST", status: 405, code: "method_not_allowed", answer: "Allow", answers: "GET, HEAD"},
	} {
		t.Run(c.name+" is a problem", func(t *testing.T) {
			if c.method == "" {
				c.method = "GET"
			}
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http"+f.url+"/v1/runs/r1/ws", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range []map[string]string{good, c.header} {
				for k, v := range h {
					req.Header.Set(k, v)
					if k == "Host" {
						req.Host = v
					}
					if v == "" {
						req.Header.Del(k)
					}
				}
			}
			resp, err := f.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			transporttest.CheckProblem(t, resp, c.status, c.code)
			if c.answer != "" && resp.Header.Get(c.answer) != c.answers {
				t.Errorf("%s: %q", c.answer, resp.Header.Get(c.answer))
			}
		})
	}
	t.Run("a loopback page and a program are let in", func(t *testing.T) {
		f.Begin(t, "r1", "t1")
		for _, origin := range []string{"", "http://localhost:5173", "https://127.0.0.1", "http://[::1]:3000"} {
			h := http.Header{}
			if origin != "" {
				h.Set("Origin", origin)
			}
			f.dialWith(t, "/v1/runs/r1/ws", &websocket.DialOptions{HTTPHeader: h}).message()
		}
	})
	t.Run("a server that is closed refuses", func(t *testing.T) {
		f.server.Close(t.Context())
		_, resp, err := websocket.Dial(t.Context(), "ws"+f.url+"/v1/runs/r1/ws", &websocket.DialOptions{HTTPClient: f.client})
		if err == nil {
			t.Fatal("accepted")
		}
		transporttest.CheckProblem(t, resp, 503, "draining")
	})
}

func TestReasonsFitIntoACloseFrame(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	for i := range 4 {
		t.Run(fmt.Sprintf("a reason of many bytes is cut between letters, shifted by %d", i), func(t *testing.T) {
			p := f.dial(t, "/v1/threads/t1/ws", linesName)
			p.until("attached")
			f.server.mu.Lock()
			for c := range f.server.conns {
				c.stop(transport.BadRequest("x", strings.Repeat("x", i)+strings.Repeat("€", 60)))
			}
			f.server.mu.Unlock()
			code, reason, _ := p.closed()
			if code != 4400 || len(reason) < 119 || len(reason) > 123 {
				t.Fatal(code, len(reason))
			}
			for f.server.Figures().Open > 0 {
				time.Sleep(time.Millisecond)
			}
		})
	}
}
