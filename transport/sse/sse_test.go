package sse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a hub that listens in memory.
type fixture struct {
	*tt.Hub
	server *Server
	client *http.Client
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
}

func start(t *testing.T, service backfill.Config, config transport.Config) *fixture {
	t.Helper()
	h := tt.New(t, service)
	server, err := New(context.WithoutCancel(t.Context()), h.Service, config, h.Logger)
	if err != nil {
		t.Fatal(err)
	}
	server.Mount(h.Mux)
	n := tt.NewNetwork(64 << 10)
	s := &http.Server{Handler: h.Handler(t), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(n); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	tr := &http.Transport{DialContext: n.Dial}
	t.Cleanup(func() {
		server.Close(context.WithoutCancel(t.Context()))
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return &fixture{Hub: h, server: server, client: &http.Client{Transport: tr}, dial: n.Dial}
}

// answered is an answer that is being read.
type answered struct {
	*http.Response
	t     *testing.T
	lines *bufio.Reader
}

func (f *fixture) do(t *testing.T, method, path, body string, header ...string) *answered {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &answered{Response: resp, t: t, lines: bufio.NewReader(resp.Body)}
}

func (f *fixture) get(t *testing.T, path string, header ...string) *answered {
	t.Helper()
	return f.do(t, http.MethodGet, path, "", header...)
}

func (f *fixture) post(t *testing.T, path, body string) *answered {
	t.Helper()
	return f.do(t, http.MethodPost, path, body, "Content-Type", "application/json")
}

// block reads the next block.
func (a *answered) block() string {
	a.t.Helper()
	var b strings.Builder
	for {
		l, err := a.lines.ReadString('\n')
		if err != nil {
			a.t.Fatalf("%q, %v", b.String()+l, err)
		}
		b.WriteString(l)
		if l == "\n" {
			return b.String()
		}
	}
}

// until reads blocks up to one that contains text.
func (a *answered) until(text string) (blocks []string) {
	a.t.Helper()
	for {
		b := a.block()
		blocks = append(blocks, b)
		if strings.Contains(b, text) {
			return blocks
		}
	}
}

// rest reads up to the end.
func (a *answered) rest() string {
	a.t.Helper()
	b, err := io.ReadAll(a.lines)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(b)
}

func TestStream(t *testing.T) {
	t.Run("a run's stream is the preamble, an id, and live blocks up to the end", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		at := f.Append(t, "r1", tt.TextStart)
		a := f.get(t, "/v1/runs/r1/sse")
		for k, v := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
		} {
			if a.Header.Get(k) != v {
				t.Errorf("%s: %q", k, a.Header.Get(k))
			}
		}
		blocks := a.until("id: ")
		if n := len(blocks); n != 5 || blocks[n-1] != "id: "+at+"\n\n" {
			t.Fatalf("%q", blocks)
		}
		for i, typ := range []string{"RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "TEXT_MESSAGE_START"} {
			if !strings.HasPrefix(blocks[i], `data: {"type":"`+typ+`"`) || strings.Count(blocks[i], "\n") != 2 {
				t.Fatalf("%q", blocks[i])
			}
		}
		c := f.Append(t, "r1", tt.Text("a\n\u2028"))
		if got, want := a.block(), "id: "+c+"\ndata: "+tt.Text("a\n\u2028")+"\n\n"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		end := f.Append(t, "r1", `{"type":"CUSTOM"}`, tt.Finished("r1", "t1"))
		if got, want := a.rest(), "data: "+tt.TextEnd+"\n\nid: "+end+"\ndata: "+tt.Finished("r1", "t1")+"\n\n"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if s := f.server.Figures(); s.Events != 7 || s.Deliveries != 3 || s.Skipped != 2 || s.Broken != 0 || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("a thread's stream opens before there is a run, stays open, and its cursors name the run", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		a := f.get(t, "/v1/threads/t1/sse")
		f.Begin(t, "r1", "t1")
		a.until("id: ")
		c := f.Append(t, "r1", tt.Finished("r1", "t1"))
		if got := a.until("RUN_FINISHED"); !strings.HasPrefix(got[0], "id: "+c+fmt.Sprintf(".%08x\n", stream.HashRun("r1"))) {
			t.Fatalf("%q", got)
		}
		f.Begin(t, "r2", "t1")
		if got := a.until("MESSAGES_SNAPSHOT"); !strings.Contains(got[len(got)-1], `"u-r1"`) || !strings.Contains(got[len(got)-1], `"u-r2"`) {
			t.Fatalf("%q", got)
		}
	})
	t.Run("CR and LF between tokens don't break blocks", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		a := f.get(t, "/v1/runs/r1/sse")
		a.until("id: ")
		f.Append(t, "r1", "{\r\n\"type\":\n\"CUSTOM\",\r\"name\":\"x\",\"value\":1}")
		if got := a.block(); strings.Contains(got, "\r") || strings.Count(got, "\n") != 3 {
			t.Fatalf("%q", got)
		}
	})
	t.Run("a reset is an event on GET and the end on POST", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		a, p := f.get(t, "/v1/runs/r1/sse"), f.post(t, "/v1/runs/r1/sse", `{"messages":[]}`)
		a.until("id: ")
		p.until("id: ")
		f.Append(t, "r1", tt.Started("r1", "t1"))
		if got := a.block(); !strings.HasPrefix(got, "event: reset\ndata: {\"control\":\"reset\",\"reason\":\"restarted\"") {
			t.Fatalf("%q", got)
		}
		a.until("id: ")
		if got := p.rest(); got != "" {
			t.Fatalf("%q", got)
		}
	})
	t.Run("who comes back to a run's end gets 204", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		end := f.Append(t, "r1", tt.Finished("r1", "t1"))
		if a := f.get(t, "/v1/runs/r1/sse", "Last-Event-ID", end); a.StatusCode != http.StatusNoContent || a.rest() != "" {
			t.Fatal(a.StatusCode)
		}
		if a := f.get(t, "/v1/runs/r1/sse?after="+end); a.StatusCode != http.StatusNoContent {
			t.Fatal(a.StatusCode)
		}
		for _, other := range []string{"1-0.00000000", "nonsense", end[:len(end)-8] + "00000000"} {
			if a := f.get(t, "/v1/runs/r1/sse", "Last-Event-ID", other); a.StatusCode != http.StatusOK || !strings.Contains(a.rest(), "RUN_FINISHED") {
				t.Fatal(a.StatusCode, other)
			}
		}
	})
	t.Run("from=start gives the run's own events, each with its cursor", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		first := f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.Finished("r1", "t1"))
		a := f.get(t, "/v1/runs/r1/sse?from=start")
		if got := a.rest(); !strings.HasPrefix(got, "id: "+first+"\ndata: "+tt.Started("r1", "t1")+"\n\n") {
			t.Fatalf("%q", got)
		}
	})
	t.Run("HEAD has the headers and attaches to nothing", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		a := f.do(t, http.MethodHead, "/v1/runs/none/sse", "")
		if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" || f.server.Figures().Accepted != 0 {
			t.Fatal(a.StatusCode, a.Header)
		}
	})
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		a := f.get(t, "/v1/runs/r1/sse")
		a.until("id: ")
		begin := time.Now()
		for i := range 3 {
			if got := a.block(); got != ": \n\n" || time.Since(begin) != time.Duration(i+1)*15*time.Second {
				t.Fatalf("%q after %v", got, time.Since(begin))
			}
		}
		time.Sleep(10 * time.Second)
		f.Append(t, "r1", tt.TextStart)
		a.block()
		begin = time.Now()
		if got := a.block(); got != ": \n\n" || time.Since(begin) != 15*time.Second {
			t.Fatalf("%q after %v", got, time.Since(begin))
		}
	})
}

func TestProblemsBeforeTheFirstByte(t *testing.T) {
	for _, c := range []struct {
		name, path string
		service    backfill.Config
		before     func(t *testing.T, f *fixture)
		status     int
		code       string
	}{
		{name: "an unknown run", path: "/v1/runs/none/sse", status: 404, code: "unknown_run"},
		{name: "a bad run id", path: "/v1/runs/a%2Fb/sse", status: 400, code: "bad_run_id"},
		{name: "a bad thread id", path: "/v1/threads/%00/sse", status: 400, code: "bad_thread_id"},
		{name: "a wrong from", path: "/v1/runs/r1/sse?from=x", status: 400, code: "bad_query"},
		{name: "a catchup", path: "/v1/runs/r1/sse?catchup=auto", status: 400, code: "bad_query"},
		{name: "a head of another thread", path: "/v1/threads/t2/sse?head=r1", status: 404, code: "unknown_run"},
		{
			name: "a conversation over the limit", path: "/v1/runs/r1/sse", service: backfill.Config{MaxConversation: 10},
			status: 413, code: "conversation_too_large",
		},
		{
			name: "Redis away", path: "/v1/threads/t1/sse", status: 503, code: "redis_unavailable",
			before: func(_ *testing.T, f *fixture) { f.Log.SetFault(stream.ErrUnavailable) },
		},
		{
			name: "a key of another type", path: "/v1/runs/other/sse", status: 409, code: "wrong_type",
			before: func(_ *testing.T, f *fixture) { f.Log.SetWrongType("other") },
		},
		{
			name: "a server that is closed", path: "/v1/runs/r1/sse", status: 503, code: "draining",
			before: func(t *testing.T, f *fixture) { t.Helper(); f.server.Close(t.Context()) },
		},
	} {
		t.Run(c.name+" is "+c.code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, c.service, transport.Config{})
				f.Begin(t, "r1", "t1")
				if c.before != nil {
					c.before(t, f)
				}
				tt.CheckProblem(t, f.get(t, c.path).Response, c.status, c.code)
			})
		})
	}
	t.Run("other methods are 405", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		a := f.do(t, http.MethodPut, "/v1/runs/r1/sse", "")
		tt.CheckProblem(t, a.Response, 405, "method_not_allowed")
		if allow := a.Header.Get("Allow"); allow != "GET, HEAD, POST" {
			t.Fatal(allow)
		}
	})
}

func TestPost(t *testing.T) {
	input := func(ids ...string) string {
		var messages []string
		for _, id := range ids {
			messages = append(messages, fmt.Sprintf(`{"id":%q,"role":"user","content":"x"}`, id))
		}
		return `{"threadId":"t1","runId":"other","messages":[` + strings.Join(messages, ",") + `],"tools":[],"context":[]}`
	}
	f := start(t, backfill.Config{MaxEvent: 32 << 20, Hub: hub.Config{QueueBytes: 32 << 20}}, transport.Config{MaxBody: 1000, Silence: time.Hour})
	f.Begin(t, "r1", "t1")
	f.Append(t, "r1", tt.TextStart)
	f.Begin(t, "big", "t2")
	f.Append(t, "big", tt.TextStart, tt.Text(strings.Repeat("x", 8<<20)))
	t.Run("a stock agent's input attaches where the run knows its messages", func(t *testing.T) {
		for _, body := range []string{input("u-r1"), input("u-r1", "m"), input(), `{}`, `{"messages":null}`} {
			a := f.post(t, "/v1/runs/r1/sse", body)
			a.until("id: ")
			_ = a.Body.Close()
		}
	})
	for _, c := range []struct {
		name, path, body, kind, code string
		status                       int
	}{
		{"a message that the run doesn't know", "/v1/runs/r1/sse", input("u-r1", "new"), "application/json", "use_bridge", 409},
		{"a message to a thread that has none", "/v1/threads/empty/sse", input("new"), "application/json", "use_bridge", 409},
		{"a snapshot over 8 MiB", "/v1/runs/big/sse", input(), "application/json; charset=utf-8", "snapshot_too_large", 413},
		{"no JSON", "/v1/runs/r1/sse", "hello", "application/json", "bad_json", 400},
		{"JSON that is no object", "/v1/runs/r1/sse", "null", "application/json", "bad_json", 400},
		{"an empty body", "/v1/runs/r1/sse", "", "application/json", "bad_json", 400},
		{"two objects", "/v1/runs/r1/sse", "{}{}", "application/json", "bad_json", 400},
		{"messages that are none", "/v1/runs/r1/sse", `{"messages":[1]}`, "application/json", "bad_json", 400},
		{"a message without an id", "/v1/runs/r1/sse", `{"messages":[{}]}`, "application/json", "bad_json", 400},
		{"another content type", "/v1/runs/r1/sse", "{}", "text/plain", "unsupported_media_type", 415},
		{"a body over the limit", "/v1/runs/r1/sse", input(strings.Repeat("x", 1000)), "application/json", "body_too_large", 413},
	} {
		t.Run(c.name+" is "+c.code, func(t *testing.T) {
			a := f.do(t, http.MethodPost, c.path, c.body, "Content-Type", c.kind)
			tt.CheckProblem(t, a.Response, c.status, c.code)
		})
	}
	t.Run("GET takes a large snapshot", func(t *testing.T) {
		a := f.get(t, "/v1/runs/big/sse")
		if got := a.until("id: "); len(strings.Join(got, "")) < 8<<20 {
			t.Fatal("cut")
		}
	})
	t.Run("an event over 8 MiB in the tail ends a POST's body before it", func(t *testing.T) {
		a := f.post(t, "/v1/runs/r1/sse", input("u-r1"))
		a.until("id: ")
		f.Append(t, "r1", tt.Text("small"))
		a.until("small")
		f.Append(t, "r1", tt.Text(strings.Repeat("y", 8<<20)))
		if got := a.rest(); got != "" {
			t.Fatalf("%d bytes", len(got))
		}
	})
}

func TestSlowReaders(t *testing.T) {
	config := backfill.Config{Hub: hub.Config{QueueBytes: 64 << 20, RingBytes: 64 << 20}}
	attach := func(t *testing.T, f *fixture) net.Conn {
		t.Helper()
		f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.TextStart)
		for range 30 {
			f.Append(t, "r1", tt.Text(strings.Repeat("x", 10<<10)))
		}
		f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
		c, err := f.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET /v1/runs/r1/sse?from=start HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("one that takes nothing for 10 s is cut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, config, transport.Config{})
			attach(t, f)
			time.Sleep(9 * time.Second)
			synctest.Wait()
			if s := f.server.Figures(); s.Open != 1 {
				t.Fatalf("%+v", s)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s := f.server.Figures(); s.Open != 0 || s.Broken != 1 {
				t.Fatalf("%+v", s)
			}
		})
	})
	t.Run("one that takes a little now and then gets everything", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, config, transport.Config{})
			c := attach(t, f)
			var got strings.Builder
			begin := time.Now()
			for b := make([]byte, 8<<10); ; {
				time.Sleep(2 * time.Second)
				n, err := c.Read(b)
				got.Write(b[:n])
				if err != nil {
					break
				}
			}
			if !strings.Contains(got.String(), "RUN_FINISHED") || !strings.HasSuffix(got.String(), "\r\n0\r\n\r\n") {
				t.Fatalf("cut after %d bytes", got.Len())
			}
			if d := time.Since(begin); d < 30*time.Second {
				t.Fatal(d)
			}
		})
	})
	t.Run("one that leaves ends its session", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		a := f.get(t, "/v1/runs/r1/sse")
		a.until("id: ")
		_ = a.Body.Close()
		for f.server.Figures().Open > 0 || f.Service.Figures().Subscribers > 0 {
			time.Sleep(time.Millisecond)
		}
	})
	t.Run("closing the server ends all", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		run, thread := f.get(t, "/v1/runs/r1/sse"), f.get(t, "/v1/threads/t2/sse")
		run.until("id: ")
		f.server.Close(t.Context())
		if got := run.rest() + thread.rest(); strings.Count(got, "retry: ") != 2 || strings.Count(got, "\n") != 4 {
			t.Fatalf("%q, want when to come back, and nothing else", got)
		}
	})
}

// The rule: a client that hangs up while it waits for a run is no fault of the hub.
func TestLeavingBeforeTheFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		f := start(t, backfill.Config{}, transport.Config{})
		f.server.logger = zap.New(core)
		before := transport.Problems()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/runs/nope/sse", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := f.client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Fatal(resp.Status)
		}
		synctest.Wait()
		after := transport.Problems()
		if after["internal"] != before["internal"] || after["client_left"] != before["client_left"]+1 {
			t.Errorf("problems %v, before %v", after, before)
		}
		if logs.Len() > 0 {
			t.Error(logs.All())
		}
	})
}
