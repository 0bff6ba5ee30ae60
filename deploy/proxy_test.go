package deploy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/checker"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// restarted is a hub that can be stopped and started again at the same addresses.
type restarted struct {
	tb            testing.TB
	program       string
	args          []string
	base, metrics string
	cmd           *exec.Cmd
}

func (h *restarted) start() {
	h.cmd = background(h.tb, h.program, h.args...)
	eventually(h.tb, "the hub is ready", func() bool {
		status, _, err := get(h.tb.Context(), "http://"+h.metrics+"/readyz")
		return err == nil && status == http.StatusOK
	})
}

// sockets is how many WebSockets the hub has.
func (h *restarted) sockets() int {
	_, body, err := get(h.tb.Context(), "http://"+h.metrics+"/metrics")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(body, "\naguihub_connections{transport=\"websocket\"} ")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseFloat(line, 64)
	return int(n)
}

// proxies are those that deploy has a configuration of: how each is started with one, made for addresses of loopback.
var proxies = map[string]func(t *testing.T, listen string, hubs [2]*restarted){
	"nginx": func(t *testing.T, listen string, hubs [2]*restarted) {
		dir := t.TempDir()
		config := filepath.Join(dir, "nginx.conf")
		text := strings.NewReplacer("listen 8080", "listen "+listen, "hub1:8080", hubs[0].base, "hub2:8080", hubs[1].base, "/tmp/nginx", dir+"/nginx").Replace(read(t, "nginx.conf"))
		write(t, config, text)
		background(t, sbin(t, "nginx"), "-p", dir, "-c", config, "-g", "daemon off; master_process off;") // a worker of its own would outlive it
	},
	"haproxy": func(t *testing.T, listen string, hubs [2]*restarted) {
		config := filepath.Join(t.TempDir(), "haproxy.cfg")
		text := strings.NewReplacer("bind :8080", "bind "+listen, "check port 9464", "check", "maxconn 20000", "maxconn 2000").Replace(read(t, "haproxy.cfg"))
		for i, h := range hubs {
			_, port, _ := strings.Cut(h.metrics, ":")
			text = strings.ReplaceAll(text, fmt.Sprintf("hub%d:8080", i+1), h.base+" port "+port)
		}
		write(t, config, text)
		background(t, sbin(t, "haproxy"), "-db", "-f", config)
	},
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sbin finds a program where Debian puts servers, too.
func sbin(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		return path
	}
	return program(t, name)
}

// TestRollingRestart restarts both hubs behind each proxy, one after the other, while agents publish and subscribers watch
// through it. The rules: nobody misses or gets twice an event, nobody is reset; those who are sent away come one by one,
// spread over the drain time.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	hub := buildHub(t)
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := streamtest.StartRedis(t)
			var hubs [2]*restarted
			for i := range hubs {
				h := &restarted{tb: t, program: hub, base: freeAddr(t), metrics: freeAddr(t)}
				h.args = []string{"--redis", server.URL(), "--listen", h.base, "--metrics-listen", h.metrics, "--drain-time", drainTime.String()}
				h.start()
				hubs[i] = h
			}
			listen := freeAddr(t)
			start(t, listen, hubs)
			eventually(t, "a hub answers through the proxy", func() bool {
				status, _, err := get(t.Context(), "http://"+listen+"/v1/runs")
				return err == nil && status == http.StatusOK
			})
			roll(t, server.Client(t), "http://"+listen, hubs)
		})
	}
}

const (
	drainTime   = 3 * time.Second
	runs        = 4
	subscribers = 60
)

// roll is the load, the restarts and the judgement.
func roll(t *testing.T, client *redis.Client, base string, hubs [2]*restarted) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	done := make(chan struct{})
	archives := make([]*checker.Archive, runs)
	var producers, watchers sync.WaitGroup
	for i := range archives {
		archives[i] = &checker.Archive{}
		producers.Go(func() { produce(ctx, t, client, fmt.Sprintf("run%d", i), archives[i], done) })
	}
	subs := make([]*checker.Subscriber, subscribers)
	for i := range subs {
		subs[i] = checker.NewSubscriber(fmt.Sprintf("s%d", i), fmt.Sprintf("run%d", i%runs), func() []string { return []string{base} }, checker.Habits{}, uint64(i+1))
		wire := checker.Socket
		if i%10 == 9 {
			wire = checker.SSE
		}
		watchers.Go(func() { subs[i].Follow(ctx, wire) })
	}
	eventually(t, "all are attached", func() bool { return hubs[0].sockets()+hubs[1].sockets() >= subscribers*9/10 })
	for _, h := range hubs {
		restart(t, h)
	}
	eventually(t, "all are attached again", func() bool { return hubs[0].sockets()+hubs[1].sockets() >= subscribers*9/10 })
	close(done)
	producers.Wait()
	watchers.Wait()
	var all checker.Figures
	for i, s := range subs {
		all.Add(s.Figures)
		if !s.Ended() {
			t.Errorf("subscriber %d didn't see the end", i)
		}
		for _, fault := range archives[i%runs].Judge(s) {
			t.Errorf("subscriber %d: %s", i, fault)
		}
	}
	t.Logf("%d deliveries to %d subscribers, %d reconnects, closes %v, resets %v", all.Deliveries, subscribers, all.Reconnects, all.Closes, all.Resets)
	if len(all.Resets) > 0 || all.Reconnects < subscribers/2 {
		t.Errorf("%d reconnects, resets %v", all.Reconnects, all.Resets)
	}
}

// produce publishes to a run, in the checker's form and fifty events a second, until done, and ends it.
func produce(ctx context.Context, t *testing.T, client *redis.Client, run string, archive *checker.Archive, done <-chan struct{}) {
	add := func(e checker.Entry, event string) {
		text, err := client.XAdd(ctx, &redis.XAddArgs{Stream: "agui:run:" + run, Values: []string{"event", event}}).Result()
		if err == nil {
			e.ID, err = stream.ParseID(text)
		}
		if err != nil {
			t.Error(err)
			return
		}
		archive.Add(e)
	}
	const message = "m1"
	add(checker.Entry{Kind: checker.Start}, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t-%[1]s","runId":"%[1]s"}`, run))
	add(checker.Entry{Kind: checker.Open, Message: message}, fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"}`, message))
	ticker := time.NewTicker(time.Second / 50)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
			e := checker.Entry{Kind: checker.Text, N: n, Message: message}
			add(e, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":%q}`, message, checker.TextOf(n)))
			continue
		case <-ctx.Done():
			return
		case <-done:
		}
		break
	}
	add(checker.Entry{Kind: checker.Close, Message: message}, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":%q}`, message))
	add(checker.Entry{Kind: checker.End}, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t-%[1]s","runId":"%[1]s"}`, run))
}

// restart stops a hub as an orchestrator does, notes how its sockets left, and starts it again. That they are spread is for the
// tests of the drain to show: here the machine's load decides when they are seen to go.
func restart(t *testing.T, h *restarted) {
	t.Helper()
	before, began := h.sockets(), time.Now()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	left, last := make([]int, 6), before
	for time.Since(began) < drainTime && last > 0 {
		n := h.sockets()
		left[min(int(time.Since(began)*6/drainTime), 5)] += max(last-n, 0)
		last = min(last, n)
		time.Sleep(20 * time.Millisecond)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("the hub's exit: %v", err)
	}
	t.Logf("of %d sockets left per sixth of %v: %v", before, drainTime, left)
	h.start()
}
