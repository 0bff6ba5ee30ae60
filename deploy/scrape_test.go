package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/loadtest/process"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// patience is how long anything may take that is waited for. It only matters to failing tests.
const patience = 2 * time.Minute

// eventually looks at other processes until ok.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("not after %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func get(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// freeAddr is an address of loopback that nobody listens on right now.
func freeAddr(tb testing.TB) string {
	tb.Helper()
	port, err := process.FreePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return "127.0.0.1:" + port
}

// background runs a program until the test ends.
func background(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if tb.Failed() {
			out, _ := os.ReadFile(log.Name())
			tb.Logf("%s: %s", filepath.Base(name), out[max(len(out)-4000, 0):])
		}
	})
	return cmd
}

// buildHub builds the hub. k8s/check builds it as the Dockerfile does, which compiles everything once more.
func buildHub(tb testing.TB) string {
	tb.Helper()
	out := filepath.Join(tb.TempDir(), "aguihub")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", out, "../cmd/aguihub")
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go build: %v\n%s", err, text)
	}
	return out
}

// The rules: a Prometheus with our configuration scrapes a hub and evaluates all rules; every series that rules and
// dashboard name is in a live scrape; every query of the dashboard is one that Prometheus takes.
func TestPrometheusScrapesAHub(t *testing.T) {
	t.Parallel()
	prometheus := program(t, "prometheus")
	hub, base, target, address := buildHub(t), freeAddr(t), freeAddr(t), freeAddr(t)
	server := streamtest.StartRedis(t, "--maxmemory", "1gb")
	background(t, hub, "--redis", server.URL(), "--listen", base, "--metrics-listen", target)
	eventually(t, "the hub is ready", func() bool {
		status, _, err := get(t.Context(), "http://"+target+"/readyz")
		return err == nil && status == http.StatusOK
	})
	live(t, server, base)

	dir := t.TempDir()
	for _, name := range []string{"prometheus.yml", "rules.yml", "alerts.yml"} {
		text := strings.NewReplacer("hub1:9464, hub2:9464", target, "15s", "1s").Replace(read(t, "prometheus/"+name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	background(t, prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	eventually(t, "Prometheus has scraped the hub", func() bool {
		n, err := query(t.Context(), address, `up{job="aguihub"} == 1`)
		return err == nil && n == 1
	})
	var scraped string
	eventually(t, "Redis has told of itself", func() bool {
		_, scraped, _ = get(t.Context(), "http://"+target+"/metrics")
		return strings.Contains(scraped, "\naguihub_redis_memory_limit_bytes 1.0")
	})
	expressions := dashboard(t)
	for _, name := range found(`\b((?:aguihub|go|process)_\w+)`, strings.Join(expressions, "\n")+ruleExpressions(t)) {
		if !strings.Contains(scraped, "\n"+name+" ") && !strings.Contains(scraped, "\n"+name+"{") {
			t.Errorf("a rule or the dashboard names %s, which isn't in a live scrape", name)
		}
	}
	for _, e := range expressions {
		if _, err := query(t.Context(), address, e); err != nil {
			t.Errorf("the dashboard asks %s: %v", e, err)
		}
	}
	wellEvaluated(t, address)
}

// live has everything happen once that a series only shows when it has happened.
func live(t *testing.T, server *streamtest.Server, base string) {
	t.Helper()
	client := server.Client(t)
	for _, event := range []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`, `{"type":"NO","x":`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`} {
		if err := client.Do(t.Context(), "xadd", "agui:run:r", "*", "event", event).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{"/v1/runs/r/sse": http.StatusOK, "/nowhere": http.StatusNotFound} {
		if status, body, err := get(t.Context(), "http://"+base+path); err != nil || status != want {
			t.Fatal(path, status, body, err)
		}
	}
}

// ruleExpressions are the rules without their texts, whose links name a file.
func ruleExpressions(t *testing.T) string {
	t.Helper()
	text := read(t, "prometheus/rules.yml") + read(t, "prometheus/alerts.yml")
	return regexp.MustCompile(`(?m)^ *(#|- name:|description:|summary:|runbook_url:).*$`).ReplaceAllString(text, "")
}

// dashboard returns the queries of the dashboard, for a Prometheus without Grafana's variables.
func dashboard(t *testing.T) []string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/aguihub.json")), &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	var all []string
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, variables.Replace(target.Expr))
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d queries were found", len(all))
	}
	return all
}

// query asks a Prometheus and returns the number of series.
func query(ctx context.Context, address, expr string) (int, error) {
	_, body, err := get(ctx, "http://"+address+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return len(answer.Data.Result), nil
}

// wellEvaluated waits until each rule was evaluated, and fails where one has an error or an alert fires.
func wellEvaluated(t *testing.T, address string) {
	t.Helper()
	type rule struct{ Name, Health, LastError, State, LastEvaluation string }
	var answer struct {
		Data struct{ Groups []struct{ Rules []rule } }
	}
	var all []rule
	eventually(t, "all rules were evaluated", func() bool {
		_, body, err := get(t.Context(), "http://"+address+"/api/v1/rules")
		if err != nil || json.Unmarshal([]byte(body), &answer) != nil {
			return false
		}
		all = nil
		for _, g := range answer.Data.Groups {
			all = append(all, g.Rules...)
		}
		return len(all) > 50 && !slices.ContainsFunc(all, func(r rule) bool { return r.Health == "unknown" })
	})
	for _, r := range all {
		if r.Health != "ok" || r.State == "firing" {
			t.Errorf("%s: %s %s, state %q", r.Name, r.Health, r.LastError, r.State)
		}
	}
}
