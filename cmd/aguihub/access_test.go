package main_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream/streamtest"
)

const (
	acmeSecret   = "a secret of acme's of thirty-two bytes"
	globexSecret = "a secret of globex's of 32 bytes or so"
)

// issuers are two tenants' for --auth-config.
const issuers = `{"issuers":[{"iss":"acme","key":"` + acmeSecret + `","tenant":"acme"},{"iss":"globex","key":"` + globexSecret + `","tenant":"globex"}]}`

// tokenFor is a token that allows everything in a tenant.
func tokenFor(tb testing.TB, iss, secret string) string {
	tb.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": iss, "sub": "kim", "exp": time.Now().Add(time.Hour).Unix(), "scope": "attach publish cancel read input admin",
		"aguihub": map[string]any{"runPrefixes": []string{""}, "threadPrefixes": []string{""}},
	}).SignedString([]byte(secret))
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func TestTenantsShareAHubAndNothingElse(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	log := t.TempDir() + "/audit"
	h := startHub(t, "--redis", server.URL(), "--auth-config", write(t, issuers), "--audit-log", log, "--attach-wait", "300ms")
	acme, globex := tokenFor(t, "acme", acmeSecret), tokenFor(t, "globex", globexSecret)
	if code, _, stderr := run(t, events("r1"), "publish", "r1", "--url", h.base, "--token", acme); code != 0 {
		t.Fatalf("publish: exit code %d: %s", code, stderr)
	}
	if code, stdout, stderr := run(t, "", "attach", "r1", "--url", h.base, "--token", acme); code != 0 || !strings.Contains(stdout, `"Hello"`) {
		t.Errorf("attach: exit code %d: %s %s", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, "", "attach", "r1", "--url", h.base, "--token", globex); code == 0 || strings.Contains(stdout, "Hello") || !strings.Contains(stderr, "unknown") {
		t.Errorf("attach of another tenant: exit code %d: %s %s", code, stdout, stderr)
	}
	if code, _, stderr := run(t, "", "check", "r1", "--url", h.base); code == 0 || !strings.Contains(stderr, "token_missing") {
		t.Errorf("check without a token: exit code %d: %s", code, stderr)
	}
	if code, stdout, _ := run(t, "", "check", "r1", "--url", h.base, "--token", acme); code != 0 {
		t.Errorf("check: exit code %d: %s", code, stdout)
	}
	client := streamtest.Client(t, strings.TrimPrefix(server.URL(), "redis://"))
	keys, err := client.Keys(t.Context(), "*r1*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	for _, k := range keys {
		if !strings.HasPrefix(strings.TrimPrefix(k, "{"), "agui-acme:") {
			t.Errorf("a key outside of the tenant's: %s", k)
		}
	}
	// A cursor of one tenant is worth nothing in another, also where there is a run of the same id.
	_, stdout, _ := run(t, "", "attach", "r1", "--url", h.base, "--token", acme, "--lines")
	cursor := regexp.MustCompile(`[0-9]+-[0-9]+\.[0-9a-f]{8}`).FindString(stdout)
	if code, _, stderr := run(t, strings.ReplaceAll(events("r1"), "Hello", "Servus"), "publish", "r1", "--url", h.base, "--token", globex); code != 0 || cursor == "" {
		t.Fatalf("publish: exit code %d: %s; cursor %q", code, stderr, cursor)
	}
	if _, stdout, stderr := run(t, "", "attach", "r1", "--url", h.base, "--token", globex, "--lines", "--after", cursor); !strings.Contains(stdout, `"reset"`) || !strings.Contains(stdout, "Servus") || strings.Contains(stdout, "Hello") {
		t.Errorf("another tenant's cursor: %s %s", stdout, stderr)
	}
	checkpointsOfTenants(t, client, server.URL(), acme, globex)
	_, metrics, err := get(t.Context(), h.metrics+"/metrics")
	if err != nil || !strings.Contains(metrics, `aguihub_ready{tenant="globex"} 1`) {
		t.Errorf("metrics: %v\n%s", err, metrics)
	}
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), `"subject":"kim","tenant":"acme","run":"r1"`) || strings.Contains(string(text), acme[:30]) {
		t.Errorf("%v\n%s", err, text)
	}
	if strings.Contains(h.stderr.all(), acme[:30]) || strings.Contains(h.stderr.all(), "Hello") {
		t.Error("the log holds a token or a payload")
	}
}

// checkpointsOfTenants looks at hubs that know runs and threads by what is kept of them alone: what one tenant's runs have come
// to is out of another's reach, also where ids are the same and the other has nothing of its own.
func checkpointsOfTenants(t *testing.T, client *redis.Client, url, acme, globex string) {
	t.Helper()
	access := []string{"--redis", url, "--auth-config", write(t, issuers), "--attach-wait", "300ms"}
	first := startHub(t, access...)
	const content = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello"}` + "\n"
	long := strings.Replace(events("long"), content, strings.Repeat(content, 300), 1) // enough for a checkpoint at the end
	for tenant, token := range map[string]string{"acme": acme, "globex": globex} {
		text := long
		if tenant == "globex" {
			text = strings.ReplaceAll(long, "Hello", "Servus")
		}
		if code, _, stderr := run(t, text, "publish", "long", "--url", first.base, "--token", token); code != 0 {
			t.Fatalf("publish: exit code %d: %s", code, stderr)
		}
		if code, _, stderr := run(t, "", "attach", "long", "--url", first.base, "--token", token); code != 0 {
			t.Fatalf("attach: exit code %d: %s", code, stderr)
		}
		eventually(t, "the run of "+tenant+" has a checkpoint", func() bool {
			return client.Exists(t.Context(), "{agui-"+tenant+":run:long}:checkpoint").Val() == 1
		})
	}
	keep := func(keys ...string) {
		t.Helper()
		if err := client.Del(t.Context(), keys...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Of globex' own there is nothing but the stream, then nothing at all.
	keep("{agui-globex:run:long}:checkpoint", "{agui-globex:thread:t-long}:conversation")
	fresh := startHub(t, access...)
	if _, stdout, stderr := run(t, "", "attach", "long", "--url", fresh.base, "--token", globex); !strings.Contains(stdout, "Servus") || strings.Contains(stdout, "Hello") {
		t.Errorf("with another tenant's checkpoint: %.2000s %s", stdout, stderr)
	}
	keep("agui-globex:run:long", "{agui-globex:run:long}:checkpoint", "{agui-globex:thread:t-long}:conversation")
	fresh = startHub(t, access...)
	if code, stdout, stderr := run(t, "", "attach", "long", "--url", fresh.base, "--token", globex); code == 0 || stdout != "" || !strings.Contains(stderr, "unknown") {
		t.Errorf("nothing but another tenant's checkpoint: exit code %d: %.2000s %s", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, "", "attach", "long", "--url", fresh.base, "--token", acme); code != 0 || !strings.Contains(stdout, "Hello") || fresh.series(`aguihub_checkpoints_read_total{tenant="acme"}`) != 1 || fresh.series(`aguihub_checkpoints_read_total{tenant="globex"}`) != 0 {
		t.Errorf("the own checkpoint: exit code %d: %.2000s %s", code, stdout, stderr)
	}
}

// The rule: the token that docs/security.md makes by hand opens the hub that it starts, as printed.
func TestATokenMadeByHand(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(doc), "## A token by hand\n")
	_, block, opened := strings.Cut(block, "```sh\n")
	block, _, closed := strings.Cut(block, "```\n")
	const start = "aguihub --auth-issuer me --auth-key-file secret &\n"
	before, use, split := strings.Cut(block, start)
	if !found || !opened || !closed || !split {
		t.Fatalf("docs/security.md has no such block: %s", block)
	}
	dir := t.TempDir()
	shell := func(script, url string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "AGUIHUB_URL="+url, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	shell(before, "")
	h := startHub(t, "--auth-issuer", "me", "--auth-key-file", filepath.Join(dir, "secret"), "--no-demo")
	if !strings.Contains(h.stderr.all(), "access    by token of me") {
		t.Error("the banner doesn't say who is believed")
	}
	if out := shell(strings.ReplaceAll(use, "http://127.0.0.1:8080", h.base), h.base); !strings.Contains(out, `"runs"`) || !strings.Contains(out, "RUN_FINISHED") {
		t.Errorf("the token opens nothing: %s", out)
	}
	if code, _, stderr := run(t, "", "attach", "r1", "--url", h.base); code == 0 || !strings.Contains(stderr, "4401") || !strings.Contains(stderr, "AGUIHUB_TOKEN") {
		t.Errorf("without it: exit code %d: %s", code, stderr)
	}
	if code, _, stderr := run(t, "", "cancel", "r1", "--url", h.base); code == 0 || !strings.Contains(stderr, "token_missing") || !strings.Contains(stderr, "AGUIHUB_TOKEN") {
		t.Errorf("a cancel without it: exit code %d: %s", code, stderr)
	}
}

// TestEveryPathAsksForAToken knows all paths by heart, so that a new one is thought about.
func TestEveryPathAsksForAToken(t *testing.T) {
	t.Parallel()
	h := startHub(t, "--auth-config", write(t, issuers), "--console")
	for path, want := range map[string]int{
		"GET /": 200, "GET /console.css": 200, "GET /console.js": 200, // hold nothing
		"GET /v1/runs": 401, "GET /v1/runs/r1": 401, "GET /v1/runs/r1/events": 401, "GET /v1/runs/r1/sse": 401, "POST /v1/runs/r1/events": 401,
		"POST /v1/runs/r1/sse": 401, "POST /v1/runs/r1/cancel": 401, "DELETE /v1/runs/r1": 401, "HEAD /v1/runs/r1/sse": 401,
		"GET /v1/threads/t1": 401, "GET /v1/threads/t1/messages": 401, "GET /v1/threads/t1/sse": 401, "POST /v1/threads/t1/sse": 401, "DELETE /v1/threads/t1": 401,
		"GET /v1/agents": 401, "POST /v1/agents/x": 401, "POST /v1/tickets": 401,
		"GET /v1/nothing": 404, "GET /v1/runs/r1/ws": 426,
	} {
		method, path, _ := strings.Cut(path, " ")
		body := `{"run":"r1","messages":[]}`
		req, err := http.NewRequestWithContext(t.Context(), method, h.base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s %s: %d, want %d", method, path, resp.StatusCode, want)
		}
	}
}

func TestAccessFlagsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	file := write(t, issuers)
	for want, args := range map[string][]string{
		"--auth-config":      {"--auth-config", file, "--auth-issuer", "x"},
		"--auth-issuer":      {"--auth-issuer", "x"},
		"belong to":          {"--auth-audience", "x"},
		"give one or":        {"--auth-config", file, "--insecure-no-auth"},
		"10.0.0.0/8":         {"--trust-proxy", "10.0.0.1"},
		"unknown field":      {"--auth-config", write(t, `{"issuer":[]}`)},
		"not a loopback":     {"--listen", "0.0.0.0:0"},
		"key prefix":         {"--auth-config", file, "--key-prefix", strings.Repeat("x", 64)},
		"at least 32 bytes":  {"--auth-issuer", "x", "--auth-key-file", write(t, "short")},
		"no such file or di": {"--audit-log", "/no/such/directory/audit"},
	} {
		if code, _, stderr := run(t, "", args...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
