package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// The rule: whatever is said through a hub, well-formed or not, stands in no line of its log, at debug level, nor of its audit
// log; and neither do tokens, tickets and reasons. Ids and subjects do.
func TestNoPayloadIsLogged(t *testing.T) {
	t.Parallel()
	const canary = "canary7f3a"
	failing := false
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if failing {
			http.Error(w, canary+string(body), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(string(body), `"runId":"unended"`) {
			_, _ = fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t2\",\"runId\":\"unended\"}\n\ndata: {\"type\":\"RUN_ERROR\",\"message\":7,\"code\":%q,\"threadId\":%[1]q}\n\n", canary)
			return
		}
		// Two of them malformed, with what is wrong in so many words.
		for i, e := range append(strings.Split(strings.TrimSpace(spoken("called", "t2", canary)), "\n"), "") {
			if i == 1 {
				_, _ = fmt.Fprintf(w, "data: %s\n\ndata: {\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"x\",\"role\":%q}\n\n", canary, canary)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}))
	defer agent.Close()
	server := streamtest.StartRedis(t)
	log := filepath.Join(t.TempDir(), "audit")
	h := startHub(t, "--redis", server.URL(), "--log-level", "debug", "--auth-config", write(t, issuers), "--audit-log", log, "--console",
		"--agent", "echo="+agent.URL, "--attach-wait", "300ms")
	token := tokenFor(t, "acme", acmeSecret)
	do := func(method, path, token, body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, h.base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}

	// Said, and read back in every way: else there would be nothing to leak.
	if status, text := do("POST", "/v1/runs/r1/events", token, spoken("r1", "t1", canary), "Content-Type", "application/x-ndjson"); status != http.StatusOK {
		t.Fatalf("ingest: %d %s", status, text)
	}
	for _, path := range []string{"/v1/runs/r1/sse", "/v1/runs/r1/events", "/v1/threads/t1/messages"} {
		if _, text := do("GET", path, token, ""); !strings.Contains(text, canary) {
			t.Errorf("%s has nothing that could leak: %s", path, text)
		}
	}
	if code, stdout, _ := run(t, "", "attach", "r1", "--url", h.base, "--token", token); code != 0 || !strings.Contains(stdout, canary) {
		t.Errorf("attach: exit code %d: %s", code, stdout)
	}
	input := fmt.Sprintf(`{"threadId":"t2","runId":"called","messages":[{"id":"u","role":"user","content":%q}],"state":{},"tools":[],"context":[],"forwardedProps":{"k":%[1]q}}`, canary)
	if status, text := do("POST", "/v1/agents/echo", token, input); status != http.StatusOK || !strings.Contains(text, canary) {
		t.Errorf("bridge: %d %s", status, text)
	}
	_, issued := do("POST", "/v1/tickets", token, `{"run":"r1"}`)
	_, ticket, _ := strings.Cut(issued, `"ticket":"`)
	ticket, _, found := strings.Cut(ticket, `"`)
	if status, _ := do("GET", "/v1/runs/r1/sse?ticket="+ticket, "", ""); !found || status != http.StatusOK {
		t.Errorf("ticket: %d %s", status, issued)
	}

	// What goes wrong tempts to quote it.
	do("POST", "/v1/agents/echo", token, strings.ReplaceAll(input, "called", "unended"))
	failing = true
	do("POST", "/v1/agents/echo", token, strings.ReplaceAll(strings.ReplaceAll(input, "called", "failed"), "t2", "t3"))
	do("POST", "/v1/agents/echo", token, canary)
	do("GET", "/v1/runs/r1/sse?ticket="+ticket, "", "")
	do("GET", "/v1/runs/r1/sse?after="+canary, token, "")
	do("GET", "/", "", "", "Cookie", "hub="+canary, "Origin", "http://"+canary+".example")
	do("GET", "/v1/runs", canary+"."+canary+"."+canary, "")
	do("GET", "/v1/runs", token[:len(token)-4]+"AAAA", "")
	do("POST", "/v1/runs/r2/events", token, canary)
	do("POST", "/v1/runs/r2/events", token, `[{"type":"RUN_STARTED","threadId":"t4","runId":"r2","input":{"`+canary+`":1}}]`)
	client := server.Client(t)
	for _, e := range []string{canary, `{"type":"` + canary, `{"type":"RUN_STARTED","threadId":"t5","runId":"r3"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"` + canary + `","delta":"x"}`, `{"type":"TEXT_MESSAGE_START","messageId":7,"role":"` + canary + `"}`, `{"type":"STATE_DELTA","delta":[{"op":"` + canary + `","path":"/a"}]}`} {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "agui-acme:run:r3", Values: []string{"event", e, canary, canary}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := h.attach("r3", "--token", token)
	a.stdout.waitLine(t, "RUN_STARTED")
	if status, text := do("POST", "/v1/runs/r3/cancel", token, `{"reason":"`+canary+`"}`); status != http.StatusAccepted {
		t.Errorf("cancel: %d %s", status, text)
	}
	do("DELETE", "/v1/runs/r3", token, "")
	h.terminate()
	h.exit()

	audit, err := os.ReadFile(log)
	if err != nil || strings.Count(string(audit), "\n") < 15 || !strings.Contains(h.stderr.all(), "DEBUG") {
		t.Fatalf("too little was logged to show anything: %v\n%s\n%s", err, audit, h.stderr.all())
	}
	parts := strings.Split(token, ".")
	for where, text := range map[string]string{"the log": h.stderr.all(), "standard output": h.stdout.all(), "the audit log": string(audit)} {
		for what, secret := range map[string]string{"what was said": canary, "a token's claims": parts[1], "a token's signature": parts[2], "a ticket": ticket, "a key": acmeSecret} {
			for line := range strings.Lines(text) {
				if strings.Contains(line, secret) {
					t.Errorf("%s holds %s: %s", where, what, line)
				}
			}
		}
	}
}

// spoken is a run as lines, with its input, whose every string that isn't an id is said.
func spoken(run, thread, said string) string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%[2]q,"runId":%[1]q,"input":{"threadId":%[2]q,"runId":%[1]q,"state":{"s":%[3]q},"messages":[{"id":"u","role":"user","content":%[3]q}],"tools":[],"context":[],"forwardedProps":{"k":%[3]q}}}
{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":%[3]q}
{"type":"TEXT_MESSAGE_END","messageId":"m"}
{"type":"CUSTOM","name":%[3]q,"value":%[3]q}
{"type":"RUN_FINISHED","threadId":%[2]q,"runId":%[1]q,"result":%[3]q}
`, run, thread, said)
}
