package cancel_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/cancel"
	"github.com/aguihub/aguihub/transport/lookup"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a hub that can be asked to cancel, and asked about runs.
type rig struct {
	*tt.Hub
	url    string
	client *http.Client
}

func start(t *testing.T) *rig {
	t.Helper()
	h := tt.New(t, backfill.Config{})
	looks, err := lookup.New(h.Service, h.Registry, transport.Config{}, h.Logger)
	if err != nil {
		t.Fatal(err)
	}
	looks.Mount(h.Mux)
	h.Mux.Handle(cancel.Pattern, cancel.New(h.Service, h.Service, h.Logger))
	web := httptest.NewServer(h.Handler(t))
	t.Cleanup(web.Close)
	return &rig{Hub: h, url: web.URL, client: web.Client()}
}

func (r *rig) cancel(t *testing.T, run, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/runs/"+run+"/cancel", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// state is what the look-ups say of a run, the one of the run and the list, which are asked one after the other: both where
// they don't say the same.
func (r *rig) state(t *testing.T, run string) (state string, since int64) {
	t.Helper()
	var one struct {
		State string
		Since int64 `json:"stalledSinceMs"`
	}
	r.get(t, "/v1/runs/"+run, &one)
	var list struct {
		Runs []struct{ Run, State string }
	}
	r.get(t, "/v1/runs", &list)
	for _, x := range list.Runs {
		if x.Run == run && x.State != one.State {
			one.State += ", and " + x.State + " in the list"
		}
	}
	return one.State, one.Since
}

func (r *rig) get(t *testing.T, path string, v any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(body, v) != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

func wantState(t *testing.T, r *rig, run, want string) {
	t.Helper()
	got := ""
	defer func() {
		if got != want {
			t.Errorf("%s is %s, not %s", run, got, want)
		}
	}()
	streamtest.Eventually(t, run+" is "+want, func() bool { got, _ = r.state(t, run); return got == want })
}

func TestCancel(t *testing.T) {
	r := start(t)
	r.Begin(t, "r1", "t1")
	r.Begin(t, "r2", "t2")
	r.Append(t, "r2", tt.Finished("r2", "t2"))
	wantState(t, r, "r1", "running")
	resp := r.cancel(t, "r1", `{"reason":"Enough."}`)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusAccepted || string(body) != `{"run":"r1","state":"cancel_requested"}`+"\n" {
		t.Fatal(resp.StatusCode, string(body))
	}
	signals, err := r.Log.Signals(t.Context(), "r1")
	if err != nil || len(signals[0]) != 1 || string(signals[0][0].Control) != `{"type":"cancel","reason":"Enough.","by":"anonymous"}` {
		t.Fatalf("%s, %v", signals, err)
	}
	wantState(t, r, "r1", "cancel_requested")
	if resp := r.cancel(t, "r1", ""); resp.StatusCode != http.StatusAccepted {
		t.Fatal("again:", resp.StatusCode)
	}
	tt.CheckProblem(t, r.cancel(t, "nobody", `{}`), http.StatusNotFound, "unknown_run")
	tt.CheckProblem(t, r.cancel(t, "r2", `{}`), http.StatusConflict, "run_ended")
	tt.CheckProblem(t, r.cancel(t, "a%7Bb", `{}`), http.StatusBadRequest, "bad_run_id")
	for _, bad := range []string{`x`, `[]`, `null`, `{"reason":1}`, `{"reason":"`} {
		tt.CheckProblem(t, r.cancel(t, "r1", bad), http.StatusBadRequest, "bad_body")
	}
	tt.CheckProblem(t, r.cancel(t, "r1", `{"reason":"`+strings.Repeat("x", 1001)+`"}`), http.StatusBadRequest, "bad_reason")
	tt.CheckProblem(t, r.cancel(t, "r1", strings.Repeat(" ", 20_000)), http.StatusRequestEntityTooLarge, "body_too_large")
	r.Append(t, "r1", tt.Finished("r1", "t1"))
	wantState(t, r, "r1", "finished")
	r.Log.SetFault(stream.ErrUnavailable)
	tt.CheckProblem(t, r.cancel(t, "r1", `{}`), http.StatusServiceUnavailable, "redis_unavailable")
	r.Log.SetFault(nil)
}

func TestARunWhoseLeaseLapsedIsStalled(t *testing.T) {
	r := start(t)
	r.Begin(t, "r1", "t1")
	r.Log.SetLease("r1", time.Hour)
	if err := r.Log.NoteLeases(t.Context(), "r1"); err != nil {
		t.Fatal(err)
	}
	wantState(t, r, "r1", "running")
	r.Log.SetLease("r1", -time.Second)
	wantState(t, r, "r1", "stalled")
	if _, since := r.state(t, "r1"); since != 0 {
		t.Error("since when, though nobody has noted it")
	}
	if err := r.Log.NoteLeases(t.Context(), "r1"); err != nil {
		t.Fatal(err)
	}
	if _, since := r.state(t, "r1"); since == 0 {
		t.Error("it isn't said since when")
	}
	r.Log.SetLease("r1", time.Hour)
	wantState(t, r, "r1", "running")
	r.Append(t, "r1", tt.Finished("r1", "t1"))
	wantState(t, r, "r1", "finished")
}
