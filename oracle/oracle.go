// Package oracle puts the official AG-UI clients at the disposal of Go tests: it replays event streams through them, patch by patch and
// prefix by prefix, and generates the streams to replay. It is test support: no code of the product imports it.
//
// The clients run in one Node process, js/server.mjs, that all tests of a binary share. They need node ≥ 20 and, the first time, npm.
package oracle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// stopGrace is how long the worker may take to leave after its input ended; then it is killed.
const stopGrace = 5 * time.Second

// errGone is what a request gets whose worker ended before it answered.
var errGone = errors.New("oracle: the worker has ended")

// Oracle is a running worker. All methods may be called at once, each from the goroutine of the test whose tb it is given; they block until
// the worker, which takes one request at a time, has answered, and end that test on any failure of the worker itself.
type Oracle struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{} // closed when the reader has ended

	writing sync.Mutex // held for the length of one request's bytes
	stdin   io.WriteCloser

	mu      sync.Mutex
	lastID  int64
	waiting map[int64]chan answer
	gone    bool
}

type answer struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// shared is the worker of this test binary: a second Node would cost each test half a second.
var shared struct {
	mu     sync.Mutex
	holds  int
	worker *Oracle
}

// Start gives the worker of the test binary, launched by the first that asks and ended when the last has cleaned up. Use Keep so that it
// lives as long as the binary. A missing Node, or packages that can't be installed, end the test: nothing is skipped.
func Start(tb testing.TB) *Oracle {
	tb.Helper()
	w, err := acquire()
	if err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	tb.Cleanup(release)
	return w
}

// Keep wraps a testing.M so that one worker serves all tests of the binary:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(oracle.Keep(m)) }
//
// The worker is still launched only when a test asks for it, and has ended, with its goroutine, when Run returns.
func Keep(m interface{ Run() int }) interface{ Run() int } { return keeper{m} }

type keeper struct{ m interface{ Run() int } }

func (k keeper) Run() int {
	shared.mu.Lock()
	shared.holds++
	shared.mu.Unlock()
	defer release()
	return k.m.Run()
}

func acquire() (*Oracle, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.worker == nil || shared.worker.ended() {
		w, err := launch("server.mjs")
		if err != nil {
			return nil, err
		}
		shared.worker = w
	}
	shared.holds++
	return shared.worker, nil
}

func release() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.holds--
	if shared.holds > 0 || shared.worker == nil {
		return
	}
	shared.worker.stop()
	shared.worker = nil
}

func launch(script string) (*Oracle, error) {
	root, err := repoRoot()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "oracle", "js")
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("node ≥ 20 runs the official client, and isn't on the PATH: %w", err)
	}
	if err := install(dir); err != nil {
		return nil, err
	}
	o := &Oracle{done: make(chan struct{}), waiting: map[int64]chan answer{}}
	o.cmd = exec.Command(node, script) //nolint:noctx // it ends with its input, which stop closes
	o.cmd.Dir = dir
	o.cmd.Stderr = &o.stderr
	if o.stdin, err = o.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("worker's input: %w", err)
	}
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("worker's output: %w", err)
	}
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	go o.read(stdout)
	return o, nil
}

// read hands each answer to its request, until the worker's output ends.
func (o *Oracle) read(stdout io.Reader) {
	defer close(o.done)
	lines := bufio.NewReaderSize(stdout, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var a answer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil {
			break
		}
		o.mu.Lock()
		ch := o.waiting[a.ID]
		delete(o.waiting, a.ID)
		o.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	o.mu.Lock()
	o.gone = true
	for _, ch := range o.waiting {
		close(ch)
	}
	o.waiting = nil
	o.mu.Unlock()
}

func (o *Oracle) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// stop ends the worker and waits for it and for the reader.
func (o *Oracle) stop() {
	_ = o.stdin.Close()
	t := time.AfterFunc(stopGrace, func() { _ = o.cmd.Process.Kill() })
	<-o.done
	_ = o.cmd.Wait()
	t.Stop()
}

// call sends one request and decodes its answer into result.
func (o *Oracle) call(request map[string]any, result any) error {
	ch := make(chan answer, 1)
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return errGone
	}
	o.lastID++
	request["id"] = o.lastID
	o.waiting[o.lastID] = ch
	o.mu.Unlock()

	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(request); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	o.writing.Lock()
	_, err := o.stdin.Write(line.Bytes())
	o.writing.Unlock()
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	a, ok := <-ch
	switch {
	case !ok:
		return fmt.Errorf("%w: %s", errGone, strings.TrimSpace(o.stderr.String()))
	case a.Error != "":
		return fmt.Errorf("worker: %s", a.Error)
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

func (o *Oracle) must(tb testing.TB, request map[string]any, result any) {
	tb.Helper()
	if err := o.call(request, result); err != nil {
		tb.Fatalf("oracle: %s: %v", request["op"], err)
	}
}
