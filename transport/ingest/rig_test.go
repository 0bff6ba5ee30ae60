package ingest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/ingest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	jsonType = "application/json"
	lines    = "application/x-ndjson"
	sse      = "text/event-stream"

	started  = `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`
	open1    = `{"type":"TEXT_MESSAGE_START","messageId":"m1"}`
	content1 = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hi"}`
	close1   = `{"type":"TEXT_MESSAGE_END","messageId":"m1"}`
	runInput = `{"threadId":"t1","runId":"r1","messages":[{"id":"u1","role":"user","content":"Hello"}]}`
)

// patience is how long anything may take that is waited for. It only matters to failing tests.
const patience = 2 * time.Minute

// log is what the tests read back from.
type log interface {
	publish.Log
	Append(ctx context.Context, run stream.RunID, recs ...stream.Record) ([]stream.ID, error)
	NewRegistry(tail *stream.Tail) *stream.Registry
}

// lossy is a log that can lose the answers of appends.
type lossy struct {
	*stream.Memory
	mu   sync.Mutex
	lose error
	keep bool
}

func (l *lossy) AppendFenced(ctx context.Context, run stream.RunID, a stream.FencedAppend, recs ...stream.Record) (stream.Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose == nil {
		return l.Memory.AppendFenced(ctx, run, a, recs...)
	}
	if l.keep {
		_, _ = l.Memory.AppendFenced(ctx, run, a, recs...)
	}
	return stream.Appended{}, &stream.AppendError{Err: l.lose}
}

func (l *lossy) setLoss(err error, keep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.keep = err, keep
}

// rig is a server over a log.
type rig struct {
	log    log
	server *ingest.Server
	url    string
	client *http.Client
}

func newRig(t *testing.T, log log, cfg ingest.Config) *rig {
	t.Helper()
	config := publish.Config{MaxEvent: cfg.MaxEvent}
	if _, ok := log.(*lossy); ok { // there no answer is late that comes at all
		config.WriteTimeout = 500 * time.Millisecond
	}
	publisher, err := publish.New(log, log.NewRegistry(nil), config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ingest.New(t.Context(), publisher, cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(ingest.Pattern, server)
	web := httptest.NewServer(transport.NewAccess(transport.AccessConfig{}, zap.NewNop()).Wrap(mux))
	t.Cleanup(web.Close)
	return &rig{log: log, server: server, url: web.URL, client: web.Client()}
}

func memory(t *testing.T) *lossy {
	t.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &lossy{Memory: log}
}

func inMemory(t *testing.T) *rig {
	t.Helper()
	return newRig(t, memory(t), ingest.Config{})
}

// reply is an answer of either kind.
type reply struct {
	Code          string
	Status        int
	Accepted      int
	Rejected      []rejected
	RejectedTotal int
	Uncertain     int
	Unclosed      string
	LastID        string
	Hint          string

	CancelRequested *struct{ Reason, By string }

	header http.Header
}

type rejected struct {
	Index        int
	Path, Reason string
}

func (r *rig) post(t *testing.T, kind string, body io.Reader, set ...func(*http.Request)) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/runs/r1/events", body)
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for _, f := range set {
		f(req)
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return readReply(t, res)
}

func readReply(t *testing.T, res *http.Response) reply {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	rep := reply{header: res.Header}
	if err := json.Unmarshal(raw, &rep); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	kind := res.Header.Get("Content-Type")
	if rep.Code == "" != (res.StatusCode == http.StatusOK) || rep.Code != "" && (rep.Status != res.StatusCode || kind != "application/problem+json") {
		t.Fatalf("status %d, %s: %s", res.StatusCode, kind, raw)
	}
	rep.Status = res.StatusCode
	return rep
}

// short is a reply in one line: status, code, accepted, what was rejected.
func (r reply) short() string {
	out := []string{fmt.Sprintf("%d %s %d", r.Status, r.Code, r.Accepted)}
	for _, x := range r.Rejected {
		out = append(out, fmt.Sprintf("[%d %s %s]", x.Index, x.Path, x.Reason))
	}
	return strings.Join(out, " ")
}

func (r *rig) entries(t *testing.T, run stream.RunID) []stream.Entry {
	t.Helper()
	page, err := r.log.Range(t.Context(), run, stream.ID{}, 10_000, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

func (r *rig) events(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, en := range r.entries(t, "r1") {
		out = append(out, string(en.Event))
	}
	return out
}

func (r *rig) states(t *testing.T) string {
	t.Helper()
	events, _, err := r.log.NewRegistry(nil).List(t.Context(), stream.ID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(events)
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = string(e.Run) + ":" + string(e.State) + "@" + string(e.Thread)
	}
	return strings.Join(out, " ")
}

func (r *rig) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	if got := r.events(t); !slices.Equal(got, want) {
		t.Fatalf("the log holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func array(events ...string) string { return "[" + strings.Join(events, ",") + "]" }
func nd(events ...string) string    { return strings.Join(events, "\n") + "\n" }
func sent(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

// raw sends a request's text as it is and closes the sending side.
func (r *rig) raw(t *testing.T, text string) reply {
	t.Helper()
	conn := r.dial(t)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return answerOn(t, conn)
}

func (r *rig) dial(t *testing.T) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func answerOn(t *testing.T, conn net.Conn) reply {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return readReply(t, res)
}

const head = "POST /v1/runs/r1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: "

// waitFor waits until the log holds so many entries.
func (r *rig) waitFor(t *testing.T, n int) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(r.entries(t, "r1")) < n {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%d entries, want %d", len(r.entries(t, "r1")), n)
		}
	}
}

// live posts what the returned writer is given, and gives the reply when that is closed.
func (r *rig) live(t *testing.T, kind string, set ...func(*http.Request)) (*io.PipeWriter, <-chan reply) {
	t.Helper()
	body, w := io.Pipe()
	got := make(chan reply, 1)
	go func() {
		defer close(got)
		got <- r.post(t, kind, body, set...)
	}()
	return w, got
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}
