// Package tickets gives out tickets: what a client that can't send a header puts into the query, once. docs/contract.md,
// section 6.
package tickets

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Pattern is where the server belongs in an http.ServeMux.
const Pattern = "POST /v1/tickets"

// maxBody bounds a body, in bytes: two ids with everything escaped.
const maxBody = 8 << 10

// Server is the handler of [Pattern]. Its methods may be called by anyone at once.
type Server struct{ logger *zap.Logger }

// New returns a server.
func New(logger *zap.Logger) *Server { return &Server{logger: logger} }

// answer is a ticket and until when it is good.
type answer struct {
	Ticket    string `json:"ticket"`
	ExpiresAt int64  `json:"expiresAtMs"`
}

// ServeHTTP takes one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ask, err := askOf(w, r)
	var out answer
	if err == nil {
		var at int64
		out.Ticket, at, err = transport.IssueTicket(r, ask)
		out.ExpiresAt = at
	}
	if err != nil {
		transport.WriteProblem(w, s.logger, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusCreated)
	_ = transport.WriteJSON(w, out) // a client that has left is no matter of ours
}

var errBody = transport.BadRequest("bad_body", `the body must be {"run":"…"} or {"thread":"…"}`)

// askOf reads what the ticket is for.
func askOf(w http.ResponseWriter, r *http.Request) (transport.Ask, error) {
	var ask transport.Ask
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return ask, &transport.Error{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Message: "the body is too large"}
	}
	var in struct {
		Run, Thread string
	}
	if err != nil || json.Unmarshal(body, &in) != nil || (in.Run == "") == (in.Thread == "") {
		return ask, errBody
	}
	if in.Run != "" {
		ask.Run, err = stream.ParseRunID(in.Run)
	} else {
		ask.Thread, err = stream.ParseThreadID(in.Thread)
	}
	return ask, err
}
