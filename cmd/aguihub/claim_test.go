package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// slowAgent begins a run when it may, and goes on until it is told to end it or the caller leaves. It counts the runs of
// each thread that are under way at once.
type slowAgent struct {
	*httptest.Server
	begin chan struct{} // closed: runs begin at once

	mu     sync.Mutex
	finish map[string]chan struct{} // by run
	active map[string]int           // by thread
	most   int
}

func newSlowAgent(tb testing.TB) *slowAgent {
	tb.Helper()
	a := &slowAgent{begin: make(chan struct{}), finish: map[string]chan struct{}{}, active: map[string]int{}}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	tb.Cleanup(a.Close)
	return a
}

func (a *slowAgent) end(run string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finish[run] == nil {
		a.finish[run] = make(chan struct{})
	}
	return a.finish[run]
}

func (a *slowAgent) count(thread string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active[thread] += n
	a.most = max(a.most, a.active[thread])
}

// atOnce is how many runs of a thread were under way at once, at most.
func (a *slowAgent) atOnce() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most
}

func (a *slowAgent) serve(w http.ResponseWriter, r *http.Request) {
	var asked struct{ ThreadID, RunID string }
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &asked)
	a.count(asked.ThreadID, 1)
	defer a.count(asked.ThreadID, -1)
	w.Header().Set("Content-Type", "text/event-stream")
	select {
	case <-a.begin:
	case <-r.Context().Done():
		return
	}
	_, _ = fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":%q,\"runId\":%q}\n\n", asked.ThreadID, asked.RunID)
	w.(http.Flusher).Flush()
	select {
	case <-a.end(asked.RunID):
		_, _ = fmt.Fprintf(w, "data: {\"type\":\"RUN_FINISHED\",\"threadId\":%q,\"runId\":%q}\n\n", asked.ThreadID, asked.RunID)
	case <-r.Context().Done():
	}
}

// inThread posts an input to a hub's agent a, and returns when the run has ended or was refused.
func inThread(ctx context.Context, h *hub, thread, run, query string) (status int, body string, err error) {
	const input = `{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":"u-%[2]s","role":"user","content":"hello"}],"tools":[],"context":[],"forwardedProps":{}}`
	return postInput(ctx, h, fmt.Sprintf(input, thread, run), query)
}

// postInput is inThread with any input.
func postInput(ctx context.Context, h *hub, input, query string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+"/v1/agents/a"+query, strings.NewReader(input))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// TestAThreadHasOneRunAtAllHubs has two hubs start runs in one thread at the same instant, while nothing of them is in the
// log yet: each time exactly one is taken, and the next one as soon as it has ended, at whichever hub.
func TestAThreadHasOneRunAtAllHubs(t *testing.T) {
	t.Parallel()
	agent := newSlowAgent(t)
	redis := streamtest.StartRedis(t)
	args := []string{"--redis", redis.URL(), "--agent", "a=" + agent.URL}
	hubs := []*hub{startHub(t, args...), startHub(t, args...)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	type result struct {
		status int
		body   string
		run    string
		err    error
	}
	const rounds, each = 12, 3
	for round := range rounds {
		if round == rounds/2 {
			close(agent.begin) // before: they are silent; from now on: they begin at once
		}
		results := make(chan result, each*len(hubs))
		for i := range each * len(hubs) {
			go func() {
				run := fmt.Sprintf("r%d-%d", round, i)
				status, body, err := inThread(ctx, hubs[i%len(hubs)], "t", run, "")
				results <- result{status, body, run, err}
			}()
		}
		for range each*len(hubs) - 1 { // all but one come back at once
			if r := <-results; r.status != http.StatusConflict || !strings.Contains(r.body, "thread_busy") {
				t.Fatalf("round %d: %s: %d %s %v", round, r.run, r.status, r.body, r.err)
			}
		}
		for i := range each * len(hubs) {
			close(agent.end(fmt.Sprintf("r%d-%d", round, i)))
		}
		if round < rounds/2 { // it hasn't begun, and can be cancelled all the same, through the other hub
			cancelActive(ctx, t, hubs, round, each*len(hubs))
		}
		if r := <-results; r.status != http.StatusOK || !strings.Contains(r.body, "RUN_FINISHED") || strings.Contains(r.body, `"cancelled"`) != (round < rounds/2) {
			t.Fatalf("round %d: %s: %d %s %v", round, r.run, r.status, r.body, r.err)
		}
	}
	if most := agent.atOnce(); most != 1 {
		t.Errorf("the agent had %d runs of the thread at once", most)
	}
}

// cancelActive asks for the end of whichever run of a round was taken, through both hubs at once, as two tabs do.
func cancelActive(ctx context.Context, t *testing.T, hubs []*hub, round, n int) {
	t.Helper()
	asked := 0
	for i := range n {
		var both sync.WaitGroup
		codes := make([]int, len(hubs))
		for j, h := range hubs {
			both.Go(func() {
				url := fmt.Sprintf("%s/v1/runs/r%d-%d/cancel", h.base, round, i)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"reason":"no more"}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				codes[j] = resp.StatusCode
				_ = resp.Body.Close()
			})
		}
		both.Wait()
		for _, code := range codes {
			switch code {
			case http.StatusAccepted:
				asked++
			case http.StatusNotFound, http.StatusConflict: // another one; or it has ended since the other tab asked
			default:
				t.Errorf("cancel is answered with %d", code)
			}
		}
	}
	if asked == 0 {
		t.Fatalf("round %d: no run could be cancelled", round)
	}
}

// TestSupersedingAtAllHubs has runs supersede each other through two hubs at once: in the end one goes on, and each of the
// others was cancelled, once.
func TestSupersedingAtAllHubs(t *testing.T) {
	t.Parallel()
	agent := newSlowAgent(t)
	close(agent.begin)
	redis := streamtest.StartRedis(t)
	client := redis.Client(t)
	args := []string{"--redis", redis.URL(), "--agent", "a=" + agent.URL}
	hubs := []*hub{startHub(t, args...), startHub(t, args...)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	const runs = 8
	var all sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i := range runs {
		all.Go(func() {
			run := fmt.Sprintf("s%d", i)
			status, body, err := inThread(ctx, hubs[i%len(hubs)], "t", run, "?concurrent=supersede")
			switch {
			case err != nil:
				t.Errorf("%s: %v", run, err)
			case status == http.StatusConflict && strings.Contains(body, "thread_busy"): // others were quicker for too long
				mu.Lock()
				refused++
				mu.Unlock()
			case status != http.StatusOK:
				t.Errorf("%s: %d %s", run, status, body)
			}
		})
	}
	var active []string
	eventually(t, "one run goes on, and all others have ended", func() bool {
		active = active[:0]
		ended := 0
		for i := range runs {
			run := fmt.Sprintf("s%d", i)
			switch n := len(ends(t, client, run)); {
			case n > 0:
				ended++
			case client.XLen(ctx, "agui:run:"+run).Val() > 0:
				active = append(active, run)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return len(active) == 1 && ended+refused == runs-1
	})
	close(agent.end(active[0]))
	all.Wait()
	for i := range runs {
		run := fmt.Sprintf("s%d", i)
		want := "RUN_FINISHED cancelled"
		if run == active[0] {
			want = "RUN_FINISHED "
		}
		got := ends(t, client, run)
		if len(got) == 0 && client.Exists(ctx, "agui:run:"+run).Val() == 0 {
			continue // refused
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s ends with %q", run, got)
		}
	}
	if most := agent.atOnce(); most > 1 {
		t.Errorf("the agent had %d runs of the thread at once", most)
	}
	t.Logf("%d of %d were refused", refused, runs)
}

// TestAHubThatIsKilledBeforeItsAgentAnswers leaves the user's message behind, and what became of it; the thread is free then.
func TestAHubThatIsKilledBeforeItsAgentAnswers(t *testing.T) {
	t.Parallel()
	agent := newSlowAgent(t)
	redis := streamtest.StartRedis(t)
	client := redis.Client(t)
	args := []string{"--redis", redis.URL(), "--lease-ttl", "2s", "--agent", "a=" + agent.URL}
	doomed, other := startHub(t, args...), startHub(t, args...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { _, _, _ = inThread(ctx, doomed, "t", "k1", "") }()
	eventually(t, "the agent is asked", func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		return agent.active["t"] == 1
	})
	time.Sleep(2400 * time.Millisecond) // longer than a lease: it is renewed, and the thread with it
	if status, body, err := inThread(ctx, other, "t", "k2", ""); err != nil || status != http.StatusConflict {
		t.Fatalf("beside it: %d %s %v", status, body, err)
	}
	if err := doomed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is ended", func() bool { return len(ends(t, client, "k1")) > 0 })
	if got := ends(t, client, "k1"); len(got) != 1 || got[0] != "RUN_ERROR producer_lost" {
		t.Errorf("it ends with %q", got)
	}
	entries := client.XRange(ctx, "agui:run:k1", "-", "+").Val()
	if input, _ := entries[0].Values["input"].(string); !strings.Contains(input, `"u-k1"`) {
		t.Errorf("it begins with %v", entries[0].Values)
	}
	close(agent.begin)
	close(agent.end("k3"))
	eventually(t, "the thread is free", func() bool {
		status, _, err := inThread(ctx, other, "t", "k3", "")
		return err == nil && status == http.StatusOK
	})
	if _, body, err := get(ctx, other.base+"/v1/threads/t/messages"); err != nil || !strings.Contains(body, `"u-k1"`) || !strings.Contains(body, `"u-k3"`) {
		t.Errorf("the thread has %s, %v", body, err)
	}
}
