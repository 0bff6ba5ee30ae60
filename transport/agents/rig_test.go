package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/agents"
	"github.com/aguihub/aguihub/transport/lookup"
	"github.com/aguihub/aguihub/transport/sse"
	"github.com/aguihub/aguihub/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(oracle.Keep(m)) }

// patience is how long anything may take that is waited for. It only matters to failing tests.
const patience = 2 * time.Minute

// rig is a hub in memory that calls agents.
type rig struct {
	*transporttest.Hub
	bridge *bridge.Bridge
	url    string
	client *http.Client
}

func newRig(tb testing.TB, cfg bridge.Config, called ...bridge.Agent) *rig {
	tb.Helper()
	r := &rig{Hub: transporttest.New(tb, backfill.Config{})}
	if testing.Verbose() {
		r.Logger = zaptest.NewLogger(tb, zaptest.Level(zap.WarnLevel))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	publisher, err := publish.New(r.Log, r.Registry, publish.Config{})
	must(tb, err)
	cfg.Agents = called
	r.bridge, err = bridge.New(ctx, publisher, agents.Threads{Service: r.Service}, r.claims(), cfg, r.Logger)
	must(tb, err)
	streams, err := sse.New(ctx, r.Service, transport.Config{}, r.Logger)
	must(tb, err)
	streams.Mount(r.Mux)
	look, err := lookup.New(r.Service, r.Registry, transport.Config{}, r.Logger)
	must(tb, err)
	look.Mount(r.Mux)
	server, err := agents.New(r.bridge, streams, transport.Config{}, r.Logger)
	must(tb, err)
	server.Mount(r.Mux)
	listening := httptest.NewServer(r.Handler(tb))
	r.url = listening.URL
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	tb.Cleanup(func() {
		stop, stopped := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
		defer stopped()
		if err := r.bridge.Close(stop); err != nil {
			tb.Errorf("bridge: %v", err)
		}
		streams.Close(stop)
		listening.Close()
		r.client.CloseIdleConnections()
		cancel()
	})
	return r
}

// claims are those of the rig's log.
func (r *rig) claims() agents.Claims {
	return agents.Claims{Service: r.Service, Log: r.Log, TTL: time.Minute}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// input is a RunAgentInput with one message of the user.
func input(thread, run string, more ...string) string {
	return fmt.Sprintf(`{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":%q,"role":"user","content":"hello"}],"tools":[],"context":[],"forwardedProps":{}%s}`,
		thread, run, "u-"+run, strings.Join(more, ""))
}

// post calls an agent through the hub. The body is the caller's to close.
func (r *rig) post(ctx context.Context, tb testing.TB, path, body string) *http.Response {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/agents/"+path, strings.NewReader(body))
	must(tb, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	resp, err := r.client.Do(req)
	must(tb, err)
	return resp
}

// call is post, and reads the answer: the events, or the problem's code.
func (r *rig) call(tb testing.TB, path, body string) (status int, events []string, code string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	resp := r.post(ctx, tb, path, body)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(tb, err)
	if resp.StatusCode != http.StatusOK {
		var problem transport.Problem
		must(tb, json.Unmarshal(text, &problem))
		return resp.StatusCode, nil, problem.Code
	}
	return resp.StatusCode, dataOf(string(text)), ""
}

// dataOf are the events of an event stream.
func dataOf(text string) (events []string) {
	for line := range strings.Lines(text) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events = append(events, strings.TrimSuffix(data, "\n"))
		}
	}
	return events
}

// log is what the log has of a run.
func (r *rig) log(tb testing.TB, run string) []stream.Entry {
	tb.Helper()
	page, err := r.Log.Range(tb.Context(), stream.RunID(run), stream.ID{}, 10_000, 256<<20)
	must(tb, err)
	if page.More {
		tb.Fatal("a longer log than this test reads")
	}
	return page.Entries
}

// ended waits until a run's end is in the log.
func (r *rig) ended(tb testing.TB, run string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := (agents.Threads{Service: r.Service}).Wait(ctx, run); err != nil {
		tb.Fatalf("run %s: %v", run, err)
	}
}

// typesOf are the types of events.
func typesOf(events []string) (types []string) {
	for _, e := range events {
		var event agui.Event
		if event.Parse([]byte(e)) != nil {
			types = append(types, "?")
			continue
		}
		types = append(types, event.TypeName())
	}
	return types
}

// codeOf is the code of the last event, a RUN_ERROR.
func codeOf(tb testing.TB, events []string) string {
	tb.Helper()
	if len(events) == 0 {
		tb.Fatal("no events")
	}
	var e struct{ Type, Code string }
	must(tb, json.Unmarshal([]byte(events[len(events)-1]), &e))
	if e.Type != "RUN_ERROR" {
		return e.Type
	}
	return e.Code
}

// agent starts an HTTP server that is called as the agent of that name.
func agent(tb testing.TB, name string, handle http.HandlerFunc) bridge.Agent {
	tb.Helper()
	server := httptest.NewServer(handle)
	tb.Cleanup(server.Close)
	return bridge.Agent{Name: name, URL: server.URL + "/run"}
}

// say writes events as an agent does.
func say(w http.ResponseWriter, events ...string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for _, e := range events {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
	}
	w.(http.Flusher).Flush()
}

// asked is what an agent was asked for.
type asked struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
}

func askedOf(r *http.Request) (a asked, raw []byte) {
	raw, _ = io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &a)
	return a, raw
}

func (a asked) started() string  { return transporttest.Started(a.RunID, a.ThreadID) }
func (a asked) finished() string { return transporttest.Finished(a.RunID, a.ThreadID) }
