// Package e2e measures hubs from outside: real processes on a real Redis, agents that publish with XADD, and the official clients as
// subscribers. Whatever entry they attach at, they must end as if they had watched from the first.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aguihub/aguihub/oracle"
)

var (
	sweep     = flag.Bool("sweep", os.Getenv("AGUIHUB_SWEEP") != "", "attach at every k of every stream, by every client over every wire")
	firstSeed = flag.Uint64("seed", 1, "first seed of the generated streams")
	only      = flag.String("only", "", "only streams whose name contains this")
)

const (
	// patience bounds every wait. It only matters to failing tests, and to machines that have others to serve.
	patience = 2 * time.Minute
	// quiet is how long nothing must come for the past to have come: hubs on loopback need a hundredth of it.
	quiet = 50 * time.Millisecond
	// inFlight is how many streams are published at once.
	inFlight = 8
)

// program is the hub, built once.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "aguihub-e2e")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		program = filepath.Join(dir, "aguihub")
		if out, err := exec.Command("go", "build", "-o", program, "../cmd/aguihub").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("go build: %v\n%s", err, out))
		}
		return oracle.Keep(m).Run()
	}())
}

// hub is a running hub.
type hub struct {
	base string // http://host:port
	cmd  *exec.Cmd
	log  *output
}

// output is what a hub writes on its standard error.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{} // holds one token after every write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

var (
	hubAt     = regexp.MustCompile(`attach +ws(://[^/]+)/`)
	metricsAt = regexp.MustCompile(`metrics +(http://[^/]+)/metrics`)
)

// startHub starts a hub on a Redis and waits until it is ready. It must be alive, and end well, at the end of the test.
func startHub(tb testing.TB, redisURL string, args ...string) *hub {
	tb.Helper()
	args = append([]string{"--redis", redisURL, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"}, args...)
	h := &hub{cmd: exec.Command(program, args...), log: &output{wrote: make(chan struct{}, 1)}}
	h.cmd.Stderr = h.log
	if err := h.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		h.stop(tb)
		if tb.Failed() {
			tb.Logf("the hub's log:\n%s", h.log)
		}
	})
	late := time.After(patience)
	for !metricsAt.MatchString(h.log.String()) {
		select {
		case <-h.log.wrote:
		case <-late:
			tb.Fatalf("the hub doesn't say where it listens:\n%s", h.log)
		}
	}
	h.base = "http" + hubAt.FindStringSubmatch(h.log.String())[1]
	ready := metricsAt.FindStringSubmatch(h.log.String())[1] + "/readyz"
	eventually(tb, "the hub is ready", func() bool {
		status, _, err := get(tb.Context(), ready)
		return err == nil && status == http.StatusOK
	})
	return h
}

// stop asks the hub to end.
func (h *hub) stop(tb testing.TB) {
	tb.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		tb.Error(err)
	}
	kill := time.AfterFunc(patience, func() { _ = h.cmd.Process.Kill() })
	defer kill.Stop()
	if err := h.cmd.Wait(); err != nil {
		tb.Errorf("the hub ended with %v:\n%s", err, h.log)
	}
}

// eventually looks at other processes until ok.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	late := time.After(patience)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-late:
			tb.Fatalf("not after %v: %s", patience, what)
		}
	}
}

func get(ctx context.Context, url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}
