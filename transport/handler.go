package transport

import (
	"net/http"
	"strings"

	"go.uber.org/zap"
)

// NewHandler returns what a hub listens with: the guard, then the access, then next.
func NewHandler(guard *Guard, access *Access, next http.Handler) http.Handler {
	return guard.Wrap(access.Wrap(next))
}

// Routes returns the mux, whose own answers for unknown paths and wrong methods become problem documents. A path that
// the mux would clean (two slashes, dots) is unknown: an id is never guessed from what is left of it.
func Routes(mux *http.ServeMux, logger *zap.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		clean := cleanPath(r.URL.EscapedPath())
		if pattern != "" && clean {
			mux.ServeHTTP(w, r)
			return
		}
		var answer discard
		h.ServeHTTP(&answer, r)
		if clean && answer.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", answer.Header().Get("Allow"))
			WriteProblem(w, logger, &Error{
				Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "the header Allow says what can be done here",
			})
			return
		}
		WriteProblem(w, logger, &Error{Status: http.StatusNotFound, Code: "unknown_path", Message: "there is nothing at this path"})
	})
}

// cleanPath says whether an escaped path has no empty segment and none that means another directory.
func cleanPath(path string) bool {
	if path == "*" {
		return true
	}
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return false
	}
	for more := true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if segment == "." || segment == ".." || segment == "" && more {
			return false
		}
	}
	return true
}

// discard takes an answer and keeps its status and header only.
type discard struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

// Write implements http.ResponseWriter.
func (d *discard) Write(b []byte) (int, error) {
	if d.status == 0 {
		d.status = http.StatusOK
	}
	return len(b), nil
}

// WriteHeader implements http.ResponseWriter.
func (d *discard) WriteHeader(status int) {
	if d.status == 0 {
		d.status = status
	}
}
