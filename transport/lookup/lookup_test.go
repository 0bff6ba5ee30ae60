package lookup

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*tt.Hub
	handler http.Handler
	server  *Server
}

func start(t *testing.T) *fixture {
	t.Helper()
	h := tt.New(t, backfill.Config{})
	s, err := New(h.Service, h.Registry, transport.Config{}, h.Logger)
	if err != nil {
		t.Fatal(err)
	}
	s.Mount(h.Mux)
	return &fixture{Hub: h, handler: h.Handler(t), server: s}
}

func (f *fixture) do(t *testing.T, method, path string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, http.NoBody))
	return w.Result()
}

// get reads a JSON answer into v.
func (f *fixture) get(t *testing.T, path string, v any) {
	t.Helper()
	resp := f.do(t, http.MethodGet, path)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
}

func (f *fixture) lines(t *testing.T, path string) []string {
	t.Helper()
	resp := f.do(t, http.MethodGet, path)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/jsonl; charset=utf-8" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if len(body) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
}

// listed is a page of runs.
type listed struct {
	Thread string
	Runs   []struct {
		Run, Thread, Parent, State string
		Entries                    int
	}
	Cursor *string
}

func (l *listed) names() (out []string) {
	for _, r := range l.Runs {
		out = append(out, r.Run)
	}
	return out
}

// pages follows the cursors of a list.
func (f *fixture) pages(t *testing.T, path string) (names []string, pages int) {
	t.Helper()
	for next := path; ; {
		var l listed
		f.get(t, next, &l)
		names = append(names, l.names()...)
		if pages++; l.Cursor == nil {
			return names, pages
		}
		next = path + "&cursor=" + url.QueryEscape(*l.Cursor)
	}
}

func TestRuns(t *testing.T) {
	t.Run("without a run the list is empty", func(t *testing.T) {
		f := start(t)
		var l listed
		f.get(t, "/v1/runs", &l)
		if l.Runs == nil || len(l.Runs) != 0 || l.Cursor != nil {
			t.Fatalf("%+v", l)
		}
	})
	t.Run("runs come newest first with what became of them", func(t *testing.T) {
		f := start(t)
		f.Begin(t, "a", "t1")
		f.Append(t, "a", tt.Finished("a", "t1"))
		f.Begin(t, "b", "t1")
		f.Append(t, "b", `{"type":"RUN_ERROR","message":"no"}`)
		f.Begin(t, "c", "t2")
		var l listed
		f.get(t, "/v1/runs", &l)
		if got := fmt.Sprint(l.Runs); got != "[{c t2  running 1} {b t1  error 2} {a t1  finished 2}]" {
			t.Fatal(got)
		}
	})
	t.Run("pages hold each run once", func(t *testing.T) {
		f := start(t)
		var want []string
		for i := range 25 {
			name := fmt.Sprintf("r%d", i)
			f.Begin(t, name, "t1")
			if i%2 == 0 {
				f.announce(t, name, stream.RunFinished)
			}
			want = append([]string{name}, want...)
		}
		for _, limit := range []int{1, 7, 25, 500} {
			names, _ := f.pages(t, fmt.Sprintf("/v1/runs?limit=%d", limit))
			if fmt.Sprint(names) != fmt.Sprint(want) {
				t.Fatalf("limit %d: %v", limit, names)
			}
		}
	})
}

func (f *fixture) announce(t *testing.T, run string, state stream.RunState) {
	t.Helper()
	if err := f.Registry.Announce(t.Context(), stream.RunInfo{Run: stream.RunID(run), State: state}); err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	f := start(t)
	f.Begin(t, "a b", "t1")
	bad := f.Append(t, "a b", `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`)
	var d struct {
		Run, Thread, State, History, Cursor string
		Entries                             int
		Withheld                            []struct{ ID, Reason, Detail string }
		WithheldByReason                    map[string]int
	}
	f.get(t, "/v1/runs/a%20b", &d)
	if d.Run != "a b" || d.Thread != "t1" || d.State != "running" || d.History != "full" || d.Cursor != bad || d.Entries != 2 ||
		len(d.Withheld) != 1 || d.Withheld[0].ID != bad || d.Withheld[0].Reason != "illegal" || d.Withheld[0].Detail == "" ||
		d.WithheldByReason["illegal"] != 1 {
		t.Fatalf("%+v", d)
	}
}

func TestEvents(t *testing.T) {
	f := start(t)
	first := f.Begin(t, "r1", "t1")
	second := f.Append(t, "r1", tt.TextStart)
	third := f.Append(t, "r1", `{"type":"CUSTOM"}`)
	end := f.Append(t, "r1", tt.Finished("r1", "t1"))
	late := f.Append(t, "r1", `{"type":"MESSAGES_SNAPSHOT","messages":[]}`)
	all := f.lines(t, "/v1/runs/r1/events")
	t.Run("entries are lines as on the hub's subprotocol, withheld ones with the reason in words", func(t *testing.T) {
		want := []string{
			`{"id":"` + first + `","event":` + tt.Started("r1", "t1") + `}`,
			`{"id":"` + second + `","event":` + tt.TextStart + `}`,
			`{"control":"skipped","id":"` + third + `","reason":"malformed","detail":`,
			`{"event":` + tt.TextEnd + `}`,
			`{"id":"` + end + `","event":` + tt.Finished("r1", "t1") + `}`,
			`{"control":"skipped","id":"` + end + `","reason":"unclosed","detail":`,
			`{"control":"skipped","id":"` + late + `","reason":"after_end","detail":`,
		}
		if len(all) != len(want) {
			t.Fatalf("%q", all)
		}
		for i := range want {
			if !strings.HasPrefix(all[i], want[i]) || !json.Valid([]byte(all[i])) {
				t.Errorf("got %s, want %s", all[i], want[i])
			}
		}
	})
	t.Run("after a cursor comes the rest", func(t *testing.T) {
		for after, n := range map[string]int{"": 0, first: 1, second: 2, third: 3, end: 6, late: 7} {
			if got := f.lines(t, "/v1/runs/r1/events?after="+after); strings.Join(got, "\n") != strings.Join(all[n:], "\n") {
				t.Errorf("after %q: %q", after, got)
			}
		}
	})
	t.Run("a limit counts entries", func(t *testing.T) {
		if got := f.lines(t, "/v1/runs/r1/events?limit=2&after="+first); strings.Join(got, "\n") != strings.Join(all[1:3], "\n") {
			t.Fatalf("%q", got)
		}
	})
	t.Run("a long run comes whole", func(t *testing.T) {
		f.Begin(t, "long", "t1")
		f.Append(t, "long", tt.TextStart)
		for range 30 {
			events := make([]string, 100)
			for i := range events {
				events[i] = tt.Text("0123456789")
			}
			f.Append(t, "long", events...)
		}
		if got := f.lines(t, "/v1/runs/long/events"); len(got) != 3002 {
			t.Fatal(len(got))
		}
	})
}

func TestThread(t *testing.T) {
	t.Run("runs come newest first, in pages that hold each once", func(t *testing.T) {
		f := start(t)
		var want []string
		for _, name := range []string{"a", "b c", "ü", "d+e", "f%g"} {
			f.Begin(t, name, "t 1")
			f.Append(t, name, tt.Finished(name, "t 1"))
			want = append([]string{name}, want...)
		}
		f.Begin(t, "other", "t2")
		for limit, pages := range map[int]int{1: 5, 2: 3, 5: 1, 500: 1} {
			names, n := f.pages(t, fmt.Sprintf("/v1/threads/t%%201?limit=%d", limit))
			if fmt.Sprint(names) != fmt.Sprint(want) || n != pages {
				t.Fatalf("limit %d: %v on %d pages", limit, names, n)
			}
		}
		var l listed
		f.get(t, "/v1/threads/t%201", &l)
		if l.Thread != "t 1" {
			t.Fatal(l.Thread)
		}
	})
	t.Run("runs of one start are listed once, and are no parents of each other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // the clock stands still
			f := start(t)
			for _, name := range []string{"a", "b", "c"} {
				f.Append(t, name, tt.Started(name, "t1"), tt.Finished(name, "t1"))
				info := stream.RunInfo{Run: stream.RunID(name), Thread: "t1", State: stream.RunStarted}
				if err := f.Registry.Announce(t.Context(), info); err != nil {
					t.Fatal(err)
				}
				var d struct{ State, Parent string }
				f.get(t, "/v1/runs/"+name, &d)
				if d.State != "finished" || d.Parent != "" {
					t.Fatalf("%+v", d)
				}
			}
			if names, _ := f.pages(t, "/v1/threads/t1?limit=1"); fmt.Sprint(names) != "[c b a]" {
				t.Fatal(names)
			}
		})
	})
	t.Run("messages tell what the thread has come to", func(t *testing.T) {
		f := start(t)
		f.Begin(t, "a", "t1")
		f.Append(t, "a", tt.TextStart, tt.Text("hi"), tt.TextEnd, tt.Finished("a", "t1"))
		at := f.Begin(t, "b", "t1")
		var c struct {
			Messages  []struct{ ID, Role, Content string }
			State     any
			Cursor    string
			ActiveRun *string
		}
		f.get(t, "/v1/threads/t1/messages", &c)
		if got := fmt.Sprint(c.Messages); got != "[{u-a user hello} {m assistant hi} {u-b user hello}]" {
			t.Fatal(got)
		}
		if c.ActiveRun == nil || *c.ActiveRun != "b" || !strings.HasPrefix(c.Cursor, at+".") {
			t.Fatalf("%+v", c)
		}
	})
}

func TestProblems(t *testing.T) {
	f := start(t)
	cursor := f.Begin(t, "r1", "t1")
	f.Append(t, "r1", tt.TextStart)
	f.Log.SetWrongType("wrong")
	other := cursor[:len(cursor)-8] + "ffffffff"
	for _, c := range []struct {
		path   string
		status int
		code   string
	}{
		{"/v1/runs/none", 404, "unknown_run"},
		{"/v1/runs/none/events", 404, "unknown_run"},
		{"/v1/runs/wrong", 409, "wrong_type"},
		{"/v1/runs/wrong/events", 409, "wrong_type"},
		{"/v1/threads/none", 404, "unknown_thread"},
		{"/v1/threads/none/messages", 404, "unknown_thread"},
		{"/v1/runs/%7B", 400, "bad_run_id"},
		{"/v1/runs/%7B/events", 400, "bad_run_id"},
		{"/v1/threads/a%2Fb", 400, "bad_thread_id"},
		{"/v1/threads/a%2Fb/messages", 400, "bad_thread_id"},
		{"/v1/runs?limit=0", 400, "bad_query"},
		{"/v1/runs?limit=501", 400, "bad_query"},
		{"/v1/runs?limit=ten", 400, "bad_query"},
		{"/v1/runs?cursor=x", 400, "bad_cursor"},
		{"/v1/threads/t1?limit=-1", 400, "bad_query"},
		{"/v1/threads/t1?cursor=x", 400, "bad_cursor"},
		{"/v1/threads/t1?cursor=1.%2B", 400, "bad_cursor"},
		{"/v1/threads/t1?cursor=x.YQ", 400, "bad_cursor"},
		{"/v1/threads/t1?cursor=1.Lg", 400, "bad_cursor"}, // "."
		{"/v1/runs/r1/events?after=x", 400, "bad_cursor"},
		{"/v1/runs/r1/events?limit=1000001", 400, "bad_query"},
		{"/v1/runs/r1/events?after=" + other, 410, "cursor_gone"},
		{"/v1/runs/r1/events?after=1-0.00000000", 410, "cursor_gone"},
		{"/v1/runs/r1/events?after=" + cursor + ".00000000", 410, "cursor_gone"}, // at an entry, but a thread gave it for another run
		{"/v1/runs/r1/events?after=" + cursor + ";x", 400, "bad_query"},
		{"/v1/runs?limit=5;", 400, "bad_query"},
		{"/v1/runs/r1/events?after=99999999999999-0.00000000", 410, "cursor_gone"},
		{"/v1/runs/r1/nothing", 404, "unknown_path"},
		{"/v1", 404, "unknown_path"},
	} {
		t.Run(c.path+" is "+c.code, func(t *testing.T) {
			tt.CheckProblem(t, f.do(t, http.MethodGet, c.path), c.status, c.code)
		})
	}
	t.Run("Redis away is 503 with Retry-After", func(t *testing.T) {
		f := start(t)
		f.Log.SetFault(stream.ErrUnavailable)
		for _, path := range []string{"/v1/runs", "/v1/runs/r1", "/v1/runs/r1/events", "/v1/threads/t1", "/v1/threads/t1/messages"} {
			resp := f.do(t, http.MethodGet, path)
			tt.CheckProblem(t, resp, 503, "redis_unavailable")
			if resp.Header.Get("Retry-After") == "" {
				t.Error(path)
			}
		}
	})
	t.Run("other methods are 405, and HEAD is answered", func(t *testing.T) {
		for _, path := range []string{"/v1/runs", "/v1/runs/r1", "/v1/runs/r1/events", "/v1/threads/t1", "/v1/threads/t1/messages"} {
			resp := f.do(t, http.MethodPut, path)
			tt.CheckProblem(t, resp, 405, "method_not_allowed")
			if allow := resp.Header.Get("Allow"); allow != "GET, HEAD" {
				t.Errorf("%s: Allow %s", path, allow)
			}
			if resp := f.do(t, http.MethodHead, path); resp.StatusCode != http.StatusOK {
				t.Errorf("HEAD %s: %d", path, resp.StatusCode)
			}
		}
	})
}
