package console_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/transport/console"
)

func TestPage(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	hint := console.Hint{Version: "v1", Publish: `XADD k * event '{"type":"RUN_STARTED"}'`}
	console.Mount(mux, hint)
	get := func(method, path string, header ...string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		mux.ServeHTTP(w, r)
		return w
	}
	pages := map[string]string{"/": "text/html", "/console.css": "text/css", "/console.js": "text/javascript"}
	t.Run("each file has its type and the policy", func(t *testing.T) {
		for path, kind := range pages {
			w := get(http.MethodGet, path)
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %v", path, w.Code, w.Header())
			}
			policy := w.Header().Get("Content-Security-Policy")
			for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} {
				if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
					t.Errorf("%s: policy %q", path, policy)
				}
			}
		}
	})
	t.Run("a browser that has the file isn't sent it again", func(t *testing.T) {
		for path := range pages {
			tag := get(http.MethodGet, path).Header().Get("ETag")
			if w := get(http.MethodGet, path, "If-None-Match", tag); tag == "" || w.Code != http.StatusNotModified || w.Body.Len() > 0 {
				t.Errorf("%s: %d with %s", path, w.Code, tag)
			}
			if w := get(http.MethodGet, path, "If-None-Match", `"other"`); w.Code != http.StatusOK {
				t.Errorf("%s: %d for another file", path, w.Code)
			}
		}
	})
	t.Run("a file is compressed to whom that suits, and is the same", func(t *testing.T) {
		for path := range pages {
			plain := get(http.MethodGet, path)
			w := get(http.MethodGet, path, "Accept-Encoding", "br, gzip;q=0.8")
			r, err := gzip.NewReader(w.Body)
			if err != nil || w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Vary") != "Accept-Encoding" || w.Header().Get("ETag") == plain.Header().Get("ETag") {
				t.Fatal(path, err, w.Header())
			}
			size := w.Body.Len()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
				t.Errorf("%s: %v, %d bytes", path, err, len(got))
			}
			if path == "/console.js" && (size < 10_000 || size > plain.Body.Len()/2) {
				t.Errorf("%s: %d bytes of %d", path, size, plain.Body.Len())
			}
			if w := get(http.MethodGet, path, "Accept-Encoding", "br, gzip;q=0.0"); w.Header().Get("Content-Encoding") != "" || !bytes.Equal(w.Body.Bytes(), plain.Body.Bytes()) {
				t.Errorf("%s: compressed to whom that doesn't suit", path)
			}
		}
	})
	t.Run("what the page loads is kept for good, by its version only", func(t *testing.T) {
		page := get(http.MethodGet, "/")
		if got := page.Header().Get("Cache-Control"); got != "no-cache" {
			t.Errorf("the page: %s", got)
		}
		for _, name := range []string{"console.js", "console.css"} {
			m := regexp.MustCompile(regexp.QuoteMeta(name) + `\?v=[\w-]+`).FindString(page.Body.String())
			if got := get(http.MethodGet, "/"+m).Header().Get("Cache-Control"); m == "" || !strings.Contains(got, "immutable") {
				t.Errorf("%s: %s", m, got)
			}
			if got := get(http.MethodGet, "/"+name+"?v=other").Header().Get("Cache-Control"); got != "no-cache" {
				t.Errorf("another version of %s: %s", name, got)
			}
		}
	})
	t.Run("every file that the page names is served", func(t *testing.T) {
		page := get(http.MethodGet, "/").Body.String()
		for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if strings.HasPrefix(m[1], "data:") {
				continue
			}
			if w := get(http.MethodGet, "/"+m[1]); w.Code != http.StatusOK {
				t.Errorf("%s: %d", m[1], w.Code)
			}
		}
	})
	t.Run("the hint is what the hub says", func(t *testing.T) {
		var got console.Hint
		if err := json.Unmarshal(get(http.MethodGet, "/console.json").Body.Bytes(), &got); err != nil || got != hint {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("nothing else is there, and nothing can be written", func(t *testing.T) {
		for _, path := range []string{"/console.go", "/page.html", "/dist/console.js", "/ui/package.json"} {
			if w := get(http.MethodGet, path); w.Code != http.StatusNotFound {
				t.Errorf("a file that isn't the page's: %s %d", path, w.Code)
			}
		}
		if w := get(http.MethodPost, "/"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
	})
	t.Run("no content is ever read as markup, and nothing is fetched from elsewhere", func(t *testing.T) {
		sources, err := filepath.Glob("ui/src/*")
		if err != nil || len(sources) < 10 {
			t.Fatal(sources, err)
		}
		for _, name := range sources {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"innerHTML", "InnerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://", "srcdoc"} {
				if bytes.Contains(content, []byte(word)) {
					t.Errorf("%s has %s", name, word)
				}
			}
		}
	})
}
