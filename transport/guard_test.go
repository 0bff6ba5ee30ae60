package transport_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGuard(t *testing.T) *transport.Guard {
	t.Helper()
	g, err := transport.NewGuard(
		[]string{"hub.example.com", "Other.example:8443", "192.168.1.5"},
		[]string{"https://app.example.com", "http://dev.example:3000", "capacitor://localhost"}, zap.NewNop(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuardHosts(t *testing.T) {
	g := newGuard(t)
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST:1": true, "localhost.": true, "localhost.:80": true,
		"127.0.0.1": true, "127.0.0.1:8080": true, "127.8.9.10:1": true, "[::1]": true, "[::1]:8080": true,
		"[0:0:0:0:0:0:0:1]:80": true,
		"hub.example.com":      true, "HUB.example.com:9": true, "other.example:8443": true, "192.168.1.5:8080": true,
		"other.example": false, "other.example:8444": false, "evil.example": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false, "127.0.0.256": false, "0.0.0.0": false, "[::]": false, "10.0.0.1:8080": false,
		"": false, ":8080": false, "::1": false, "[::1": false, "[::1]x": false, "[::1]:": false, "[::1%25lo]": false,
		"[127.0.0.1]": false, "localhost:": false, "localhost:80:80": false, "localhost:x": false, "a@localhost": false,
		"evil.example@localhost": false, "2130706433": false, "sub.localhost": false, "xhub.example.com": false,
	} {
		t.Run("Host "+host+map[bool]string{true: " passes", false: " is refused"}[ok], func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.Host = host
			if err := g.Check(r); (err == nil) != ok {
				t.Fatal(err)
			}
		})
	}
}

func TestGuardOrigins(t *testing.T) {
	g := newGuard(t)
	for _, c := range []struct {
		host, origin string
		ok           bool
	}{
		{"localhost:8080", "http://localhost:8080", true},
		{"localhost:8080", "http://localhost:5173", true},
		{"localhost:8080", "https://127.0.0.1:1", true},
		{"localhost:8080", "http://[::1]:3000", true},
		{"localhost:8080", "https://app.example.com", true},
		{"localhost:8080", "HTTPS://APP.example.com:443", true},
		{"localhost:8080", "http://dev.example:3000", true},
		{"localhost:8080", "capacitor://localhost", true},
		{"hub.example.com", "https://hub.example.com", true},
		{"hub.example.com:8443", "https://hub.example.com:8443", true},
		{"hub.example.com:443", "https://hub.example.com", true},
		{"hub.example.com", "http://hub.example.com:80", true},
		{"hub.example.com", "https://hub.example.com:8443", false},
		{"hub.example.com:8443", "https://hub.example.com", false},
		{"localhost:8080", "http://app.example.com", false},
		{"localhost:8080", "https://app.example.com:8443", false},
		{"localhost:8080", "https://app.example.com.evil.example", false},
		{"localhost:8080", "https://evil.example", false},
		{"localhost:8080", "http://localhost.evil.example", false},
		{"localhost:8080", "http://evil.example#localhost", false},
		{"localhost:8080", "http://localhost@evil.example", false},
		{"localhost:8080", "ftp://localhost", false},
		{"localhost:8080", "ionic://localhost", false},
		{"localhost:8080", "null", false},
		{"localhost:8080", "localhost:8080", false},
		{"localhost:8080", "*", false},
		{"localhost:8080", "http://", false},
		{"localhost:8080", "https://app.example.com, https://app.example.com", false},
	} {
		t.Run(c.origin+" at "+c.host+map[bool]string{true: " passes", false: " is refused"}[c.ok], func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.Host = c.host
			r.Header.Set("Origin", c.origin)
			if err := g.Check(r); (err == nil) != c.ok {
				t.Fatal(err)
			}
		})
	}
	t.Run("two origins are refused", func(t *testing.T) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Host = "localhost"
		r.Header["Origin"] = []string{"http://localhost", "http://localhost"}
		if g.Check(r) == nil {
			t.Fatal("passed")
		}
	})
}

func TestGuardPosts(t *testing.T) {
	g := newGuard(t)
	for _, c := range []struct {
		name, kind, origin, site string
		ok                       bool
	}{
		{"a program posts what it likes", "text/event-stream", "", "", true},
		{"a program without a content type", "", "", "", true},
		{"a page of an allowed origin posts what it likes", "application/x-ndjson", "http://localhost:3000", "cross-site", true},
		{"a foreign page's form", "text/plain", "https://evil.example", "cross-site", false},
		{"a foreign page's JSON", "application/json", "https://evil.example", "cross-site", false},
		{"a form of another site without an Origin", "text/plain", "", "cross-site", false},
		{"a form of a sibling site without an Origin", "application/x-www-form-urlencoded", "", "same-site", false},
		{"JSON without an Origin, which needed a preflight", "application/json; charset=utf-8", "", "cross-site", true},
		{"an own page without an Origin", "text/plain", "", "same-origin", true},
	} {
		t.Run(c.name+map[bool]string{true: " passes", false: " is refused"}[c.ok], func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
			r.Host = "127.0.0.1:8080"
			for k, v := range map[string]string{"Content-Type": c.kind, "Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if v != "" {
					r.Header.Set(k, v)
				}
			}
			if err := g.Check(r); (err == nil) != c.ok {
				t.Fatal(err)
			}
		})
	}
}

func TestGuardAnswers(t *testing.T) {
	reached := 0
	h := newGuard(t).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		w.WriteHeader(http.StatusTeapot)
	}))
	do := func(method, origin string, header ...string) *http.Response {
		r := httptest.NewRequest(method, "/v1/runs", http.NoBody)
		r.Host = "localhost:8080"
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	t.Run("an allowed origin may read the answer, and caches keep origins apart", func(t *testing.T) {
		resp := do(http.MethodGet, "https://app.example.com")
		if resp.StatusCode != http.StatusTeapot || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
			resp.Header.Get("Vary") != "Origin" || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Fatal(resp.Header)
		}
	})
	t.Run("a program gets no CORS header", func(t *testing.T) {
		resp := do(http.MethodGet, "")
		if resp.StatusCode != http.StatusTeapot || resp.Header.Get("Access-Control-Allow-Origin") != "" || resp.Header.Get("Vary") != "Origin" {
			t.Fatal(resp.Header)
		}
	})
	t.Run("a preflight is answered here", func(t *testing.T) {
		before := reached
		resp := do(http.MethodOptions, "http://localhost:3000", "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "content-type,x-mine", "Access-Control-Request-Private-Network", "true")
		if resp.StatusCode != http.StatusNoContent || reached != before ||
			resp.Header.Get("Access-Control-Allow-Headers") != "content-type,x-mine" ||
			!strings.Contains(resp.Header.Get("Access-Control-Allow-Methods"), "POST") ||
			resp.Header.Get("Access-Control-Allow-Private-Network") != "true" {
			t.Fatal(resp.StatusCode, resp.Header)
		}
	})
	t.Run("another OPTIONS isn't", func(t *testing.T) {
		if resp := do(http.MethodOptions, "http://localhost:3000"); resp.StatusCode != http.StatusTeapot {
			t.Fatal(resp.StatusCode)
		}
	})
	t.Run("a foreign origin gets a problem that its page can't read", func(t *testing.T) {
		before := reached
		resp := do(http.MethodOptions, "https://evil.example", "Access-Control-Request-Method", "POST")
		if resp.Header.Get("Access-Control-Allow-Origin") != "" || reached != before {
			t.Fatal(resp.Header)
		}
		transporttest.CheckProblem(t, resp, http.StatusForbidden, "origin_not_allowed")
	})
}

func TestGuardConfig(t *testing.T) {
	for _, origin := range []string{"*", "https://*.example.com", "app.example.com", "https://app.example.com/", "https://", "ht tp://x"} {
		t.Run("the origin "+origin+" is refused", func(t *testing.T) {
			if _, err := transport.NewGuard(nil, []string{origin}, zap.NewNop()); err == nil {
				t.Fatal("accepted")
			}
		})
	}
	for _, host := range []string{"", "https://hub.example.com", "hub.example.com/x", "hub:port"} {
		t.Run("the host "+host+" is refused", func(t *testing.T) {
			if _, err := transport.NewGuard([]string{host}, nil, zap.NewNop()); err == nil {
				t.Fatal("accepted")
			}
		})
	}
}
