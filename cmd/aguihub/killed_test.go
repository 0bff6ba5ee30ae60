package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// newPacedAgent is an agent that thinks for a while and then talks for a while, differently each time.
func newPacedAgent(tb testing.TB, seed uint64) *httptest.Server {
	tb.Helper()
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.IntN(n)) * time.Millisecond
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ ThreadID, RunID string }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &asked)
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(pause time.Duration, format string, args ...any) {
			select {
			case <-time.After(pause):
				_, _ = fmt.Fprintf(w, "data: "+format+"\n\n", args...)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
			}
		}
		say(draw(600), `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, asked.ThreadID, asked.RunID)
		say(0, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`)
		for range 12 {
			say(draw(100), `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"word "}`)
		}
		say(0, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`)
		say(draw(100), `{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, asked.ThreadID, asked.RunID)
	}))
	tb.Cleanup(server.Close)
	return server
}

// pipeIn posts a run to a hub's ingest as it comes into being, and gives up where the hub does.
func pipeIn(ctx context.Context, h *hub, run string, pauses []time.Duration) {
	body, pipe := io.Pipe()
	defer func() { _ = pipe.Close() }()
	go func() { _ = post(ctx, h.base+"/v1/runs/"+run+"/events", body); _ = body.Close() }()
	lines := []string{fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t-%[1]s","runId":"%[1]s"}`, run), `{"type":"STEP_STARTED","stepName":"s"}`}
	for i := range pauses {
		lines = append(lines, fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, i))
	}
	lines = append(lines, `{"type":"STEP_FINISHED","stepName":"s"}`, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t-%[1]s","runId":"%[1]s"}`, run))
	for i, line := range lines {
		if i < len(pauses) {
			time.Sleep(pauses[i])
		}
		if _, err := io.WriteString(pipe, line+"\n"); err != nil {
			return
		}
	}
}

// TestHubsThatAreKilledAtRandomLeaveEachRunOneEnd kills hubs that bridge, take in and publish runs. Every run that anybody was
// told of ends with its agent's own terminal event, or with one RUN_ERROR producer_lost soon after the kill: never with both,
// never with none. AGUIHUB_SEED repeats a failure.
func TestHubsThatAreKilledAtRandomLeaveEachRunOneEnd(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("AGUIHUB_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("AGUIHUB_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const ttl = 1500 * time.Millisecond
	agent, redis := newPacedAgent(t, seed), streamtest.StartRedis(t)
	client := redis.Client(t)
	args := []string{"--redis", redis.URL(), "--lease-ttl", ttl.String(), "--agent", "a=" + agent.URL}
	survivor := startHub(t, args...)
	hubs := []*hub{startHub(t, append(args, "--demo")...), startHub(t, append(args, "--demo")...)}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var senders sync.WaitGroup
	var kills []time.Time
	begun := 0
	for range 4 {
		for range 12 {
			begun++
			h, run := hubs[random.IntN(len(hubs))], fmt.Sprintf("b%d", begun)
			if random.IntN(3) == 0 {
				run = fmt.Sprintf("i%d", begun)
				pauses := make([]time.Duration, 10)
				for i := range pauses {
					pauses[i] = time.Duration(random.IntN(120)) * time.Millisecond
				}
				senders.Go(func() { pipeIn(ctx, h, run, pauses) })
			} else {
				senders.Go(func() { _, _, _ = inThread(ctx, h, "t-"+run, run, "") }) // its caller may be cut off
			}
			time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond)
		}
		i := random.IntN(len(hubs))
		if err := hubs[i].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		kills = append(kills, time.Now())
		hubs[i] = startHub(t, append(args, "--demo")...)
	}
	senders.Wait()
	for _, h := range hubs { // whose demo agents go on with runs for ever
		_ = h.cmd.Process.Kill()
		kills = append(kills, time.Now())
	}
	// Every run that the registry has heard of, which is before its first entry.
	told := func() (runs []string) {
		for _, m := range client.XRange(ctx, "agui:runs", "-", "+").Val() {
			if run, _ := m.Values["run"].(string); !slices.Contains(runs, run) {
				runs = append(runs, run)
			}
		}
		return runs
	}
	eventually(t, "every run has an end", func() bool {
		return !slices.ContainsFunc(told(), func(run string) bool { return len(ends(t, client, run)) == 0 })
	})
	count := map[string]int{}
	worst := time.Duration(0)
	for _, run := range told() {
		got := ends(t, client, run)
		if len(got) != 1 {
			t.Errorf("%s ends with %q", run, got)
			continue
		}
		count[got[0]]++
		if got[0] != "RUN_ERROR producer_lost" {
			continue
		}
		last := client.XRevRangeN(ctx, "agui:run:"+run, "+", "-", 1).Val()[0]
		ms, _, _ := splitID(last.ID)
		at := time.UnixMilli(ms)
		late := time.Duration(1 << 62)
		for _, kill := range kills {
			if d := at.Sub(kill); d >= 0 {
				late = min(late, d)
			}
		}
		worst = max(worst, late)
	}
	t.Logf("%d runs, %d kills, ends: %v; the last one %v after a kill, with a lease of %v", len(told()), len(kills), count, worst.Round(time.Millisecond), ttl)
	if count["RUN_FINISHED "] == 0 || count["RUN_ERROR producer_lost"] == 0 {
		t.Errorf("ends: %v", count)
	}
	for end := range count {
		if end != "RUN_FINISHED " && end != "RUN_ERROR producer_lost" {
			t.Errorf("a run ends with %q", end)
		}
	}
	for _, run := range told() { // whoever attaches later sees that it is over
		if state := stateOf(t, survivor.base, run); state != "finished" && state != "error" {
			t.Errorf("%s is %q", run, state)
		}
	}
}

// splitID reads an entry's id.
func splitID(id string) (ms int64, seq int, err error) {
	_, err = fmt.Sscanf(id, "%d-%d", &ms, &seq)
	return ms, seq, err
}
