// Package cancel takes the requests to cancel a run: docs/contract.md, section 6.
package cancel

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Pattern is where the server belongs in an http.ServeMux.
const Pattern = "POST /v1/runs/{" + transport.PathRun + "}/cancel"

// maxBody bounds a body, in bytes: a reason with everything escaped.
const maxBody = 16 << 10

// Server is the handler of [Pattern]. Its methods may be called by anyone at once.
type Server struct {
	canceller transport.Canceller
	runs      transport.Reacher
	logger    *zap.Logger
	requests  atomic.Int64
}

// New returns a server.
func New(canceller transport.Canceller, runs transport.Reacher, logger *zap.Logger) *Server {
	return &Server{canceller: canceller, runs: runs, logger: logger}
}

// Requests is how many requests there were since the start.
func (s *Server) Requests() int64 { return s.requests.Load() }

// accepted is the answer: the run was asked, and nothing more.
type accepted struct {
	Run   stream.RunID `json:"run"`
	State string       `json:"state"`
}

// ServeHTTP takes one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	run, err := transport.RunID(r)
	var reason string
	if err == nil {
		reason, err = reasonOf(w, r)
	}
	if err == nil {
		err = s.cancel(r, run, reason)
	}
	if err != nil {
		transport.WriteProblem(w, s.logger, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusAccepted)
	_ = transport.WriteJSON(w, accepted{Run: run, State: "cancel_requested"}) // a client that has left is no matter of ours
}

// cancel asks the run to end on behalf of whoever asks, if they may.
func (s *Server) cancel(r *http.Request, run stream.RunID, reason string) error {
	ask := transport.Ask{Scope: auth.Cancel, Run: run}
	caller, err := transport.Allow(r, ask)
	if err != nil {
		return err
	}
	if err := caller.Reach(r.Context(), s.runs, ask); err != nil {
		return err
	}
	return s.canceller.Cancel(r.Context(), run, reason, caller.Subject())
}

var errBody = transport.BadRequest("bad_body", `the body must be empty or an object such as {"reason":"…"}`)

// reasonOf reads the body, which may be empty.
func reasonOf(w http.ResponseWriter, r *http.Request) (string, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", &transport.Error{
			Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Message: "the body is larger than a reason may be",
		}
	}
	if err != nil {
		return "", transport.BadRequest("truncated", "the body ended too early")
	}
	var in *struct {
		Reason string `json:"reason"`
	}
	if len(body) > 0 && (json.Unmarshal(body, &in) != nil || in == nil) {
		return "", errBody
	}
	if in == nil {
		return "", nil
	}
	return in.Reason, transport.CheckReason(in.Reason)
}
