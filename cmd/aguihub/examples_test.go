package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// examples is where the examples are.
var examples = filepath.Join("..", "..", "examples")

// begin starts an example, which ends with the test at the latest. said has what it prints.
func begin(tb testing.TB, input string, env []string, name string, args ...string) (ended <-chan error, said *lines) {
	tb.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(input)
	said = newLines()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	done, out := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		out <- cmd.Wait()
		said.end()
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if tb.Failed() {
			tb.Logf("%s %v\n%s", name, args, said.all())
		}
	})
	return out, said
}

const runInput = `{"threadId":"t-%[1]s","runId":"%[1]s","state":{},"messages":[{"id":"u-%[1]s","role":"user","content":"Good morning"}],"tools":[],"context":[],"forwardedProps":{}}`

// runState is what the hub knows of a run.
type runState struct {
	State, History string
	Entries        int
	Withheld       []any
}

func (h *hub) look(run string) (s runState) {
	h.tb.Helper()
	_, body, err := get(h.tb.Context(), h.base+"/v1/runs/"+run)
	if err != nil {
		h.tb.Fatal(err)
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		h.tb.Fatalf("%v: %s", err, body)
	}
	return s
}

// messages is a thread's conversation.
func (h *hub) messages(thread string) string {
	h.tb.Helper()
	_, body, err := get(h.tb.Context(), h.base+"/v1/threads/"+thread+"/messages")
	if err != nil {
		h.tb.Fatal(err)
	}
	return body
}

// TestTheBridgeAsTheREADMEHasIt puts the hub in front of the stock agent of the examples.
func TestTheBridgeAsTheREADMEHasIt(t *testing.T) {
	_, said := begin(t, "", []string{"PORT=0", "PAUSE_MS=20"}, "node", filepath.Join(examples, "node", "agent.mjs"))
	said.wait(t, func(s string) bool { return strings.Contains(s, "agent at ") })
	address := strings.Fields(said.all())[2]
	h := startHub(t, "--agent", "hello="+address)
	if _, body, _ := get(t.Context(), h.base+"/v1/agents"); strings.TrimSpace(body) != `{"agents":[{"name":"hello"}]}` {
		t.Fatalf("agents: %s", body)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+"/v1/agents/hello", strings.NewReader(fmt.Sprintf(runInput, "r1")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for body := bufio.NewReader(resp.Body); ; {
		line, err := body.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "TEXT_MESSAGE_CONTENT") {
			break
		}
	}
	leave() // the tab is closed, and another one attaches
	tab := h.attach("--thread", "t-r1")
	tab.stdout.wait(t, func(s string) bool { return strings.Contains(s, `"RUN_FINISHED"`) })
	if s := h.look("r1"); s.State != "finished" || s.History != "full" || len(s.Withheld) > 0 {
		t.Fatalf("%+v", s)
	}
	if all := h.messages("t-r1"); !strings.Contains(all, "Good morning") || !strings.Contains(all, "none of that stops me.") {
		t.Fatalf("messages: %s", all)
	}
}

// python finds an interpreter that has redis-py: Debian's, before one that a person has put before it.
func python(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import redis").Run() == nil {
			return name
		}
	}
	tb.Fatal("no python3 with the package redis: scripts/setup brings Debian's python3-redis")
	return ""
}

// TestThePythonAgent runs the example against a real Redis.
func TestThePythonAgent(t *testing.T) {
	interpreter := python(t)
	redis := streamtest.StartRedis(t)
	h := startHub(t, "--redis", redis.URL())
	client := redis.Client(t)
	script := filepath.Join(examples, "python", "agent.py")

	t.Run("publishes a run with its input and wakes hubs", func(t *testing.T) {
		wake := client.Subscribe(t.Context(), "agui:wake")
		defer func() { _ = wake.Close() }()
		if _, err := wake.Receive(t.Context()); err != nil { // subscribed
			t.Fatal(err)
		}
		ended, _ := begin(t, fmt.Sprintf(runInput, "p1"), nil, interpreter, script, "--redis", redis.URL(), "--pause", "0.01")
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if message, err := wake.ReceiveMessage(t.Context()); err != nil || message.Payload != "p1" {
			t.Fatalf("woken by %v, %v", message, err)
		}
		if s := h.look("p1"); s.State != "finished" || s.History != "full" || len(s.Withheld) > 0 {
			t.Fatalf("%+v", s)
		}
		if all := h.messages("t-p1"); !strings.Contains(all, `You said \"Good morning\".`) {
			t.Fatalf("messages: %s", all)
		}
		if ttl := client.TTL(t.Context(), "{agui:run:p1}:lease").Val(); ttl <= 0 {
			t.Fatalf("lease: %v", ttl)
		}
	})
	t.Run("ends when it is cancelled", func(t *testing.T) {
		ended, said := begin(t, fmt.Sprintf(runInput, "p2"), nil, interpreter, script, "--redis", redis.URL(), "--pause", "60")
		eventually(t, "the run has begun", func() bool { return client.Exists(t.Context(), "agui:run:p2").Val() == 1 })
		resp, err := http.Post(h.base+"/v1/runs/p2/cancel", "application/json", bytes.NewReader([]byte(`{"reason":"Enough."}`)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("status %d", resp.StatusCode)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(said.all(), "cancelled") {
			t.Fatalf("it said %s", said.all())
		}
		if s := h.look("p2"); s.State != "cancelled" || len(s.Withheld) > 0 {
			t.Fatalf("%+v", s)
		}
	})
	t.Run("tells of its own failure", func(t *testing.T) {
		bad := strings.Replace(fmt.Sprintf(runInput, "p3"), `"role":"user"`, `"rule":"user"`, 1)
		ended, _ := begin(t, bad, nil, interpreter, script, "--redis", redis.URL())
		if err := <-ended; err == nil {
			t.Fatal("it exited with 0")
		}
		if s := h.look("p3"); s.State != "error" {
			t.Fatalf("%+v", s)
		}
	})
}

// TestTheTrapsInTheDocs runs aguihub check on what agents get wrong: the docs print what it says.
func TestTheTrapsInTheDocs(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "agents.md"))
	if err != nil {
		t.Fatal(err)
	}
	traps := filepath.Join("testdata", "traps")
	files, err := os.ReadDir(traps)
	if err != nil || len(files) == 0 {
		t.Fatalf("no traps: %v", err)
	}
	for _, f := range files {
		_, said, _ := run(t, "", "check", filepath.Join(traps, f.Name()))
		said = strings.ReplaceAll(said, traps+string(filepath.Separator), "")
		_, at, found := strings.Cut(string(doc), "$ aguihub check "+f.Name()+"\n")
		if !found {
			t.Errorf("the docs lack %s", f.Name())
			continue
		}
		section, _, _ := strings.Cut(at, "```")
		for line := range strings.Lines(said) {
			if !strings.HasPrefix(line, "note: no input") && !strings.Contains(section, line) {
				t.Errorf("%s: the docs lack the line %s", f.Name(), line)
			}
		}
	}
}
