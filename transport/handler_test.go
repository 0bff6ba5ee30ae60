package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/transporttest"
)

func TestUnknownPathsAndMethods(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/runs/{runId}", func(w http.ResponseWriter, r *http.Request) {
		run, err := transport.RunID(r)
		if err != nil {
			transport.WriteProblem(w, zap.NewNop(), err)
			return
		}
		_, _ = fmt.Fprint(w, run)
	})
	h := newGuard(t).Wrap(transport.Routes(mux, zap.NewNop()))
	get := func(method, target string) *http.Response {
		r := httptest.NewRequest(method, "http://localhost"+target, http.NoBody)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	for _, c := range []struct {
		method, path, code string
		status             int
	}{
		{"GET", "/", "unknown_path", 404},
		{"GET", "/v1/runs/", "unknown_path", 404},
		{"GET", "/v1/runs/a/b", "unknown_path", 404},
		{"GET", "/v1//runs/a", "unknown_path", 404},
		{"GET", "/v1/x/../runs/a", "unknown_path", 404},
		{"GET", "/v1/runs/./a", "unknown_path", 404},
		{"POST", "/v1//runs/a", "unknown_path", 404},
		{"POST", "/v1/runs/a", "method_not_allowed", 405},
		{"DELETE", "/v1/runs/a", "method_not_allowed", 405},
		{"OPTIONS", "/v1/runs/a", "method_not_allowed", 405},
		{"GET", "/v1/runs/a%2Fb", "bad_run_id", 400},
		{"GET", "/v1/runs/%2E%2E", "bad_run_id", 400},
		{"GET", "/v1/runs/%2E", "bad_run_id", 400},
		{"GET", "/v1/runs/%00", "bad_run_id", 400},
		{"GET", "/v1/runs/a%5Cb", "bad_run_id", 400},
		{"GET", "/v1/runs/%C3", "bad_run_id", 400},
		{"GET", "/v1/runs/" + strings.Repeat("a", 257), "bad_run_id", 400},
	} {
		t.Run(c.method+" "+c.path[:min(len(c.path), 30)]+" is "+c.code, func(t *testing.T) {
			resp := get(c.method, c.path)
			transporttest.CheckProblem(t, resp, c.status, c.code)
			if c.status == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
				t.Error(resp.Header)
			}
			if resp.Header.Get("Location") != "" {
				t.Error("redirected")
			}
		})
	}
	for path, run := range map[string]string{
		"/v1/runs/a%20b": "a b", "/v1/runs/50%2525": "50%25", "/v1/runs/a+b": "a+b", "/v1/runs/%C3%BC": "ü", "/v1/runs/...": "...",
	} {
		t.Run(path+" is the run "+run, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, http.NoBody)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK || w.Body.String() != run {
				t.Fatal(w.Code, w.Body)
			}
		})
	}
}

func TestErrorsHaveStatusAndCloseCode(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
		close  transport.CloseCode
	}{
		{backfill.ErrUnknownRun, 404, "unknown_run", 4404},
		{backfill.ErrTooLarge, 413, "conversation_too_large", 4413},
		{backfill.ErrGone, 410, "cursor_gone", 4410},
		{hub.ErrLagged, 503, "too_slow", 4408},
		{hub.ErrTooManyWaiting, 429, "too_many_waiting", 4429},
		{hub.ErrLost, 410, "run_gone", 4410},
		{hub.ErrClosed, 503, "draining", 1012},
		{stream.ErrClosed, 503, "draining", 1012},
		{stream.ErrWrongType, 409, "wrong_type", 4404},
		{stream.ErrUnavailable, 503, "redis_unavailable", 1013},
		{stream.ErrFull, 503, "redis_full", 1013},
		{stream.ErrDenied, 503, "redis_denied", 1011},
		{stream.ErrBadRunID, 400, "bad_run_id", 4400},
		{stream.ErrBadThreadID, 400, "bad_thread_id", 4400},
		{stream.ErrBadCursor, 400, "bad_cursor", 4400},
		{context.Canceled, 499, "client_left", 1012},
		{context.DeadlineExceeded, 503, "timeout", 1013},
		{errors.New("anything else"), 500, "internal", 1011},
	} {
		t.Run(c.err.Error()+" is "+c.code, func(t *testing.T) {
			wrapped := fmt.Errorf("a step: %w", c.err)
			e := transport.ErrorFor(wrapped)
			if e.Close != c.close || !errors.Is(e, c.err) || !strings.Contains(e.Error(), "a step") {
				t.Errorf("%+v", e)
			}
			if e.Close.Index() < 0 || len(e.Message) > 123 {
				t.Errorf("%d with %q can't close a WebSocket", e.Close, e.Message)
			}
			core, logs := observer.New(zap.WarnLevel)
			w := httptest.NewRecorder()
			transport.WriteProblem(w, zap.New(core), wrapped)
			resp := w.Result()
			if strings.Contains(w.Body.String(), "a step") {
				t.Error("the cause went to the client")
			}
			transporttest.CheckProblem(t, resp, c.status, c.code)
			if (logs.Len() == 1) != (c.status >= 500) {
				t.Errorf("%d log entries", logs.Len())
			}
			if retry := resp.Header.Get("Retry-After"); (retry != "") != (c.status == 503 || c.status == 429) {
				t.Errorf("Retry-After %q", retry)
			}
		})
	}
}

func TestCloseCodesSayWhetherToReconnect(t *testing.T) {
	want := map[transport.CloseCode]bool{
		1000: false, 1003: false, 1007: false, 1009: false, 1011: true, 1012: true, 1013: true, 4400: false, 4401: true,
		4403: false, 4404: true, 4408: true, 4410: true, 4413: false, 4429: true,
	}
	names := map[string]bool{}
	for i, c := range transport.CloseCodes() {
		if reconnect, ok := want[c]; !ok || reconnect != c.Reconnect() || c.Index() != i {
			t.Errorf("%d: %v", c, c.Reconnect())
		}
		names[c.String()] = true
	}
	if len(names) != len(want) || len(names) != transport.CloseKinds {
		t.Errorf("%d names for %d codes", len(names), len(want))
	}
	if other := transport.CloseCode(4999); other.Index() != -1 || other.String() != "other" || other.Reconnect() {
		t.Error("an unknown code has a meaning")
	}
}

func TestConfig(t *testing.T) {
	t.Run("zero fields get their defaults", func(t *testing.T) {
		c, err := transport.Config{}.WithDefaults()
		if err != nil || c.MaxMessage != 256<<10 || c.WriteTimeout.Seconds() != 10 || c.PingEvery.Seconds() != 25 {
			t.Fatalf("%+v, %v", c, err)
		}
	})
	for name, c := range map[string]transport.Config{
		"a negative time":                {WriteTimeout: -1},
		"a negative limit":               {MaxBody: -1},
		"a pong wait as long as a round": {PingEvery: 5, PongWait: 5},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			if _, err := c.WithDefaults(); err == nil {
				t.Fatal("accepted")
			}
		})
	}
}
