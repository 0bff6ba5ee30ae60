package main_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// ends lists the terminal events of a run.
func ends(tb testing.TB, client *redis.Client, run string) []string {
	tb.Helper()
	entries, err := client.XRange(tb.Context(), "agui:run:"+run, "-", "+").Result()
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, en := range entries {
		text, _ := en.Values["event"].(string)
		var e struct {
			Type, Code string
			Outcome    struct{ Type string }
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			tb.Fatal(err)
		}
		if e.Type == "RUN_ERROR" || e.Type == "RUN_FINISHED" {
			out = append(out, e.Type+" "+e.Code+e.Outcome.Type)
		}
	}
	return out
}

// stateOf is what a hub's look-up says of a run.
func stateOf(tb testing.TB, base, run string) string {
	tb.Helper()
	_, body, err := get(tb.Context(), base+"/v1/runs/"+run)
	var v struct{ State string }
	if err != nil || json.Unmarshal([]byte(body), &v) != nil {
		return ""
	}
	return v.State
}

func TestAHubThatIsKilled(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	flags := []string{"--redis", server.URL(), "--lease-ttl", "3s"}
	dying := startHub(t, append(flags, "--demo")...)
	left := [2]*hub{startHub(t, flags...), startHub(t, flags...)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// A request that is under way, and a run of the demo agent.
	body, pipe := io.Pipe()
	go func() { _ = post(ctx, dying.base+"/v1/runs/posted/events", body) }()
	if _, err := io.WriteString(pipe, `{"type":"RUN_STARTED","threadId":"t2","runId":"posted"}`+"\n"+`{"type":"STEP_STARTED","stepName":"s"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both runs are there", func() bool {
		return client.XLen(ctx, "agui:run:posted").Val() == 2 && client.XLen(ctx, "agui:run:demo-1").Val() > 0
	})
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(left[0].base, "http")+"/v1/runs/posted/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if err := dying.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Whoever watches through another hub sees the end.
	var seen []string
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				t.Errorf("the socket was closed with %v", err)
			}
			break
		}
		seen = append(seen, string(data))
	}
	if n := len(seen); n < 2 || !strings.Contains(seen[n-1], `"producer_lost"`) || !strings.Contains(seen[n-2], "STEP_FINISHED") {
		t.Errorf("it saw %s", seen)
	}
	eventually(t, "the demo's run is ended, too", func() bool { return len(ends(t, client, "demo-1")) > 0 })
	for _, run := range []string{"posted", "demo-1"} {
		if got := ends(t, client, run); len(got) != 1 || got[0] != "RUN_ERROR producer_lost" {
			t.Errorf("%s ends with %q", run, got)
		}
		eventually(t, "the look-up says so", func() bool { return stateOf(t, left[1].base, run) == "error" })
	}
}

func TestCancelThroughAnotherHub(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	publishing := startHub(t, "--redis", server.URL(), "--demo")
	other := startHub(t, "--redis", server.URL())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	awaitRun := func(run string) {
		t.Helper()
		eventually(t, run+" has begun", func() bool { return client.XLen(ctx, "agui:run:"+run).Val() > 0 })
	}
	awaitRun("demo-1")
	code, stdout, stderr := run(t, "", "cancel", "demo-1", "--reason", "enough", "--url", other.base)
	if code != 0 || !strings.Contains(stdout, "demo-1") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	eventually(t, "the run is cancelled", func() bool { return stateOf(t, other.base, "demo-1") == "cancelled" })
	if got := ends(t, client, "demo-1"); len(got) != 1 || got[0] != "RUN_FINISHED cancelled" {
		t.Errorf("it ends with %q", got)
	}
	if code, _, stderr := run(t, "", "cancel", "demo-1", "--url", other.base); code != 1 || !strings.Contains(stderr, "run_ended") {
		t.Errorf("again: exit code %d: %s", code, stderr)
	}
	if code, _, stderr := run(t, "", "cancel", "nobody", "--url", other.base); code != 1 || !strings.Contains(stderr, "unknown_run") {
		t.Errorf("of nothing: exit code %d: %s", code, stderr)
	}

	// An agent that doesn't listen is asked, and that is all.
	xadd(t, client, "deaf", `{"type":"RUN_STARTED","threadId":"t9","runId":"deaf"}`)
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(other.base, "http")+"/v1/runs/deaf/ws", &websocket.DialOptions{Subprotocols: []string{"ag-ui.hub.v1.json"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), `"control":"live"`) {
			break
		}
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte(`{"control":"cancel","reason":"no answer"}`)); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*hub{publishing, other} {
		eventually(t, "it is asked", func() bool { return stateOf(t, h.base, "deaf") == "cancel_requested" })
	}
	msgs, err := client.XRange(ctx, "{agui:run:deaf}:control", "-", "+").Result()
	if err != nil || len(msgs) != 1 || msgs[0].Values["control"] != `{"type":"cancel","reason":"no answer","by":"anonymous"}` {
		t.Errorf("%v, %v", msgs, err)
	}
	if ttl := client.PTTL(ctx, "{agui:run:deaf}:control").Val(); ttl <= 0 {
		t.Errorf("the control stream expires in %v", ttl)
	}
	if status, body, err := get(ctx, other.base+"/v1/runs/deaf"); err != nil || status != http.StatusOK || len(ends(t, client, "deaf")) != 0 {
		t.Errorf("%d %s %v", status, body, err)
	}
}

// TestRunsThatNobodyAnnounced are begun with XADD and nothing else: one with a lease, which lapses, one without, one whose lease
// is renewed. The hub finds them by its sweep of the keys.
func TestRunsThatNobodyAnnounced(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	startHub(t, "--redis", server.URL(), "--lease-ttl", "1s", "--idle-timeout", "2s")
	ctx := t.Context()
	lease := func(run string, ttl time.Duration) {
		t.Helper()
		if err := client.Set(ctx, "{agui:run:"+run+"}:lease", "me:0", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{"leased", "held", "idle"} {
		xadd(t, client, run, `{"type":"RUN_STARTED","threadId":"t-`+run+`","runId":"`+run+`"}`)
		xadd(t, client, run, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`)
	}
	lease("leased", time.Hour)
	lease("held", time.Hour)
	// No hub counts a lease that it never saw.
	eventually(t, "the lease is seen", func() bool { return client.Exists(ctx, "{agui:run:leased}:producer").Val() == 1 })
	lease("leased", 100*time.Millisecond)
	eventually(t, "both are ended", func() bool { return len(ends(t, client, "leased")) > 0 && len(ends(t, client, "idle")) > 0 })
	for run, want := range map[string]string{"leased": "RUN_ERROR producer_lost", "idle": "RUN_ERROR idle"} {
		if got := ends(t, client, run); len(got) != 1 || got[0] != want {
			t.Errorf("%s ends with %q", run, got)
		}
	}
	if got := ends(t, client, "held"); len(got) != 0 {
		t.Errorf("a run whose producer lives was ended: %q", got)
	}
}
