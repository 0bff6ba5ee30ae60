package bridge

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseAgent(t *testing.T) {
	a, err := ParseAgent("support=https://agents.example.com/run?a=b=c")
	if err != nil || a.Name != "support" || a.URL != "https://agents.example.com/run?a=b=c" {
		t.Fatalf("%+v, %v", a, err)
	}
	if a.Limits != (Limits{Connect: 10 * time.Second, FirstByte: 2 * time.Minute, Silence: 5 * time.Minute, Total: 2 * time.Hour}) || !slices.Equal(a.Pass, DefaultPass) {
		t.Fatalf("%+v", a)
	}
	for _, bad := range []string{
		"", "support", "=https://a", "support=", "support=agents.example.com", "support=ftp://a/", "support=https://", "su pport=https://a",
		".hidden=https://a", "support=https://user:secret@a/", "support=https://a/#x", strings.Repeat("a", 65) + "=https://a", "a/b=https://a",
	} {
		if a, err := ParseAgent(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, a)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error tells the secret: %v", bad, err)
		}
	}
}

func TestReadAgents(t *testing.T) {
	t.Setenv("BRIDGE_TEST_TOKEN", "s3cret")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("k3y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agents, err := ReadAgents(strings.NewReader(`{"agents":[
		{"name":"a","url":"http://127.0.0.1:1/","headers":{"x-team":"web"},"secretHeaders":{"authorization":{"env":"BRIDGE_TEST_TOKEN","prefix":"Bearer "},
		 "x-api-key":{"file":"` + file + `"}},"passHeaders":["X-User"],"timeouts":{"connect":"1s","silence":"off"}},
		{"name":"b","url":"https://b/","passHeaders":[]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a := agents[0]
	if a.Header.Get("Authorization") != "Bearer s3cret" || a.Header.Get("X-Api-Key") != "k3y" || a.Header.Get("X-Team") != "web" {
		t.Errorf("%v", a.Header)
	}
	if a.Limits.Connect != time.Second || a.Limits.Silence != never || a.Limits.Total != 2*time.Hour || !slices.Equal(a.Pass, []string{"X-User"}) {
		t.Errorf("%+v", a)
	}
	if len(agents) != 2 || len(agents[1].Pass) != 0 {
		t.Errorf("%+v", agents)
	}
	for name, text := range map[string]string{
		"not JSON":             `{`,
		"an unknown field":     `{"agents":[{"name":"a","url":"http://a/","header":{}}]}`,
		"something behind":     `{"agents":[]} {}`,
		"no URL":               `{"agents":[{"name":"a"}]}`,
		"a missing variable":   `{"agents":[{"name":"a","url":"http://a/","secretHeaders":{"x":{"env":"BRIDGE_TEST_NONE"}}}]}`,
		"a missing file":       `{"agents":[{"name":"a","url":"http://a/","secretHeaders":{"x":{"file":"/nowhere/at/all"}}}]}`,
		"two places":           `{"agents":[{"name":"a","url":"http://a/","secretHeaders":{"x":{"env":"HOME","file":"/x"}}}]}`,
		"a header of HTTP":     `{"agents":[{"name":"a","url":"http://a/","headers":{"host":"b"}}]}`,
		"no name of a header":  `{"agents":[{"name":"a","url":"http://a/","headers":{"a b":"c"}}]}`,
		"a broken header":      `{"agents":[{"name":"a","url":"http://a/","headers":{"a":"b\r\nc: d"}}]}`,
		"a passed one of HTTP": `{"agents":[{"name":"a","url":"http://a/","passHeaders":["content-length"]}]}`,
		"a time without unit":  `{"agents":[{"name":"a","url":"http://a/","timeouts":{"total":"5"}}]}`,
		"a negative time":      `{"agents":[{"name":"a","url":"http://a/","timeouts":{"total":"-5s"}}]}`,
	} {
		if agents, err := ReadAgents(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken for %+v", name, agents)
		}
	}
}

func TestConfigsThatContradictThemselves(t *testing.T) {
	two := []Agent{{Name: "a", URL: "http://a/"}, {Name: "a", URL: "http://b/"}}
	for _, cfg := range []Config{{Agents: two}, {MaxRuns: -1}, {MaxEvent: -1}, {SupersedeWait: -1}, {Agents: []Agent{{Name: "a"}}}} {
		if _, err := New(context.Background(), nil, nil, nil, cfg, zap.NewNop()); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

func TestRedirectsStayAtHome(t *testing.T) {
	request := func(method, url string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := request("POST", "https://a/run")
	for _, c := range []struct {
		method, url string
		before      int
		follows     bool
	}{
		{"POST", "https://a/run/", 1, true},
		{"POST", "https://a:443/run/", 1, false},
		{"POST", "https://b/run", 1, false},
		{"POST", "http://a/run", 1, false},
		{"GET", "https://a/run/", 1, false}, // what 301 to 303 make of a POST
		{"POST", "https://a/run/", maxRedirects + 1, false},
	} {
		via := slices.Repeat([]*http.Request{first}, c.before)
		if err := sameOrigin(request(c.method, c.url), via); (err == nil) != c.follows {
			t.Errorf("%s %s after %d: %v", c.method, c.url, c.before, err)
		}
	}
}
