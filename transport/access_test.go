package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/audit"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/cancel"
	"github.com/aguihub/aguihub/transport/erase"
	"github.com/aguihub/aguihub/transport/ingest"
	"github.com/aguihub/aguihub/transport/lookup"
	"github.com/aguihub/aguihub/transport/sse"
	"github.com/aguihub/aguihub/transport/tickets"
	tt "github.com/aguihub/aguihub/transport/transporttest"
	"github.com/aguihub/aguihub/transport/ws"
)

const secret = "a secret of at least thirty-two bytes"

// ticketBox keeps tickets in memory.
type ticketBox struct {
	mu sync.Mutex
	m  map[string][]byte
}

func (b *ticketBox) PutTicket(_ context.Context, id string, data []byte, _ time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m[id] = data
	return nil
}

func (b *ticketBox) TakeTicket(_ context.Context, id string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data := b.m[id]
	delete(b.m, id)
	return data, nil
}

// guarded is a hub whose callers are asked for a token.
type guarded struct {
	*tt.Hub
	url   string
	audit *bytes.Buffer
}

// attachWait is short: what looks unknown takes as long.
const attachWait = time.Second

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{Hub: tt.New(t, backfill.Config{AttachWait: attachWait}), audit: &bytes.Buffer{}}
	verifier, err := auth.NewVerifier(t.Context(), []auth.Issuer{{Iss: "test", Key: secret}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.Access = transport.NewAccess(transport.AccessConfig{
		Verifier: verifier, Tickets: &ticketBox{m: map[string][]byte{}}, Cookie: "hub", Audit: audit.New(g.audit),
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}, g.Logger)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	publisher, err := publish.New(g.Log, g.Registry, publish.Config{})
	if err != nil {
		t.Fatal(err)
	}
	config := transport.Config{Canceller: g.Service, WriteTimeout: 2 * time.Second}
	sockets, err := ws.New(ctx, g.Service, config, g.Logger)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := sse.New(ctx, g.Service, config, g.Logger)
	if err != nil {
		t.Fatal(err)
	}
	looks, err := lookup.New(g.Service, g.Registry, config, g.Logger)
	if err != nil {
		t.Fatal(err)
	}
	posts, err := ingest.New(ctx, publisher, ingest.Config{Threads: g.Service}, g.Logger)
	if err != nil {
		t.Fatal(err)
	}
	sockets.Mount(g.Mux)
	streams.Mount(g.Mux)
	looks.Mount(g.Mux)
	g.Mux.Handle(ingest.Pattern, posts)
	g.Mux.Handle(cancel.Pattern, cancel.New(g.Service, g.Service, g.Logger))
	g.Mux.Handle(tickets.Pattern, tickets.New(g.Logger))
	erase.New(eraser{g.Service}, g.Logger).Mount(g.Mux)
	web := httptest.NewServer(g.Handler(t))
	g.url = web.URL
	t.Cleanup(func() {
		stop, stopped := context.WithTimeout(context.Background(), time.Minute)
		defer stopped()
		sockets.Close(stop)
		streams.Close(stop)
		if err := posts.Close(stop); err != nil {
			t.Error(err)
		}
		web.Close()
		end()
	})
	return g
}

// eraser deletes nothing: the log in memory keeps nothing beside runs.
type eraser struct{ *backfill.Service }

func (eraser) Delete(context.Context, stream.RunID) error          { return nil }
func (eraser) DeleteThread(context.Context, stream.ThreadID) error { return nil }

// token is a token of kim's with rights.
func token(t *testing.T, r auth.Rights, lives time.Duration) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "test", "sub": "kim", "exp": jwt.NewNumericDate(time.Now().Add(lives)), "aguihub": r,
	}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// brief is how long a token lives whose end is waited for: those who use it are at work well before.
const brief = 6 * time.Second

var allScopes = []auth.Scope{auth.Attach, auth.Publish, auth.Cancel, auth.Read, auth.Input, auth.Admin}

// do sends a request and returns the status and the problem's code.
func (g *guarded) do(t *testing.T, method, path, token, body string) (status int, code, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Code string }
	_ = json.Unmarshal(answer, &p)
	return resp.StatusCode, p.Code, string(answer)
}

// attach reads a WebSocket up to its close and returns the code and what came.
func (g *guarded) attach(t *testing.T, path string, header http.Header, protocols ...string) (closed int, got string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(g.url, "http")+path, &websocket.DialOptions{HTTPHeader: header, Subprotocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp
	if strings.HasPrefix(c.Subprotocol(), transport.BearerProtocol) {
		t.Error("the token was selected as the subprotocol")
	}
	c.SetReadLimit(-1)
	for {
		_, b, err := c.Read(ctx)
		if err != nil {
			return int(websocket.CloseStatus(err)), got
		}
		got += string(b) + "\n"
	}
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// fill publishes runs of two threads, ended: r1 and r2 of t1, x1 of t2.
func (g *guarded) fill(t *testing.T) {
	t.Helper()
	for _, r := range []struct{ run, thread string }{{"r1", "t1"}, {"r2", "t1"}, {"x1", "t2"}} {
		g.Begin(t, r.run, r.thread)
		g.Append(t, r.run, tt.TextStart, tt.Text("secret of "+r.run), tt.TextEnd, tt.Finished(r.run, r.thread))
	}
}

// I10: nobody receives what their token doesn't name, whichever way they ask.
func TestNobodyReceivesWhatTheirTokenDoesntName(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.fill(t)
	thread := token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, time.Hour)
	run := token(t, auth.Rights{Scopes: allScopes, Runs: []string{"r2"}}, time.Hour)
	paths := map[string][2]string{ // method, path
		"sse of a run":      {"GET", "/v1/runs/%s/sse"},
		"a run":             {"GET", "/v1/runs/%s"},
		"a run's events":    {"GET", "/v1/runs/%s/events"},
		"a run's cancel":    {"POST", "/v1/runs/%s/cancel"},
		"sse of a thread":   {"GET", "/v1/threads/%s/sse"},
		"a thread":          {"GET", "/v1/threads/%s"},
		"a thread's past":   {"GET", "/v1/threads/%s/messages"},
		"a thread's delete": {"DELETE", "/v1/threads/%s"},
	}
	for name, p := range paths {
		ofThread := strings.Contains(p[1], "threads")
		t.Run(name, func(t *testing.T) {
			foreign, want := "x1", "unknown_run"
			if ofThread {
				foreign, want = "t2", "not_named"
			}
			status, code, text := g.do(t, p[0], fmt.Sprintf(p[1], foreign), thread, "")
			if code != want || strings.Contains(text, "secret") {
				t.Errorf("of another thread: %d %s", status, text)
			}
			status, code, text = g.do(t, p[0], fmt.Sprintf(p[1], foreign), run, "")
			if status != 403 || code != "not_named" {
				t.Errorf("with a token for one run: %d %s", status, text)
			}
			if status, code, _ = g.do(t, p[0], fmt.Sprintf(p[1], foreign), "", ""); status != 401 || code != "token_missing" {
				t.Errorf("without a token: %d %s", status, code)
			}
			if status, code, _ = g.do(t, p[0], fmt.Sprintf(p[1], foreign), token(t, auth.Rights{Threads: []string{"t1", "t2"}}, time.Hour), ""); status != 403 || code != "scope_missing" {
				t.Errorf("without the scope: %d %s", status, code)
			}
		})
	}
	t.Run("lists are filtered", func(t *testing.T) {
		_, _, text := g.do(t, "GET", "/v1/runs", thread, "")
		if !strings.Contains(text, `"r1"`) || strings.Contains(text, "x1") || strings.Contains(text, "t2") {
			t.Error(text)
		}
		if _, _, text = g.do(t, "GET", "/v1/runs", run, ""); strings.Contains(text, "r1") || !strings.Contains(text, `"r2"`) {
			t.Error(text)
		}
		if _, _, text = g.do(t, "GET", "/v1/runs/r2", run, ""); strings.Contains(text, "r1") {
			t.Errorf("the parent shows: %s", text)
		}
	})
	t.Run("over WebSocket", func(t *testing.T) {
		if code, got := g.attach(t, "/v1/runs/x1/ws", bearer(thread), "ag-ui.hub.v1.json"); code != 4404 || got != "" {
			t.Errorf("a foreign run: %d %s", code, got)
		}
		if code, got := g.attach(t, "/v1/runs/x1/ws", bearer(run), "ag-ui.hub.v1.json"); code != 4403 || got != "" {
			t.Errorf("a run that the token alone rules out: %d %s", code, got)
		}
		if code, got := g.attach(t, "/v1/threads/t2/ws", bearer(thread)); code != 4403 || got != "" {
			t.Errorf("a foreign thread: %d %s", code, got)
		}
		if code, got := g.attach(t, "/v1/threads/t1/ws?head=x1", bearer(thread)); code != 4404 || got != "" {
			t.Errorf("a foreign branch: %d %s", code, got)
		}
		if code, _ := g.attach(t, "/v1/runs/r1/ws", nil); code != 4401 {
			t.Errorf("without a token: %d", code)
		}
	})
}

func TestWhatIsForeignTakesAsLongAsWhatIsUnknown(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.fill(t)
	header := bearer(token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, time.Hour))
	for _, path := range []string{"/v1/runs/x1/ws", "/v1/runs/nobody/ws", "/v1/threads/t1/ws?head=x1", "/v1/threads/t1/ws?head=nobody"} {
		start := time.Now()
		if code, got := g.attach(t, path, header); code != 4404 || got != "" || time.Since(start) < attachWait {
			t.Errorf("%s: %d after %s: %s", path, code, time.Since(start), got)
		}
	}
}

func TestARunIsRestatedAloneWithoutItsThreadsRight(t *testing.T) {
	g := newGuarded(t)
	g.fill(t)
	for _, c := range []struct {
		rights auth.Rights
		past   bool
	}{
		{auth.Rights{Scopes: allScopes, Runs: []string{"r2"}}, false},
		{auth.Rights{Scopes: allScopes, Runs: []string{"r2"}, Threads: []string{"t1"}}, true},
		{auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, true},
	} {
		code, got := g.attach(t, "/v1/runs/r2/ws", bearer(token(t, c.rights, time.Hour)))
		if code != 1000 || !strings.Contains(got, "secret of r2") || strings.Contains(got, "secret of r1") != c.past {
			t.Errorf("%+v: %d\n%s", c.rights, code, got)
		}
	}
}

func TestAPublisherMustNameRunAndThread(t *testing.T) {
	g := newGuarded(t)
	g.fill(t)
	rights := auth.Rights{Scopes: allScopes, RunPrefixes: []string{""}, Threads: []string{"t1"}}
	text := token(t, rights, time.Hour)
	for name, c := range map[string]struct {
		run, body, token string
		status           int
		code             string
	}{
		"a new run of the thread":  {"n1", tt.Started("n1", "t1"), text, 200, ""},
		"a new run of another":     {"n2", tt.Started("n2", "t2"), text, 403, "thread_not_named"},
		"a run that is in another": {"x1", tt.TextStart, text, 403, "thread_not_named"},
		"a run that isn't named":   {"n3", tt.Started("n3", "t1"), token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, time.Hour), 403, "not_named"},
		"without the scope":        {"n4", tt.Started("n4", "t1"), token(t, auth.Rights{Scopes: []auth.Scope{auth.Attach}, RunPrefixes: []string{""}, Threads: []string{"t1"}}, time.Hour), 403, "scope_missing"},
		"nothing":                  {"n5", tt.Started("n5", "t1"), "", 401, "token_missing"},
		"a run that fails before it begins, without any thread": {"n7", `{"type":"RUN_ERROR","message":"m"}`, token(t, auth.Rights{Scopes: allScopes, RunPrefixes: []string{""}}, time.Hour), 403, "thread_not_named"},
		"a run that fails before it begins":                     {"n8", `{"type":"RUN_ERROR","message":"m"}`, text, 200, ""},
		"a parent in another thread":                            {"n6", `[{"type":"RUN_STARTED","threadId":"t1","runId":"n6","parentRunId":"x1"},` + tt.Finished("n6", "t1") + `]`, text, 200, ""},
	} {
		status, code, answer := g.do(t, "POST", "/v1/runs/"+c.run+"/events", c.token, c.body)
		if status != c.status || code != c.code {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	if _, _, answer := g.do(t, "GET", "/v1/runs/n6", text, ""); strings.Contains(answer, "x1") {
		t.Errorf("a parent outside the thread was followed: %s", answer)
	}
	if code, got := g.attach(t, "/v1/runs/n6/ws", bearer(text), "ag-ui.hub.v1.json"); code != 1000 || strings.Contains(got, "secret of x1") {
		t.Errorf("%d %s", code, got)
	}
}

// A token that ends while a body is being read ends the reading: what had come is in the log, and the answer says how much.
func TestATokenThatExpiresEndsABody(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	body, w := io.Pipe()
	defer func() { _ = w.Close() }()
	go func() { _, _ = io.WriteString(w, "data: "+tt.Started("n1", "t1")+"\n\n") }() // ends with the pipe
	rights := auth.Rights{Scopes: allScopes, Runs: []string{"n1"}, Threads: []string{"t1"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/runs/n1/events", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token(t, rights, brief))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(text), `"token_expired"`) || !strings.Contains(string(text), `"accepted":1`) {
		t.Errorf("%s: %s", resp.Status, text)
	}
	again := token(t, rights, time.Hour)
	if status, _, text := g.do(t, "POST", "/v1/runs/n1/events", again, tt.Finished("n1", "t1")); status != http.StatusOK {
		t.Errorf("with a newer token: %d %s", status, text)
	}
}

func TestWaysToShowAToken(t *testing.T) {
	g := newGuarded(t)
	g.fill(t)
	text := token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, time.Hour)
	for name, c := range map[string]struct {
		header    http.Header
		protocols []string
		want      int
	}{
		"the header":                  {bearer(text), nil, 1000},
		"a subprotocol":               {nil, []string{"ag-ui.v1.json", transport.BearerProtocol + text}, 1000},
		"a subprotocol alone":         {nil, []string{transport.BearerProtocol + text}, 1000},
		"a cookie":                    {http.Header{"Cookie": {"hub=" + text}}, nil, 1000},
		"another cookie":              {http.Header{"Cookie": {"other=" + text}}, nil, 4401},
		"a header that isn't a token": {http.Header{"Authorization": {"Basic " + text}, "Cookie": {"hub=" + text}}, nil, 4401},
		"two headers":                 {http.Header{"Authorization": {"Bearer " + text, "Bearer " + text}}, nil, 4401},
	} {
		if code, got := g.attach(t, "/v1/runs/r1/ws", c.header, c.protocols...); code != c.want {
			t.Errorf("%s: %d %s", name, code, got)
		}
	}
}

func TestATicketIsGoodOnceAndForOneThing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.fill(t)
	text := token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, time.Hour)
	issue := func(body string) string {
		t.Helper()
		status, _, answer := g.do(t, "POST", "/v1/tickets", text, body)
		var out struct{ Ticket string }
		if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 201 || out.Ticket == "" {
			t.Fatalf("%d %s", status, answer)
		}
		return out.Ticket
	}
	ticket := issue(`{"run":"r1"}`)
	if code, got := g.attach(t, "/v1/runs/r1/ws?ticket="+ticket, nil); code != 1000 {
		t.Fatalf("%d %s", code, got)
	}
	if code, _ := g.attach(t, "/v1/runs/r1/ws?ticket="+ticket, nil); code != 4401 {
		t.Errorf("used twice: %d", code)
	}
	if code, got := g.attach(t, "/v1/runs/r2/ws?ticket="+issue(`{"run":"r1"}`), nil); code != 4403 {
		t.Errorf("for another run: %d %s", code, got)
	}
	if code, got := g.attach(t, "/v1/runs/x1/ws?ticket="+issue(`{"run":"x1"}`), nil); code != 4404 || strings.Contains(got, "secret") {
		t.Errorf("for a run of another thread: %d %s", code, got)
	}
	if status, code, _ := g.do(t, "GET", "/v1/runs?ticket="+issue(`{"thread":"t1"}`), "", ""); status != 403 {
		t.Errorf("for a list: %d %s", status, code)
	}
	if status, code, _ := g.do(t, "POST", "/v1/tickets?ticket="+issue(`{"thread":"t1"}`), "", `{"thread":"t1"}`); status != 403 {
		t.Errorf("for another ticket: %d %s", status, code)
	}
	for body, want := range map[string]string{
		`{"thread":"t2"}`: "not_named", `{}`: "bad_body", `{"run":"a","thread":"b"}`: "bad_body", `[]`: "bad_body", `{"run":".."}`: "bad_run_id",
	} {
		if _, code, answer := g.do(t, "POST", "/v1/tickets", text, body); code != want {
			t.Errorf("%s: %s", body, answer)
		}
	}
}

// An open socket is told ahead that its token ends, goes on with a newer one, and is closed without.
func TestATokenThatEndsOnAnOpenSocket(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.Begin(t, "r1", "t1")
	rights := auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}
	lives := 12 * time.Second // a third is left when that is said
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(g.url, "http")+"/v1/threads/t1/ws", &websocket.DialOptions{
		HTTPHeader: bearer(token(t, rights, lives)), Subprotocols: []string{"ag-ui.hub.v1.json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	await := func(text string) string {
		t.Helper()
		for {
			_, b, err := c.Read(ctx)
			if err != nil {
				return fmt.Sprint(websocket.CloseStatus(err))
			}
			if strings.Contains(string(b), text) {
				return string(b)
			}
		}
	}
	send := func(token string) {
		t.Helper()
		if err := c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"control":"token","token":%q}`, token)); err != nil {
			t.Fatal(err)
		}
	}
	if got := await("expiring"); !strings.Contains(got, `"atMs":`) {
		t.Fatal(got)
	}
	send("rubbish")
	if got := await("error"); !strings.Contains(got, "token_bad") {
		t.Error(got)
	}
	send(token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t2"}}, time.Hour))
	if got := await("error"); !strings.Contains(got, "not_named") {
		t.Error(got)
	}
	send(token(t, rights, lives))
	if got := await("expiring"); !strings.Contains(got, `"atMs":`) {
		t.Fatalf("after the renewal: %s", got)
	}
	if got := await("nothing more"); !strings.Contains(got, "4401") {
		t.Errorf("at the end: %s", got)
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.Begin(t, "r1", "t1")
	start := time.Now()
	status, _, text := g.do(t, "GET", "/v1/threads/t1/sse", token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}}, brief), "")
	if status != 200 || !strings.Contains(text, "RUN_STARTED") || time.Since(start) > 30*time.Second {
		t.Errorf("%d after %s: %s", status, time.Since(start), text)
	}
}

func TestTheAuditLogSaysWhoDidWhat(t *testing.T) {
	g := newGuarded(t)
	g.fill(t)
	text := token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t1"}, Runs: []string{"n1"}}, time.Hour)
	g.do(t, "GET", "/v1/runs/r1", text, "")
	g.do(t, "GET", "/v1/runs/x1", text, "")
	g.do(t, "GET", "/v1/threads/t2", text, "")
	g.do(t, "GET", "/v1/threads/t2", "", "")
	g.do(t, "POST", "/v1/runs/n1/events", text, tt.Started("n1", "t1"))
	g.do(t, "POST", "/v1/runs/n1/cancel", text, `{"reason":"the payload"}`)
	g.do(t, "DELETE", "/v1/threads/t1", text, "")
	var got []string
	for line := range strings.Lines(g.audit.String()) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Time == "" || r.Address != "127.0.0.1" {
			t.Errorf("%s: %v", line, err)
		}
		got = append(got, strings.Join([]string{r.Action, r.Outcome, r.Code, r.Subject, r.Run + r.Thread}, " "))
	}
	want := []string{
		"read allow  kim r1", "read allow  kim x1", "read deny other_thread kim x1", "read deny not_named kim t2", "read deny token_missing  t2",
		"publish allow  kim n1", "cancel allow  kim n1", "admin allow  kim t1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if all := g.audit.String(); strings.Contains(all, "payload") || strings.Contains(all, text[:20]) {
		t.Error("the log holds a payload or a token")
	}
}

func TestARequestThatCameAroundTheAccessMayDoNothing(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	if c, err := transport.Allow(r, transport.Ask{Scope: auth.Read}); c != nil || err == nil {
		t.Errorf("%v, %v", c, err)
	}
}

func TestTheAddressIsTheLastOneThatNoTrustedProxyHas(t *testing.T) {
	a := transport.NewAccess(transport.AccessConfig{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, zap.NewNop())
	for _, c := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:5", "", "192.0.2.1"},
		{"192.0.2.1:5", "198.51.100.9", "192.0.2.1"},
		{"10.0.0.1:5", "198.51.100.9", "198.51.100.9"},
		{"10.0.0.1:5", "203.0.113.7, 198.51.100.9, 10.9.9.9", "198.51.100.9"},
		{"10.0.0.1:5", "rubbish", "10.0.0.1"},
		{"10.0.0.1:5", "198.51.100.9, rubbish", "10.0.0.1"},
		{"[::ffff:10.0.0.1]:5", "2001:db8::1", "2001:db8::1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		var got string
		a.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = transport.CallerOf(r.Context()).Address })).ServeHTTP(httptest.NewRecorder(), r)
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
