package console_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/transport/console"
)

func TestPage(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	console.Mount(mux)
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		return w
	}
	t.Run("each file has its type and the policy", func(t *testing.T) {
		for path, kind := range map[string]string{"/": "text/html", "/console.css": "text/css", "/console.js": "text/javascript"} {
			w := get(http.MethodGet, path)
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
				t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
			}
			policy := w.Header().Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: policy %q", path, policy)
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
	t.Run("nothing else is there, and nothing can be written", func(t *testing.T) {
		if w := get(http.MethodGet, "/console.go"); w.Code != http.StatusNotFound {
			t.Errorf("a file that isn't the page's: %d", w.Code)
		}
		if w := get(http.MethodPost, "/"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
	})
	t.Run("no content is ever read as markup, and nothing is fetched from elsewhere", func(t *testing.T) {
		for _, name := range []string{"page.html", "console.js", "console.css"} {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://", "onclick", "style=\""} {
				if bytes.Contains(content, []byte(word)) {
					t.Errorf("%s has %s", name, word)
				}
			}
		}
	})
}
