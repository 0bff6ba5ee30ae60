package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long anything may take that is waited for. It only matters to failing tests.
const patience = 2 * time.Minute

// binary is the program, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "aguihub-test")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "aguihub")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("go build: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

// program is a running aguihub.
type program struct {
	tb     testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *lines
	stderr *lines
	done   chan struct{} // closed when it has ended
	code   int           // after done
}

// start starts the program and kills it at the end of the test, if it still runs then.
func start(tb testing.TB, env []string, args ...string) *program {
	tb.Helper()
	p := &program{tb: tb, cmd: exec.Command(binary, args...), stdout: newLines(), stderr: newLines(), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		p.stdout.end()
		p.stderr.end()
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if tb.Failed() {
			tb.Logf("aguihub %s: exit code %d\n%s", strings.Join(args, " "), p.code, p.stderr.all())
		}
	})
	return p
}

// exit waits for the program's end and returns its exit code.
func (p *program) exit() int {
	p.tb.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(patience):
		p.tb.Fatalf("aguihub goes on after %v", patience)
		return -1
	}
}

// run runs the program with an input to its end.
func run(tb testing.TB, input string, args ...string) (code int, stdout, stderr string) {
	tb.Helper()
	p := start(tb, nil, args...)
	_, _ = io.WriteString(p.stdin, input)
	_ = p.stdin.Close()
	code = p.exit()
	return code, p.stdout.all(), p.stderr.all()
}

// hub is a running hub.
type hub struct {
	*program
	base    string // http://host:port
	metrics string // http://host:port
	redis   string // host:port of the embedded one, else empty
}

var (
	attachAt  = regexp.MustCompile(`attach +ws(s?://[^/]+)/`)
	metricsAt = regexp.MustCompile(`metrics +(http://[^/]+)/metrics`)
	redisAt   = regexp.MustCompile(`embedded at (\S+)`)
)

// startHub starts a hub on free ports, without the demo, and waits until it is ready.
func startHub(tb testing.TB, args ...string) *hub {
	tb.Helper()
	h := startHubEarly(tb, args...)
	h.waitReady()
	return h
}

// startHubEarly returns as soon as the hub has said where it listens.
func startHubEarly(tb testing.TB, args ...string) *hub {
	tb.Helper()
	h := &hub{program: start(tb, nil, append([]string{"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--no-demo"}, args...)...)}
	h.stderr.wait(tb, func(s string) bool { return metricsAt.MatchString(s) })
	banner := h.stderr.all()
	h.base = "http" + attachAt.FindStringSubmatch(banner)[1]
	h.metrics = metricsAt.FindStringSubmatch(banner)[1]
	if m := redisAt.FindStringSubmatch(banner); m != nil {
		h.redis = m[1]
	}
	return h
}

func (h *hub) waitReady() {
	h.tb.Helper()
	eventually(h.tb, "the hub is ready", func() bool {
		status, _, err := get(h.tb.Context(), h.metrics+"/readyz")
		return err == nil && status == http.StatusOK
	})
}

// attach starts aguihub attach and waits until the hub has taken it.
func (h *hub) attach(args ...string) *program {
	h.tb.Helper()
	return start(h.tb, nil, append([]string{"attach", "--url", h.base}, args...)...)
}

func get(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// eventually looks at other processes until ok.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("not after %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// xadd publishes one event as an agent does.
func xadd(tb testing.TB, client *redis.Client, run, event string) {
	tb.Helper()
	if err := client.XAdd(tb.Context(), &redis.XAddArgs{Stream: "agui:run:" + run, Values: []string{"event", event}}).Err(); err != nil {
		tb.Fatal(err)
	}
}

// events is a whole run with one message, in a thread of its own: "t-" and the run's id.
func events(run string) string {
	return strings.Join([]string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t-%[1]s","runId":"%[1]s"}`, run),
		`{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"m1"}`,
		fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t-%[1]s","runId":"%[1]s"}`, run),
	}, "\n") + "\n"
}

// lines collects what a process writes. The zero value isn't ready.
type lines struct {
	mu    sync.Mutex
	cond  *sync.Cond
	buf   bytes.Buffer
	ended bool
}

func newLines() *lines {
	l := &lines{}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.cond.Broadcast()
	return l.buf.Write(b)
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.cond.Broadcast()
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// wait waits until ok of all that was written.
func (l *lines) wait(tb testing.TB, ok func(string) bool) {
	tb.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.cond.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !ok(l.buf.String()) {
		if late || l.ended {
			tb.Fatalf("never written, within %v: what was waited for; written:\n%s", patience, l.buf.String())
		}
		l.cond.Wait()
	}
}

// waitLine waits for a line that contains text and returns it.
func (l *lines) waitLine(tb testing.TB, text string) (found string) {
	tb.Helper()
	l.wait(tb, func(s string) bool {
		for line := range strings.Lines(s) {
			if strings.Contains(line, text) {
				found = strings.TrimRight(line, "\r\n")
				return true
			}
		}
		return false
	})
	return found
}

// terminate asks a process to end.
func (p *program) terminate() {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Fatal(err)
	}
}
