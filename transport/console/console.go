// Package console serves the hub's page: static files, nothing fetched from elsewhere, nothing built. It shows runs as
// any browser sees them, over the same WebSocket as everybody.
package console

import (
	"embed"
	"net/http"
	"strconv"
)

//go:embed page.html console.css console.js
var files embed.FS

// policy lets the page load its own two files and talk to its own hub, and nothing else. The icon is an empty data URL.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Mount adds the page, at /, and its files beside it to mux, which must stand behind a transport.Guard.
func Mount(mux *http.ServeMux) {
	mux.Handle("GET /{$}", static("page.html", "text/html; charset=utf-8"))
	mux.Handle("GET /console.css", static("console.css", "text/css; charset=utf-8"))
	mux.Handle("GET /console.js", static("console.js", "text/javascript; charset=utf-8"))
}

func static(name, contentType string) http.Handler {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err) // go:embed has it
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Length", strconv.Itoa(len(content)))
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(content)
	})
}
