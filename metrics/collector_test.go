package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/aguihub/aguihub/metrics"
)

// scrape returns what Prometheus would read.
func scrape(t *testing.T, r metrics.Reading) string {
	t.Helper()
	h := metrics.Handler(metrics.Build{Version: "v1", Revision: "abc", Go: "go1"}, func() metrics.Reading { return r })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", w.Code, err, body)
	}
	return string(body)
}

// full has every part, so that a scrape has every series.
func full() metrics.Reading {
	wire := &metrics.Wire{Open: 3, Accepted: 4, Closed: map[string]uint64{"ended": 2}, Deliveries: 5}
	return metrics.Reading{
		Ready: true, WebSocket: wire, SSE: wire, Lookups: 9,
		Hub:    &metrics.Hub{Feeds: 1, Entries: 7, Withheld: map[string]uint64{"illegal": 6}},
		Tail:   &metrics.Tail{Failing: true, LastRead: time.Now().Add(-time.Minute)},
		Keep:   &metrics.Keep{Written: 3, Damaged: 2},
		Ingest: &metrics.Ingest{Accepted: 8, Problems: map[string]uint64{"run_ended": 1}},
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	t.Run("every series passes Prometheus' own linter", func(t *testing.T) {
		t.Parallel()
		problems, err := promlint.New(strings.NewReader(scrape(t, full()))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "aguihub_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	})
	t.Run("figures stand under their names and labels", func(t *testing.T) {
		t.Parallel()
		got := scrape(t, full())
		for _, want := range []string{
			`aguihub_build_info{goversion="go1",revision="abc",version="v1"} 1`,
			`aguihub_ready 1`,
			`aguihub_feeds 1`,
			`aguihub_entries_read_total 7`,
			`aguihub_entries_withheld_total{reason="illegal"} 6`,
			`aguihub_tail_failing 1`,
			`aguihub_tail_read_age_seconds 6`, // sixty and a bit
			`aguihub_connections{transport="sse"} 3`,
			`aguihub_connections_closed_total{reason="ended",transport="websocket"} 2`,
			`aguihub_ingest_events_total{result="accepted"} 8`,
			`aguihub_ingest_problems_total{code="run_ended"} 1`,
			`aguihub_checkpoints_damaged_total 2`,
			`aguihub_lookups_total 9`,
			`go_goroutines `,
		} {
			if !strings.Contains(got, "\n"+want) {
				t.Errorf("there is no %s", want)
			}
		}
	})
	t.Run("parts that don't run have no series", func(t *testing.T) {
		t.Parallel()
		got := scrape(t, metrics.Reading{})
		for _, part := range []string{"aguihub_feeds", "aguihub_tail", "aguihub_connections", "aguihub_ingest"} {
			if strings.Contains(got, "\n"+part) {
				t.Errorf("there is %s", part)
			}
		}
		if !strings.Contains(got, "aguihub_ready 0") {
			t.Error("it isn't told that the hub isn't ready")
		}
	})
}
