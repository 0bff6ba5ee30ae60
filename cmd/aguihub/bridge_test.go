package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// httpAgent is an agent that begins each run at once and goes on when it may.
type httpAgent struct {
	*httptest.Server
	goOn chan struct{}
}

func newHTTPAgent(tb testing.TB) *httpAgent {
	tb.Helper()
	a := &httpAgent{goOn: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ ThreadID, RunID string }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &asked)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":%q,\"runId\":%q}\n\n", asked.ThreadID, asked.RunID)
		w.(http.Flusher).Flush()
		select {
		case <-a.goOn:
		case <-r.Context().Done():
			return
		}
		for range 20 {
			_, _ = fmt.Fprintf(w, "data: {\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"m\",\"role\":\"assistant\",\"delta\":\"some words \"}\n\n")
		}
		_, _ = fmt.Fprintf(w, "data: {\"type\":\"RUN_FINISHED\",\"threadId\":%q,\"runId\":%q}\n\n", asked.ThreadID, asked.RunID)
	}))
	tb.Cleanup(a.Close)
	return a
}

// call posts an input and returns the answer when its first event is there.
func call(ctx context.Context, client *http.Client, url, run string) (body *bufio.Reader, closeBody func() error, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf(runInput, run)))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	body = bufio.NewReader(resp.Body)
	for {
		line, err := body.ReadString('\n')
		if err != nil {
			return nil, nil, fmt.Errorf("status %d: %w: %s", resp.StatusCode, err, line)
		}
		if strings.HasPrefix(line, "data:") {
			return body, resp.Body.Close, nil
		}
	}
}

// BenchmarkFirstEvent measures how long a caller waits for an agent's first event, straight and through a hub on a real Redis.
func BenchmarkFirstEvent(b *testing.B) {
	agent := newHTTPAgent(b)
	close(agent.goOn)
	h := startHub(b, "--redis", streamtest.StartRedis(b).URL(), "--agent", "a="+agent.URL)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	defer client.CloseIdleConnections()
	n := 0
	for name, url := range map[string]string{"direct": agent.URL, "bridged": h.base + "/v1/agents/a"} {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				n++
				began := time.Now()
				body, closeBody, err := call(b.Context(), client, url, fmt.Sprintf("f%d", n))
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
				_, _ = io.Copy(io.Discard, body)
				_ = closeBody()
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms-p99")
		})
	}
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// rss is the resident memory of a program in KiB; 0 where the system doesn't say.
func (p *program) rss() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	m := resident.FindSubmatch(status)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// TestAThousandBridgedRuns has a thousand runs at once at one hub, each with its caller. A run may weigh 150 KiB: the
// connections to the caller and to the agent, the feed, the writer.
func TestAThousandBridgedRuns(t *testing.T) {
	const runs, most = 1000, 150
	agent := newHTTPAgent(t)
	h := startHub(t, "--redis", streamtest.StartRedis(t).URL(), "--agent", "a="+agent.URL)
	transport := &http.Transport{MaxIdleConnsPerHost: runs}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	if _, closeBody, err := call(t.Context(), client, h.base+"/v1/agents/a", "warm"); err != nil {
		t.Fatal(err)
	} else {
		defer func() { _ = closeBody() }()
	}
	before := h.rss()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var begun, ended sync.WaitGroup
	const atOnce = 50 // begin, and end, however slow this machine
	slots, over := make(chan struct{}, atOnce), make(chan struct{}, runs)
	for i := range runs {
		begun.Add(1)
		ended.Go(func() {
			defer func() { over <- struct{}{} }()
			slots <- struct{}{}
			body, closeBody, err := call(ctx, client, h.base+"/v1/agents/a", fmt.Sprintf("k%d", i))
			<-slots
			begun.Done()
			if err != nil {
				t.Errorf("run %d: %v", i, err)
				return
			}
			defer func() { _ = closeBody() }()
			rest, err := io.ReadAll(body)
			if err != nil || !strings.Contains(string(rest), "RUN_FINISHED") {
				t.Errorf("run %d ended with %v: %s", i, err, rest[max(0, len(rest)-300):])
			}
		})
	}
	begun.Wait()
	during := h.rss()
	for i := range runs - atOnce {
		if i >= atOnce {
			<-over
		}
		select {
		case agent.goOn <- struct{}{}:
		case <-ctx.Done():
		}
	}
	close(agent.goOn)
	ended.Wait()
	t.Logf("%d runs: from %d to %d KiB resident, %d KiB a run; then %d KiB", runs, before, during, (during-before)/runs, h.rss())
	if before > 0 && (during-before)/runs > most {
		t.Errorf("a run weighs %d KiB, more than %d", (during-before)/runs, most)
	}
}

// TestAHubThatIsKilledDuringABridgedRun kills the hub that calls the agent: another one ends the run, once.
func TestAHubThatIsKilledDuringABridgedRun(t *testing.T) {
	agent := newHTTPAgent(t)
	redis := streamtest.StartRedis(t)
	args := []string{"--redis", redis.URL(), "--lease-ttl", "3s", "--agent", "a=" + agent.URL}
	doomed, other := startHub(t, args...), startHub(t, args...)
	_, closeBody, err := call(t.Context(), http.DefaultClient, doomed.base+"/v1/agents/a", "k1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeBody() }()
	tab := other.attach("k1")
	tab.stdout.wait(t, func(s string) bool { return strings.Contains(s, "RUN_STARTED") })
	began := time.Now()
	if err := doomed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := tab.exit(); code != 0 {
		t.Fatalf("attach exited with %d", code)
	}
	t.Logf("ended after %v", time.Since(began).Round(time.Millisecond))
	ends := 0
	for _, entry := range redis.Client(t).XRange(t.Context(), "agui:run:k1", "-", "+").Val() {
		if event, _ := entry.Values["event"].(string); strings.Contains(event, "RUN_ERROR") || strings.Contains(event, "RUN_FINISHED") {
			ends++
			if !strings.Contains(event, "producer_lost") {
				t.Errorf("ended with %s", event)
			}
		}
	}
	if ends != 1 {
		t.Errorf("%d ends", ends)
	}
	close(agent.goOn)
	body, closeNext, err := call(t.Context(), http.DefaultClient, other.base+"/v1/agents/a", "k2")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeNext() }()
	if rest, err := io.ReadAll(body); err != nil || !strings.Contains(string(rest), "RUN_FINISHED") {
		t.Errorf("the next run: %v", err)
	}
}
