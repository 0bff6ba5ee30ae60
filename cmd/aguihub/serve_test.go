package main_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/stream/streamtest"
)

func TestServe(t *testing.T) {
	t.Parallel()
	t.Run("an XADD to the embedded Redis is seen by an attached client at once", func(t *testing.T) {
		t.Parallel()
		h := startHub(t)
		agent := streamtest.Client(t, h.redis)
		a := h.attach("--lines", "r1")
		xadd(t, agent, "r1", `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)
		a.stdout.waitLine(t, `"live"`)
		xadd(t, agent, "r1", `{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}`)
		a.stdout.waitLine(t, "TEXT_MESSAGE_START")
		// A look in between, every three seconds, would find each of them, too, and the second and third only then.
		quickest := time.Hour
		for i := range 3 {
			before := time.Now()
			xadd(t, agent, "r1", fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello %d"}`, i))
			a.stdout.waitLine(t, fmt.Sprintf(`"Hello %d"`, i))
			if i > 0 {
				quickest = min(quickest, time.Since(before))
			}
		}
		if quickest > time.Second {
			t.Errorf("it took %v", quickest)
		}
		xadd(t, agent, "r1", `{"type":"TEXT_MESSAGE_END","messageId":"m1"}`)
		xadd(t, agent, "r1", `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`)
		if code := a.exit(); code != 0 {
			t.Errorf("attach: exit code %d, want 0 at the run's end", code)
		}
	})
	t.Run("two hubs on one Redis serve one run", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t)
		one, two := startHub(t, "--redis", server.URL()), startHub(t, "--redis", server.URL())
		a, b := one.attach("r1"), two.attach("r1")
		if code, _, stderr := run(t, events("r1"), "publish", "r1", "--url", one.base); code != 0 {
			t.Fatalf("publish: exit code %d: %s", code, stderr)
		}
		for _, p := range []*program{a, b} {
			if code := p.exit(); code != 0 {
				t.Errorf("attach: exit code %d", code)
			}
			if got := p.stdout.all(); !strings.Contains(got, `"Hello"`) || !strings.Contains(got, "RUN_FINISHED") {
				t.Errorf("attach got\n%s", got)
			}
		}
	})
	t.Run("SIGTERM closes sockets with 1012, answers ingest and exits with 0", func(t *testing.T) {
		t.Parallel()
		h := startHub(t, "--drain-time=500ms")
		agent := streamtest.Client(t, h.redis)
		xadd(t, agent, "r1", `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(h.base, "http")+"/v1/runs/r1/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ws.CloseNow() }()
		body, pipe := io.Pipe()
		answered := make(chan string, 1)
		go func() { answered <- post(ctx, h.base+"/v1/runs/r2/events", body) }()
		if _, err := io.WriteString(pipe, `{"type":"RUN_STARTED","threadId":"t2","runId":"r2"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the posted event is in the log", func() bool { return agent.XLen(ctx, "agui:run:r2").Val() == 1 })
		h.terminate()
		var closed error
		for closed == nil {
			_, _, closed = ws.Read(ctx)
		}
		if code := websocket.CloseStatus(closed); code != websocket.StatusServiceRestart {
			t.Errorf("the socket was closed with %v", closed)
		}
		if got := <-answered; !strings.Contains(got, `"accepted":1`) {
			t.Errorf("ingest answered %s", got)
		}
		if code := h.exit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("a hub whose Redis is absent waits for it and says so", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t)
		server.Kill()
		h := startHubEarly(t, "--redis", server.URL())
		h.stderr.waitLine(t, "waiting for Redis")
		if status, body, err := get(t.Context(), h.metrics+"/readyz"); err != nil || status != http.StatusServiceUnavailable {
			t.Errorf("/readyz without Redis: %d %s %v", status, body, err)
		}
		if status, _, err := get(t.Context(), h.metrics+"/livez"); err != nil || status != http.StatusOK {
			t.Errorf("/livez without Redis: %d %v", status, err)
		}
		if status, body, err := get(t.Context(), h.base+"/v1/runs"); err != nil || status != http.StatusServiceUnavailable || !strings.Contains(body, `"starting"`) {
			t.Errorf("a look-up without Redis: %d %s %v", status, body, err)
		}
		server.Start(t)
		h.waitReady()
		if code, _, stderr := run(t, events("r1"), "publish", "r1", "--url", h.base); code != 0 {
			t.Errorf("publish: exit code %d: %s", code, stderr)
		}
	})
	t.Run("a hub that waits for Redis ends at SIGTERM", func(t *testing.T) {
		t.Parallel()
		h := startHubEarly(t, "--redis", "redis://127.0.0.1:1")
		h.terminate()
		if code := h.exit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("Redis that goes and comes again costs an attached client nothing", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t)
		h := startHub(t, "--redis", server.URL())
		agent := server.Client(t)
		a := h.attach("--lines", "r1")
		xadd(t, agent, "r1", `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)
		a.stdout.waitLine(t, `"live"`)
		server.Kill()
		server.Start(t)
		xadd(t, agent, "r1", `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`)
		if code := a.exit(); code != 0 {
			t.Errorf("attach: exit code %d", code)
		}
	})
	t.Run("pages of foreign origins and hosts are kept out, those on loopback are not", func(t *testing.T) {
		t.Parallel()
		h := startHub(t)
		for origin, want := range map[string]int{"https://evil.example": http.StatusForbidden, "http://localhost:5173": http.StatusOK} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.base+"/v1/runs", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Origin", origin)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("origin %s: %d, want %d", origin, resp.StatusCode, want)
			}
		}
	})
	t.Run("the page and its files are there and nothing else", func(t *testing.T) {
		t.Parallel()
		h := startHub(t)
		for path, want := range map[string]int{"/": 200, "/console.js": 200, "/console.css": 200, "/page.html": 404, "/console.go": 404} {
			if status, _, err := get(t.Context(), h.base+path); err != nil || status != want {
				t.Errorf("%s: %d %v, want %d", path, status, err, want)
			}
		}
	})
}

// post posts NDJSON and returns the answer's body, or what went wrong.
func post(ctx context.Context, url string, body io.Reader) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		env  []string
		says string
	}{
		"a Redis URL of an unknown scheme":                  {args: []string{"--redis", "http://localhost"}, says: "--redis"},
		"a Redis URL that can't be parsed":                  {args: []string{"--redis", "redis://a:b@c@d:x"}, says: "--redis"},
		"to listen everywhere without authentication":       {args: []string{"--listen", "0.0.0.0:0"}, says: "--insecure-no-auth"},
		"pprof for others":                                  {args: []string{"--debug-listen", "0.0.0.0:0"}, says: "loopback only"},
		"an embedded Redis for others":                      {args: []string{"--embedded-redis-listen", "0.0.0.0:0"}, says: "loopback only"},
		"an embedded Redis beside another":                  {args: []string{"--redis", "redis://localhost", "--embedded-redis-listen", "127.0.0.1:7777"}, says: "one of the two"},
		"an address without a port":                         {args: []string{"--listen", "localhost"}, says: "HOST:PORT"},
		"a key prefix with a colon":                         {args: []string{"--key-prefix", "a:b"}, says: "--key-prefix"},
		"an origin with a path":                             {args: []string{"--allow-origin", "https://a.example/x"}, says: "--allow-origin"},
		"a size that is none":                               {args: []string{"--max-event", "lots"}, says: "--max-event"},
		"a negative wait":                                   {args: []string{"--attach-wait", "-1s"}, says: "--attach-wait"},
		"an unknown flag":                                   {args: []string{"--frobnicate"}, says: "frobnicate"},
		"what an environment variable sets as a flag would": {env: []string{"AGUIHUB_LISTEN=0.0.0.0:0"}, says: "--insecure-no-auth"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c.env, c.args...)
			if code := p.exit(); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if got := p.stderr.all(); !strings.Contains(got, c.says) {
				t.Errorf("it says nothing of %q:\n%s", c.says, got)
			}
		})
	}
	t.Run("a port that is taken", func(t *testing.T) {
		t.Parallel()
		h := startHub(t)
		p := start(t, nil, "--listen", strings.TrimPrefix(h.base, "http://"), "--metrics-listen", "off")
		if code := p.exit(); code != 1 || !strings.Contains(p.stderr.all(), "--listen") {
			t.Errorf("exit code %d: %s", code, p.stderr.all())
		}
	})
}

func TestServeWithAWrongRegistry(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	if err := server.Client(t).Set(t.Context(), "agui:runs", "no stream", 0).Err(); err != nil {
		t.Fatal(err)
	}
	h := startHubEarly(t, "--redis", server.URL())
	if code := h.exit(); code != 1 || !strings.Contains(h.stderr.all(), "agui:runs") {
		t.Errorf("exit code %d, want 1 and the key's name", code)
	}
}
