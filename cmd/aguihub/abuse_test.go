package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestAbuse is what strangers may try on a hub's port, each with its rule. What needs a token is in
// transport/access_test.go and auth/verifier_test.go, frames and half-open sockets in transport/ws, bodies that pause or
// break off in transport/ingest.
func TestAbuse(t *testing.T) {
	t.Parallel()
	h := startHub(t, "--max-attach-rate", "5", "--max-ingest-events", "300", "--attach-wait", "50ms", "--no-console")
	host := strings.TrimPrefix(h.base, "http://")
	// raw sends bytes and returns what comes until the hub closes, or has answered.
	raw := func(t *testing.T, text string) (status, rest string) {
		t.Helper()
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, text) // the hub may close before it has all
		r := bufio.NewReader(conn)
		status, err = r.ReadString('\n')
		if err != nil {
			return "", err.Error()
		}
		all, _ := io.ReadAll(r)
		return strings.TrimSpace(status), string(all)
	}
	const end = "Host: 127.0.0.1\r\nConnection: close\r\n\r\n"
	for _, c := range []struct{ rule, sent, want string }{
		{"headers have 64 KiB", "GET /v1/runs HTTP/1.1\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n" + end, "431"},
		{"a second Host is refused", "GET /v1/runs HTTP/1.1\r\nHost: evil\r\n" + end, "400"},
		{"a foreign Host is refused", "GET /v1/runs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "403"},
		{"a length and chunks at once are no way around", "POST /v1/runs/a/events HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n" + end, "400"},
		{"a forged Origin is refused", "GET /v1/runs/a/ws HTTP/1.1\r\nOrigin: https://evil.example\r\n" + end, "403"},
		{"two Origins are refused", "GET /v1/runs/a/ws HTTP/1.1\r\nOrigin: http://127.0.0.1\r\nOrigin: http://127.0.0.1\r\n" + end, "403"},
		{"a header can't be injected by an id", "GET /v1/runs/a%0d%0aX-Evil:%201 HTTP/1.1\r\n" + end, "400"},
		{"a header can't be injected by an Origin", "GET /v1/runs HTTP/1.1\r\nOrigin: http://127.0.0.1%0d%0aX-Evil: 1\r\n" + end, "403"},
		{"ids have no separators", "GET /v1/runs/a%2Fb HTTP/1.1\r\n" + end, "400"},
		{"ids aren't directories", "GET /v1/runs/%2e%2e HTTP/1.1\r\n" + end, "40"},
		{"a path isn't cleaned", "GET /v1/runs/../runs HTTP/1.1\r\n" + end, "404"},
		{"ids have no braces", "GET /v1/runs/%7Ba%7D HTTP/1.1\r\n" + end, "400"},
		{"a glob is a name", "GET /v1/runs/* HTTP/1.1\r\n" + end, "404"},
		{"an unknown method is refused", "BREW /v1/runs HTTP/1.1\r\n" + end, "405"},
		{"no HTTP is no request", "\x16\x03\x01\x00\x05hello\r\n\r\n", "400"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			status, rest := raw(t, c.sent)
			if _, code, _ := strings.Cut(status, " "); !strings.HasPrefix(code, c.want) {
				t.Errorf("answered %q, want %s: %s", status, c.want, rest)
			}
			if strings.Contains(strings.ToLower(rest), "\nx-evil") {
				t.Errorf("a header came through: %s", rest)
			}
		})
	}
	t.Run("attaches are limited before the upgrade, and told when to come again", func(t *testing.T) {
		refused := 0
		for range 40 {
			status, rest := raw(t, "GET /v1/runs/none/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: nonsense\r\n\r\n"+string([]byte{0x88, 0x80, 0, 0, 0, 0}))
			if strings.Contains(status, "429") {
				refused++
				if !strings.Contains(rest, "Retry-After: 1") || !strings.Contains(rest, "attach_rate") {
					t.Fatalf("refused without a word: %s", rest)
				}
			}
		}
		if refused == 0 || h.series(`aguihub_rejects_total{reason="attach_rate"}`) != float64(refused) {
			t.Errorf("%d refused, counted %g", refused, h.series(`aguihub_rejects_total{reason="attach_rate"}`))
		}
	})
	t.Run("events are limited, and those accepted stay", func(t *testing.T) {
		body := `{"type":"RUN_STARTED","threadId":"t","runId":"fast"}` + strings.Repeat("\n"+`{"type":"CUSTOM","name":"n","value":1}`, 5000)
		began := time.Now()
		resp, err := http.Post(h.base+"/v1/runs/fast/events", "application/x-ndjson", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		most := 600 + 300*time.Since(began).Seconds() // what may come at once, and what came to that meanwhile
		var answer struct{ Accepted float64 }
		if err := json.Unmarshal(text, &answer); err != nil || answer.Accepted < 600 || answer.Accepted > most {
			t.Errorf("accepted are %g events, of 600 to %g: %v", answer.Accepted, most, err)
		}
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %s", resp.Status, text)
		}
	})
	t.Run("series don't grow with what strangers name", func(t *testing.T) {
		series := func() int {
			_, text, err := get(t.Context(), h.metrics+"/metrics")
			if err != nil {
				t.Fatal(err)
			}
			return strings.Count(text, "\naguihub_")
		}
		name := func(i int) string { return url.PathEscape(fmt.Sprintf("odd %d \"ü\n", i)) }
		ask := func(i int) {
			for _, path := range []string{"/v1/runs/" + name(i), "/v1/agents/" + name(i), "/" + name(i), "/v1/runs/x/sse?after=" + name(i)} {
				if _, _, err := get(t.Context(), h.base+path); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask(0)
		before := series()
		for i := range 250 {
			ask(i + 1)
		}
		if after := series(); after > before+5 { // a code or two that the first round hadn't met
			t.Errorf("%d series have become %d", before, after)
		}
	})
	t.Run("headers that never end are cut off", func(t *testing.T) {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("still open after %v: %v", patience, err)
		}
	})
	eventually(t, "what was refused before anybody was asked is counted", func() bool {
		return h.series(`aguihub_rejects_total{reason="headers"}`) == 1 && h.series(`aguihub_rejects_total{reason="slow_handshake"}`) == 1
	})
	if status, _, err := get(t.Context(), h.metrics+"/readyz"); err != nil || status != http.StatusOK {
		t.Errorf("the hub isn't ready after all that: %d %v", status, err)
	}
}
