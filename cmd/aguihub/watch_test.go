package main_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// The rules: a Redis that throws whole runs away is refused, with what to do about it; one that throws ended runs away is
// served with a warning; the hub changes nothing unless it is asked to.
func TestEviction(t *testing.T) {
	t.Parallel()
	t.Run("a server that evicts any key is refused, and left as it is", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		code, _, stderr := run(t, "", "--redis", server.URL(), "--listen=127.0.0.1:0", "--metrics-listen=off")
		if code != 1 || !strings.Contains(stderr, "allkeys-lru") || !strings.Contains(stderr, "maxmemory-policy to noeviction") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		if got := server.Client(t).ConfigGet(t.Context(), "maxmemory-policy").Val()["maxmemory-policy"]; got != "allkeys-lru" {
			t.Errorf("the policy became %s", got)
		}
	})
	t.Run("--redis-configure mends it", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t, "--maxmemory-policy", "allkeys-random")
		startHub(t, "--redis", server.URL(), "--redis-configure")
		if got := server.Client(t).ConfigGet(t.Context(), "maxmemory-policy").Val()["maxmemory-policy"]; got != "noeviction" {
			t.Errorf("the policy is %s", got)
		}
	})
	t.Run("a server that evicts keys with an expiry is served, with a warning", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t, "--maxmemory-policy", "volatile-ttl")
		h := startHub(t, "--redis", server.URL())
		h.stderr.waitLine(t, "may go before --retention")
		eventually(t, "the metrics have the policy", func() bool {
			_, body, _ := get(t.Context(), h.metrics+"/metrics")
			return strings.Contains(body, `aguihub_redis_eviction_policy{policy="volatile-ttl"} 1`)
		})
	})
}

// series reads one series of a hub; NaN-free, and -1 where it is missing.
func (h *hub) series(name string) float64 {
	h.tb.Helper()
	status, body, err := get(h.tb.Context(), h.metrics+"/metrics")
	if err != nil || status != http.StatusOK {
		h.tb.Fatal(status, err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		h.tb.Fatal(err)
	}
	return v
}

// The rule: what a hub does is told by its series, each attach and each live write once.
func TestSeriesTellWhatHappened(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	h := startHub(t, "--redis", server.URL())
	all := strings.Split(strings.TrimSpace(events("r1")), "\n")
	xadd(t, client, "r1", all[0])
	a := h.attach("r1")
	a.stdout.waitLine(t, "RUN_STARTED")
	for _, e := range all[1:] {
		xadd(t, client, "r1", e)
	}
	if code := a.exit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if status, _, err := get(t.Context(), h.base+"/nowhere"); err != nil || status != http.StatusNotFound {
		t.Fatal(status, err)
	}
	eventually(t, "the connection has ended", func() bool { return h.series(`aguihub_connections{transport="websocket"}`) == 0 })
	for name, want := range map[string]float64{
		`aguihub_attach_seconds_count{mode="fresh"}`:                             1,
		`aguihub_attach_failures_total{reason="unavailable"}`:                    0,
		`aguihub_catchups_total{mode="fresh"}`:                                   1,
		`aguihub_resets_total{reason="lost"}`:                                    0,
		`aguihub_problems_total{code="unknown_path"}`:                            1,
		`aguihub_connections_closed_total{reason="ended",transport="websocket"}`: 1,
		`aguihub_entries_sent_total{transport="websocket"}`:                      4,
		`aguihub_redis_errors_total{client="commands",kind="unavailable"}`:       0,
		`aguihub_redis_errors_total{client="commands",kind="other"}`:             0,
		`aguihub_redis_eviction_policy{policy="noeviction"}`:                     1,
	} {
		if got := h.series(name); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	for _, name := range []string{
		`aguihub_delivery_age_seconds_count{transport="websocket"}`, `aguihub_tail_age_seconds_count`, `aguihub_redis_calls_total{client="readers"}`,
		`aguihub_redis_call_seconds_count{client="commands"}`, `aguihub_redis_memory_used_bytes`, `aguihub_folding_seconds_total`,
	} {
		if got := h.series(name); got <= 0 {
			t.Errorf("%s is %g", name, got)
		}
	}
	if sum := h.series(`aguihub_delivery_age_seconds_sum{transport="websocket"}`); sum > 80 {
		t.Errorf("four writes were %g s old", sum)
	}
}
