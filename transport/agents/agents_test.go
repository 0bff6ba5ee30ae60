package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport/agents"
	"github.com/aguihub/aguihub/transport/transporttest"
)

func TestCallerGetsTheAgentsBytes(t *testing.T) {
	var got []byte
	odd := `{ "type":"CUSTOM", "name":"x","value":1.0 ,"later":"\ud83d"}`
	r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
		a, raw := askedOf(q)
		got = raw
		say(w, a.started(), transporttest.TextStart, transporttest.Text("one"), transporttest.Text("two"), odd, transporttest.TextEnd, a.finished())
	}))
	body := input("t1", "r1")
	_, events, _ := r.call(t, "a", body)
	want := []string{
		transporttest.Started("r1", "t1"), transporttest.TextStart, transporttest.Text("one"), transporttest.Text("two"), odd,
		transporttest.TextEnd, transporttest.Finished("r1", "t1"),
	}
	if !slices.Equal(events, want) {
		t.Fatalf("got %q", events)
	}
	if string(got) != body {
		t.Fatalf("the agent was asked %s", got)
	}
	entries := r.log(t, "r1")
	if len(entries) != len(want) || string(entries[0].Input) != body {
		t.Fatalf("%d entries, input %s", len(entries), entries[0].Input)
	}
	runs, err := r.Registry.Thread(t.Context(), "t1", 10)
	must(t, err)
	if len(runs) != 1 || runs[0].Run != "r1" {
		t.Fatalf("the thread has %v", runs)
	}
	_, _, code := r.call(t, "a", body)
	if code != "run_exists" {
		t.Fatalf("the same run again: %s", code)
	}
}

func TestARunAlwaysEnds(t *testing.T) {
	started := func(w http.ResponseWriter, q *http.Request) asked {
		a, _ := askedOf(q)
		say(w, a.started(), transporttest.TextStart, transporttest.Text("x"))
		return a
	}
	hang := func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // net/http sees a client leave only behind its body
		<-q.Context().Done()
	}
	const brief, later = 40 * time.Millisecond, 3 * time.Second // later than what an agent says before, however slow this machine
	for name, c := range map[string]struct {
		limits bridge.Limits
		handle http.HandlerFunc
		code   string
		opened bool // the agent had begun
	}{
		"an error status": {code: "agent_status", handle: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "secret stack trace", http.StatusInternalServerError)
		}},
		"a redirect elsewhere": {code: "agent_status", handle: func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "http://localhost:1/x", http.StatusTemporaryRedirect)
		}},
		"nothing":            {code: "agent_empty", handle: func(http.ResponseWriter, *http.Request) {}},
		"no content":         {code: "agent_empty", handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		"a page":             {code: "agent_invalid", handle: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hello</html>")) }},
		"garbage in frames":  {code: "agent_invalid", handle: func(w http.ResponseWriter, _ *http.Request) { say(w, "{", "[]", `{"type":1}`) }},
		"no start":           {code: "agent_invalid", handle: func(w http.ResponseWriter, _ *http.Request) { say(w, transporttest.TextStart, transporttest.TextEnd) }},
		"no end":             {code: "agent_cut", opened: true, handle: func(w http.ResponseWriter, q *http.Request) { started(w, q) }},
		"broken off":         {code: "agent_cut", opened: true, handle: func(w http.ResponseWriter, q *http.Request) { started(w, q); panic(http.ErrAbortHandler) }},
		"broken off at once": {code: "agent_unreachable", handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"a malformed end":    {code: "invalid_end", opened: true, handle: func(w http.ResponseWriter, q *http.Request) { started(w, q); say(w, `{"type":"RUN_ERROR"}`) }},
		"no answer":          {code: "agent_timeout", limits: bridge.Limits{FirstByte: brief}, handle: hang},
		"silence":            {code: "agent_timeout", opened: true, limits: bridge.Limits{Silence: later}, handle: func(w http.ResponseWriter, q *http.Request) { started(w, q); hang(w, q) }},
		"too long":           {code: "agent_timeout", opened: true, limits: bridge.Limits{Total: later}, handle: func(w http.ResponseWriter, q *http.Request) { started(w, q); hang(w, q) }},
		"its own error": {code: "quota", handle: func(w http.ResponseWriter, _ *http.Request) {
			say(w, `{"type":"RUN_ERROR","message":"no","code":"quota"}`)
		}},
		"protobuf that is none": {code: "agent_invalid", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.ag-ui.event+proto")
			_, _ = w.Write([]byte("\x00\x00\x00\x02\xff\xff\xff\xff\xff\xff"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called := agent(t, "a", c.handle)
			called.Limits = c.limits
			r := newRig(t, bridge.Config{}, called)
			_, events, _ := r.call(t, "a", input("t", "r"))
			if got := codeOf(t, events); got != c.code {
				t.Fatalf("got %s of %q", got, events)
			}
			if strings.Contains(strings.Join(events, ""), "secret") {
				t.Fatal("what the agent said in an error is told")
			}
			types := typesOf(events)
			if types[0] != "RUN_STARTED" || c.opened != slices.Contains(types, "TEXT_MESSAGE_END") {
				t.Fatalf("got %v", types)
			}
			if n := len(slices.DeleteFunc(types, func(s string) bool { return s != "RUN_ERROR" && s != "RUN_FINISHED" })); n != 1 {
				t.Fatalf("%d ends", n)
			}
			status, next, code := r.call(t, "a", input("t", "r2"))
			if status != http.StatusOK || len(next) == 0 {
				t.Fatalf("the thread's next run: %d %s", status, code)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		r := newRig(t, bridge.Config{}, bridge.Agent{Name: "a", URL: gone.URL})
		if _, events, _ := r.call(t, "a", input("t", "r")); codeOf(t, events) != "agent_unreachable" {
			t.Fatalf("got %q", events)
		}
	})
}

func TestInputsThatAreNone(t *testing.T) {
	called := 0
	r := newRig(t, bridge.Config{}, agent(t, "a", func(http.ResponseWriter, *http.Request) { called++ }))
	for name, c := range map[string]struct {
		path, body string
		status     int
		code       string
	}{
		"not JSON":              {"a", `{`, 422, "invalid_input"},
		"an array":              {"a", `[]`, 422, "invalid_input"},
		"no thread":             {"a", `{"runId":"r","messages":[]}`, 422, "invalid_input"},
		"a message without id":  {"a", `{"threadId":"t","runId":"r","messages":[{"role":"user","content":"x"}]}`, 422, "invalid_input"},
		"a run id with a slash": {"a", `{"threadId":"t","runId":"a/b","messages":[]}`, 422, "invalid_input"},
		"a thread with a brace": {"a", `{"threadId":"{t}","runId":"r","messages":[]}`, 422, "invalid_input"},
		"a parent with a slash": {"a", `{"threadId":"t","runId":"r","parentRunId":"a/b","messages":[]}`, 422, "invalid_input"},
		"a bad resume":          {"a", `{"threadId":"t","runId":"r","messages":[],"resume":[{"interruptId":"i","status":"maybe"}]}`, 422, "invalid_input"},
		"a large one":           {"a", `{"threadId":"t","runId":"r","messages":[],"state":"` + strings.Repeat("x", 8<<20) + `"}`, 413, "body_too_large"},
		"another agent":         {"b", input("t", "r"), 404, "unknown_agent"},
		"a query":               {"a?concurrent=maybe", input("t", "r"), 400, "bad_query"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, _, code := r.call(t, c.path, c.body); status != c.status || code != c.code {
				t.Fatalf("got %d %s", status, code)
			}
		})
	}
	resp, err := r.client.Post(r.url+"/v1/agents/a", "text/plain", strings.NewReader("x"))
	must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType || called > 0 {
		t.Fatalf("status %d, %d calls", resp.StatusCode, called)
	}
	resp, err = r.client.Get(r.url + "/v1/agents")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	var list struct{ Agents []map[string]string }
	must(t, json.NewDecoder(resp.Body).Decode(&list))
	if len(list.Agents) != 1 || list.Agents[0]["name"] != "a" || len(list.Agents[0]) != 1 {
		t.Fatalf("%v", list)
	}
}

// gate is an agent that begins each run and ends it when told.
type gate struct {
	mu   sync.Mutex
	runs map[string]chan struct{}
	left chan string // runs whose request was broken off
}

func newGate() *gate { return &gate{runs: map[string]chan struct{}{}, left: make(chan string, 16)} }

func (g *gate) of(run string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs[run] == nil {
		g.runs[run] = make(chan struct{})
	}
	return g.runs[run]
}

func (g *gate) serve(w http.ResponseWriter, q *http.Request) {
	a, _ := askedOf(q)
	say(w, a.started(), transporttest.TextStart, transporttest.Text("begun"))
	select {
	case <-g.of(a.RunID):
		say(w, transporttest.TextEnd, a.finished())
	case <-q.Context().Done():
		g.left <- a.RunID
	}
}

// begin posts and reads until the text has begun. leave is how the caller goes.
func (r *rig) begin(tb testing.TB, path, body string) (leave func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	resp := r.post(ctx, tb, path, body)
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("status %d", resp.StatusCode)
	}
	buf, text := make([]byte, 4096), ""
	for !strings.Contains(text, "begun") {
		n, err := resp.Body.Read(buf)
		must(tb, err)
		text += string(buf[:n])
	}
	return func() { cancel(); _ = resp.Body.Close() }
}

func TestOneRunAThread(t *testing.T) {
	g := newGate()
	r := newRig(t, bridge.Config{}, agent(t, "a", g.serve))
	leave := r.begin(t, "a", input("t", "r1"))
	if status, _, code := r.call(t, "a", input("t", "r2")); status != http.StatusConflict || code != "thread_busy" {
		t.Fatalf("got %d %s", status, code)
	}
	leave() // which doesn't stop the run
	other := r.begin(t, "a", input("other", "r3"))
	defer other()
	if _, _, code := r.call(t, "a", input("t", "r2")); code != "thread_busy" {
		t.Fatalf("after the caller left: %s", code)
	}
	leave = r.begin(t, "a?concurrent=supersede", input("t", "r4"))
	defer leave()
	if run := <-g.left; run != "r1" {
		t.Fatalf("%s was broken off", run)
	}
	entries := r.log(t, "r1")
	last := string(entries[len(entries)-1].Event)
	if !strings.Contains(last, "RUN_FINISHED") || !strings.Contains(last, `"cancelled"`) {
		t.Fatalf("r1 ended with %s", last)
	}
	close(g.of("r4"))
	close(g.of("r3"))
	r.ended(t, "r4")
	r.ended(t, "r3")
	close(g.of("r5"))
	if status, events, code := r.call(t, "a", input("t", "r5")); status != http.StatusOK {
		t.Fatalf("after the end: %d %s %q", status, code, events)
	}
	// A run that somebody else publishes counts too.
	r.Append(t, "x1", transporttest.Started("x1", "tx"))
	must(t, r.Registry.Announce(t.Context(), stream.RunInfo{Run: "x1", Thread: "tx", State: stream.RunStarted}))
	if _, _, code := r.call(t, "a", input("tx", "r6")); code != "thread_busy" {
		t.Fatalf("beside another's run: %s", code)
	}
	r.Append(t, "x1", transporttest.Finished("x1", "tx"), `{"type":"CUSTOM","name":"late","value":1}`)
	close(g.of("r6"))
	if status, _, code := r.call(t, "a", input("tx", "r6")); status != http.StatusOK {
		t.Fatalf("after its end: %d %s", status, code)
	}
}

func TestSupersedeAcrossHubs(t *testing.T) {
	g := newGate()
	r := newRig(t, bridge.Config{SupersedeWait: patience}, agent(t, "a", g.serve))
	leave := r.begin(t, "a", input("t", "r1"))
	defer leave()
	other, err := publish.New(r.Log, r.Registry, publish.Config{})
	must(t, err)
	second, err := bridge.New(t.Context(), other, agents.Threads{Service: r.Service, Name: "second"}, r.claims(), bridge.Config{
		Agents: []bridge.Agent{agent(t, "a", g.serve)}, SupersedeWait: patience,
	}, r.Logger)
	must(t, err)
	defer func() { must(t, second.Close(context.WithoutCancel(t.Context()))) }()
	rq := bridge.Request{Agent: "a", Input: []byte(input("t", "r2"))}
	if _, err := second.Start(t.Context(), rq); err == nil || !strings.Contains(err.Error(), `"r1"`) {
		t.Fatalf("got %v", err)
	}
	rq.Supersede = true
	run, err := second.Start(t.Context(), rq)
	must(t, err)
	if left := <-g.left; left != "r1" {
		t.Fatalf("%s was broken off", left)
	}
	entries := r.log(t, "r1")
	if last := string(entries[len(entries)-1].Event); !strings.Contains(last, `"cancelled"`) {
		t.Fatalf("r1 ended with %s", last)
	}
	close(g.of("r2"))
	<-run.Done()
}

func TestRunsAtOnceAreBounded(t *testing.T) {
	g := newGate()
	r := newRig(t, bridge.Config{MaxRuns: 2}, agent(t, "a", g.serve))
	defer r.begin(t, "a", input("t1", "r1"))()
	defer r.begin(t, "a", input("t2", "r2"))()
	resp := r.post(t.Context(), t, "a", input("t3", "r3"))
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	close(g.of("r1"))
	r.ended(t, "r1")
	if f := r.bridge.Figures(); f.Started != 2 || f.Refused != 1 {
		t.Fatalf("%+v", f)
	}
}

func TestStopEndsRuns(t *testing.T) {
	g := newGate()
	r := newRig(t, bridge.Config{}, agent(t, "a", g.serve))
	defer r.begin(t, "a", input("t", "r"))()
	must(t, r.bridge.Close(t.Context()))
	entries := r.log(t, "r")
	if code := codeOf(t, []string{string(entries[len(entries)-1].Event)}); code != "hub_stopped" {
		t.Fatalf("ended with %s", code)
	}
	if _, _, code := r.call(t, "a", input("t", "r2")); code != "draining" {
		t.Fatalf("after the stop: %s", code)
	}
}

func TestHeadersThatPass(t *testing.T) {
	var got http.Header
	called := agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
		got = q.Header
		a, _ := askedOf(q)
		w.Header().Set("X-Agent-Secret", "s")
		w.Header().Set("Set-Cookie", "a=b")
		say(w, a.started(), a.finished())
	})
	called.Header = http.Header{"Authorization": {"Bearer ours"}}
	called.Pass = []string{"x-user", "traceparent", "authorization"}
	r := newRig(t, bridge.Config{}, called)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/agents/a", strings.NewReader(input("t", "r")))
	must(t, err)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-User": "u", "Traceparent": "00-1", "Authorization": "Bearer theirs", "Cookie": "c=d", "X-Other": "o",
	} {
		req.Header.Set(name, value)
	}
	resp, err := r.client.Do(req)
	must(t, err)
	_ = resp.Body.Close()
	r.ended(t, "r")
	for name, want := range map[string]string{
		"X-User": "u", "Traceparent": "00-1", "Authorization": "Bearer ours", "Cookie": "", "X-Other": "", "Origin": "",
		"Accept": "text/event-stream", "Content-Type": "application/json", "Accept-Encoding": "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: the agent got %q", name, got.Get(name))
		}
	}
	if resp.Header.Get("X-Agent-Secret") != "" || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("the caller got %v", resp.Header)
	}
}

func TestInterruptsSurvive(t *testing.T) {
	var resumed []string
	r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
		a, raw := askedOf(q)
		if strings.Contains(string(raw), "resume") {
			resumed = append(resumed, a.RunID)
			say(w, a.started(), a.finished())
			return
		}
		say(w, a.started(), fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q,"outcome":{"type":"interrupt","interrupts":[{"id":"i1","reason":"ask"},{"id":"i2","reason":"ask"}]}}`,
			a.ThreadID, a.RunID))
	}))
	r.call(t, "a", input("t", "r1"))
	const one, both = `,"resume":[{"interruptId":"i1","status":"resolved"}]`,
		`,"resume":[{"interruptId":"i1","status":"resolved","payload":{"ok":true}},{"interruptId":"i2","status":"cancelled"}]`
	if status, _, code := r.call(t, "a", input("t", "r2", one)); status != http.StatusConflict || code != "interrupts_open" {
		t.Fatalf("got %d %s", status, code)
	}
	if status, _, code := r.call(t, "a", input("t", "r3", both)); status != http.StatusOK {
		t.Fatalf("got %d %s", status, code)
	}
	if status, _, code := r.call(t, "a", input("new", "r4", one)); status != http.StatusOK { // an agent may know more than the hub
		t.Fatalf("got %d %s", status, code)
	}
	if !slices.Equal(resumed, []string{"r3", "r4"}) {
		t.Fatalf("the agent was called for %v", resumed)
	}
}

func TestFaultsCanBeFound(t *testing.T) {
	r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
		a, _ := askedOf(q)
		say(w, a.started(), transporttest.Text("before its start"), a.started(), "garbage", transporttest.TextStart, transporttest.TextEnd, a.finished(), transporttest.TextStart)
	}))
	_, events, _ := r.call(t, "a", input("t", "r"))
	if got := typesOf(events); !slices.Equal(got, []string{"RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"}) {
		t.Fatalf("got %v", got)
	}
	resp, err := r.client.Get(r.url + "/v1/runs/r")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	var run struct{ WithheldByReason map[string]int }
	must(t, json.NewDecoder(resp.Body).Decode(&run))
	if run.WithheldByReason["illegal"] != 1 || run.WithheldByReason["not_json"] != 1 {
		t.Fatalf("%v", run)
	}
}

func TestAgentThatNamesAnotherThread(t *testing.T) {
	r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		say(w, transporttest.Started("its-run", "its-thread"), transporttest.Finished("its-run", "its-thread"))
	}))
	_, events, _ := r.call(t, "a", input("t", "r"))
	if !slices.Equal(events, []string{transporttest.Started("its-run", "its-thread"), transporttest.Finished("its-run", "its-thread")}) {
		t.Fatalf("got %q", events)
	}
}

func TestAgentThatHasProtobufOnly(t *testing.T) {
	s := oracle.GenerateWith(3, oracle.Options{Runs: 1, Plain: true})
	run := s.Runs[0]
	encoded := oracle.StartHTTPAgents(t).Proto(t, run.Lines)
	var accepts []string
	r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
		_, _ = askedOf(q)
		accepts = append(accepts, q.Header.Get("Accept"))
		if q.Header.Get("Accept") != "application/vnd.ag-ui.event+proto" {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.ag-ui.event+proto")
		for _, e := range encoded {
			_, _ = w.Write(e.Frame)
		}
	}))
	_, events, _ := r.call(t, "a", input(run.ThreadID, run.RunID))
	if len(events) != len(encoded) || len(accepts) != 2 {
		t.Fatalf("%d events of %d, asked for %q", len(events), len(encoded), accepts)
	}
	for i, e := range events {
		got, err := oracle.Canonical([]byte(e))
		must(t, err)
		want, err := oracle.Canonical([]byte(encoded[i].Event))
		must(t, err)
		if got != want {
			t.Fatalf("event %d\n got %s\nwant %s", i, got, want)
		}
	}
}
