package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/aguihub/aguihub/metrics"
)

// scrape returns what Prometheus would read.
func scrape(t *testing.T, r metrics.Reading) string {
	t.Helper()
	h := metrics.Handler(metrics.Build{Version: "v1", Revision: "abc", Go: "go1"}, map[string]metrics.Reader{"": func() metrics.Reading { return r }})
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
	slow := metrics.NewHistogram()
	slow.Observe(3 * time.Second)
	slow.Observe(-time.Second)
	wire := &metrics.Wire{Open: 3, Accepted: 4, Closed: map[string]uint64{"ended": 2}, Deliveries: 5, Age: slow}
	return metrics.Reading{
		Ready: true, WebSocket: wire, SSE: wire, Lookups: 9, Problems: map[string]uint64{"unknown_path": 1},
		Rejects: map[string]uint64{"connections": 1}, Seats: &metrics.Seats{Taken: map[string]int{"all": 1}, Limit: map[string]int{"all": 2}},
		Attach: &metrics.Attach{
			Seconds: map[string]*metrics.Histogram{"fresh": slow}, Failures: map[string]uint64{"unavailable": 1},
			Brackets: map[string]uint64{"fresh": 2}, Resets: map[string]uint64{"lost": 1}, Runs: map[string]uint64{"started": 1},
		},
		Redis: &metrics.Redis{
			Clients: map[string]metrics.RedisClient{"commands": {Calls: 5, Errors: map[string]uint64{"denied": 1}, Open: 3, Idle: 2, Seconds: slow}},
			Server:  &metrics.RedisServer{Used: 10, Limit: 20, Policy: "evil\"policy", Evicted: 4, ClockAhead: time.Second, Told: time.Now()},
		},
		Bridge: &metrics.Bridge{Active: 1, Ends: map[string]uint64{"finished": 1}}, Reaper: &metrics.Reaper{Active: 2},
		Hub:    &metrics.Hub{Feeds: 1, Entries: 7, TailAge: slow, Withheld: map[string]uint64{"illegal": 6}},
		Tail:   &metrics.Tail{Woken: map[string]int{"keyspace": 1}, Failing: true, LastRead: time.Now().Add(-time.Minute)},
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
			`aguihub_attach_seconds_bucket{mode="fresh",le="2.5"} 1`,
			`aguihub_attach_seconds_bucket{mode="fresh",le="5"} 2`,
			`aguihub_delivery_age_seconds_sum{transport="sse"} 3`,
			`aguihub_redis_errors_total{client="commands",kind="denied"} 1`,
			`aguihub_redis_connections{client="commands",state="busy"} 1`,
			`aguihub_redis_memory_limit_bytes 20`,
			`aguihub_redis_eviction_policy{policy="other"} 1`,
			`go_goroutines `,
		} {
			if !strings.Contains(got, "\n"+want) {
				t.Errorf("there is no %s", want)
			}
		}
	})
	t.Run("a scrape of all parts has every series that is described", func(t *testing.T) {
		t.Parallel()
		source, err := filepath.Glob("*.go")
		if err != nil {
			t.Fatal(err)
		}
		got, found := scrape(t, full()), 0
		for _, name := range source {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`= desc\("([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
				found++
				if !strings.Contains(got, "# TYPE aguihub_"+strings.TrimSuffix(m[1], "_total")) {
					t.Errorf("there is no aguihub_%s", m[1])
				}
			}
		}
		if found < 60 {
			t.Errorf("only %d series are described", found)
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
