package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// The rules of a drain: not ready at once; each client is told first and closed with 1012, one by one over the drain time;
// nothing new is taken; what is being posted is finished; the exit code is 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	const clients, over = 80, 4 * time.Second
	h := startHub(t, "--drain-time", over.String())
	agent := streamtest.Client(t, h.redis)
	xadd(t, agent, "r1", `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	var mu sync.Mutex
	var closes, delays []time.Duration
	var asked time.Time
	var leaving, attached sync.WaitGroup
	for range clients {
		attached.Add(1)
		leaving.Go(func() {
			ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(h.base, "http")+"/v1/runs/r1/ws", &websocket.DialOptions{Subprotocols: []string{"ag-ui.hub.v1.json"}})
			if err != nil {
				attached.Done()
				t.Error(err)
				return
			}
			told := -1
			live := sync.OnceFunc(attached.Done)
			for {
				_, data, err := ws.Read(ctx)
				if err != nil {
					live()
					if code := websocket.CloseStatus(err); code != websocket.StatusServiceRestart || told < 0 {
						t.Errorf("closed with %v, told %d", err, told)
					}
					mu.Lock()
					closes, delays = append(closes, time.Since(asked)), append(delays, time.Duration(told)*time.Millisecond)
					mu.Unlock()
					return
				}
				for line := range strings.Lines(string(data)) {
					var c struct {
						Control      string
						RetryAfterMs int
					}
					if json.Unmarshal([]byte(line), &c) == nil && c.Control == "draining" {
						told = c.RetryAfterMs
					}
					if c.Control == "live" {
						live()
					}
				}
			}
		})
	}
	attached.Wait()
	stream := make(chan string, 1)
	go func() {
		_, body, err := get(ctx, h.base+"/v1/threads/t1/sse")
		stream <- fmt.Sprint(body, err)
	}()
	body, pipe := io.Pipe()
	answered := make(chan string, 1)
	go func() { answered <- post(ctx, h.base+"/v1/runs/r2/events", body) }()
	write := func(event string) {
		if _, err := io.WriteString(pipe, event+"\n"); err != nil {
			t.Error(err)
		}
	}
	write(`{"type":"RUN_STARTED","threadId":"t2","runId":"r2"}`)
	eventually(t, "the posted event is in the log", func() bool { return agent.XLen(ctx, "agui:run:r2").Val() == 1 })
	eventually(t, "the stream is open", func() bool {
		_, text, _ := get(ctx, h.metrics+"/metrics")
		return strings.Contains(text, `aguihub_connections{transport="sse"} 1`)
	})

	mu.Lock()
	asked = time.Now()
	mu.Unlock()
	h.terminate()
	eventually(t, "it isn't ready", func() bool {
		status, _, err := get(ctx, h.metrics+"/readyz")
		return err == nil && status == http.StatusServiceUnavailable
	})
	eventually(t, "it takes nothing new", func() bool {
		status, text, err := get(ctx, h.base+"/v1/runs/r1/sse")
		return err == nil && status == http.StatusServiceUnavailable && strings.Contains(text, `"draining"`)
	})
	write(`{"type":"RUN_FINISHED","threadId":"t2","runId":"r2"}`)
	_ = pipe.Close()
	if got := <-answered; !strings.Contains(got, `"accepted":2`) || strings.Contains(got, "draining") {
		t.Errorf("ingest answered %s", got)
	}
	if got := <-stream; !strings.Contains(got, "\nretry: ") {
		t.Errorf("the stream ended with %s", got)
	}
	leaving.Wait()
	if code := h.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	slices.Sort(closes)
	slices.Sort(delays)
	histogram := make([]int, 8)
	for _, d := range closes {
		histogram[min(int(d*8/over), 7)]++
	}
	t.Logf("closes per eighth of %v: %v; retryAfterMs %v to %v", over, histogram, delays[0], delays[len(delays)-1])
	if wide := closes[len(closes)-1] - closes[0]; wide < over/2 { // a slow machine makes it wider only
		t.Errorf("closes came within %v", wide)
	}
	if delays[0] < 100*time.Millisecond || delays[len(delays)-1] > time.Second {
		t.Error("they would come back as a wave")
	}
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	h := startHub(t, "--drain-time=1m")
	body, pipe := io.Pipe()
	defer func() { _ = pipe.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go post(ctx, h.base+"/v1/runs/r1/events", body)
	defer cancel()
	if _, err := io.WriteString(pipe, `{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	agent := streamtest.Client(t, h.redis)
	eventually(t, "the posted event is in the log", func() bool { return agent.XLen(ctx, "agui:run:r1").Val() == 1 })
	h.terminate()
	h.stderr.waitLine(t, "stopping")
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := h.exit(); code == 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAClientThatHasBeenAttachedForLongIsSentAway(t *testing.T) {
	t.Parallel()
	h := startHub(t, "--max-connection-age=2s", "--write-timeout=2s")
	agent := streamtest.Client(t, h.redis)
	xadd(t, agent, "r1", `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)
	a := h.attach("--lines", "r1")
	a.stdout.waitLine(t, `"draining"`)
	a.stderr.waitLine(t, "coming back")
	xadd(t, agent, "r1", `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`)
	if code := a.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	status, text, err := get(t.Context(), h.base+"/v1/threads/t1/sse")
	if status != http.StatusOK || err != nil || !strings.Contains(text, "\nretry: ") {
		t.Errorf("%d %v: %s", status, err, text)
	}
}
