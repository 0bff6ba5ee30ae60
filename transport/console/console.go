// Package console serves the hub's page: static files, nothing fetched from elsewhere. It shows runs as any browser sees
// them, over the same WebSocket as everybody. The sources are in ui, what is built of them in dist, by make console.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
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
	page := content("page.html")
	for name, contentType := range map[string]string{"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"} {
		file := content(name)
		mux.Handle("GET /"+name, static(file, contentType))
		page = bytes.ReplaceAll(page, []byte(`"`+name+`"`), []byte(`"`+name+`?v=`+version(file)+`"`))
	}
	mux.Handle("GET /{$}", static(page, "text/html; charset=utf-8"))
	mux.HandleFunc("GET /console.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_ = transport.WriteJSON(w, hint) // a client that has left is no matter of ours
	})
}

func content(name string) []byte {
	file, err := files.ReadFile("dist/" + name)
	if err != nil {
		panic(err) // go:embed has it
	}
	return file
}

// version is a word that changes with the file.
func version(file []byte) string {
	sum := sha256.Sum256(file)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// compressed is the file by gzip.
func compressed(file []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(file)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // the level is one that there is, and a buffer takes everything
	}
	return out.Bytes()
}

// static serves a file, compressed to whom that suits. A browser that asks by its version, as the page does, keeps it for good;
// any other keeps it and asks about it each time.
func static(file []byte, contentType string) http.Handler {
	v := version(file)
	small := sync.OnceValue(func() []byte { return compressed(file) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-cache")
		if r.URL.Query().Get("v") == v {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		h.Set("Vary", "Accept-Encoding")
		body, etag := file, v
		if takesGzip(r) {
			body, etag = small(), v+"-gzip"
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("ETag", `"`+etag+`"`)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// takesGzip says whether the request's Accept-Encoding names gzip, and not as what isn't wanted.
func takesGzip(r *http.Request) bool {
	for word := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(word, " ", ""), ";")
		if strings.EqualFold(coding, "gzip") {
			return strings.Trim(weight, "q=0.") != "" || weight == ""
		}
	}
	return false
}
