package erase_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/erase"
)

type fake struct{ got []string }

func (f *fake) Delete(_ context.Context, run stream.RunID) error {
	f.got = append(f.got, "run "+string(run))
	if run == "away" {
		return stream.ErrUnavailable
	}
	return nil
}

func (f *fake) Reach(context.Context, *auth.Grant, stream.RunID) error { return nil }

func (f *fake) DeleteThread(_ context.Context, thread stream.ThreadID) error {
	f.got = append(f.got, "thread "+string(thread))
	return nil
}

func TestRequestsToDeleteAreAnsweredWithNothingOrAProblem(t *testing.T) {
	f := &fake{}
	mux := http.NewServeMux()
	erase.New(f, zap.NewNop()).Mount(mux)
	h := transport.NewAccess(transport.AccessConfig{}, zap.NewNop()).Wrap(mux)
	for path, want := range map[string]int{
		"/v1/runs/r%201": 204, "/v1/threads/t1": 204, "/v1/runs/away": 503, "/v1/runs/%7Bx%7D": 400, "/v1/threads/a%5Cb": 400,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, path, http.NoBody))
		if w.Code != want || want == 204 && w.Body.Len() > 0 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if got := strings.Join(f.got, ","); len(f.got) != 3 || !strings.Contains(got, "run r 1") || !strings.Contains(got, "thread t1") {
		t.Error(got)
	}
}
