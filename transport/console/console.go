// Package console serves the hub's page: static files, nothing fetched from elsewhere. It shows runs as any browser sees
// them, over the same WebSocket as everybody. The sources are in ui, what is built of them in dist, by make console.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/aguihub/aguihub/transport"
)

//go:embed dist/page.html dist/console.css dist/console.js
var files embed.FS

// policy lets the page load its own two files and talk to its own hub, and nothing else; no text can become markup or
// code, not even by a mistake of ours. The icon is an empty data URL.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Hint is what the page tells whoever has just opened it. Whoever may open the page may know it.
type Hint struct {
	Version string `json:"version"`
	// Publish is the line that publishes a run's first event.
	Publish string `json:"publish"`
}

// Mount adds the page, at /, and what it loads beside it to mux, which must stand behind a transport.Guard.
func Mount(mux *http.ServeMux, hint Hint) {
	mux.Handle("GET /{$}", static("page.html", "text/html; charset=utf-8"))
	mux.Handle("GET /console.css", static("console.css", "text/css; charset=utf-8"))
	mux.Handle("GET /console.js", static("console.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /console.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_ = transport.WriteJSON(w, hint) // a client that has left is no matter of ours
	})
}

// static serves a file, which a browser keeps and asks about each time.
func static(name, contentType string) http.Handler {
	content, err := files.ReadFile("dist/" + name)
	if err != nil {
		panic(err) // go:embed has it
	}
	sum := sha256.Sum256(content)
	etag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
