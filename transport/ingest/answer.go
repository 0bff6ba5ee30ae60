package ingest

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/transport"
)

// maxRejected bounds the list of rejected events in an answer. The count goes on.
const maxRejected = 100

// answer is what became of a body. Problem documents carry it too.
type answer struct {
	Accepted int         `json:"accepted"` // events that are in the log
	Rejected []rejection `json:"rejected"` // the first of them
	// RejectedTotal is there where Rejected isn't all.
	RejectedTotal int `json:"rejectedTotal,omitempty"`
	// Unclosed says what the body's RUN_FINISHED left open. It is accepted, and hubs close the items before it.
	Unclosed string `json:"unclosed,omitempty"`
	// Uncertain counts events of which nobody knows whether they are in the log.
	Uncertain int    `json:"uncertain,omitempty"`
	LastID    string `json:"lastId"` // entry of the last accepted event; empty if there is none
	// Cancel is there where somebody asks to cancel the run, and it hasn't ended.
	Cancel *cancelRequest `json:"cancelRequested,omitempty"`
	// Hint is for people: what may be wrong although nothing was refused.
	Hint string `json:"hint,omitempty"`

	rejected int
	bytes    int64
}

// rejection is an item of the body that was not appended.
type rejection struct {
	Index  int    `json:"index"` // in the body, the input counted too
	Path   string `json:"path"`  // JSON Pointer into the event; empty where it is the event as a whole
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

func newAnswer() *answer { return &answer{Rejected: []rejection{}} }

func (a *answer) reject(r rejection) {
	if a.rejected++; len(a.Rejected) < maxRejected {
		a.Rejected = append(a.Rejected, r)
		return
	}
	a.RejectedTotal = a.rejected
}

// writeProblem answers with a problem document that says how far the body came.
func (s *Server) writeProblem(w http.ResponseWriter, e *transport.Error, ans *answer) {
	if e.Status >= http.StatusInternalServerError && e.Cause != nil {
		s.logger.Warn("events can't be taken", zap.String("code", e.Code), zap.Error(e.Cause))
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(int(e.RetryAfter/time.Second), 1)))
	}
	w.WriteHeader(e.Status)
	_ = transport.WriteJSON(w, struct {
		transport.Problem
		*answer
	}{transport.Problem{Title: http.StatusText(e.Status), Status: e.Status, Detail: e.Message, Code: e.Code}, ans})
}

// Figures is what a Server has done since its start.
type Figures struct {
	Active   int               // requests under way
	Requests uint64            // requests answered
	Accepted uint64            // events appended
	Rejected uint64            // events not appended since they are invalid
	Bytes    uint64            // of bodies
	Problems map[string]uint64 // requests by the code of the problem they were answered with
}

// counts keeps the figures.
type counts struct {
	mu  sync.Mutex
	now Figures
}

func (c *counts) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Active++
}

func (c *counts) end(a *answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Active--
	c.now.Requests++
	c.now.Accepted += uint64(a.Accepted)
	c.now.Rejected += uint64(a.rejected)
	c.now.Bytes += uint64(a.bytes)
	if err == nil {
		return
	}
	if c.now.Problems == nil {
		c.now.Problems = map[string]uint64{}
	}
	c.now.Problems[transport.ErrorFor(err).Code]++
}

// Figures returns what the server has done so far.
func (s *Server) Figures() Figures {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	f := s.counts.now
	f.Problems = maps.Clone(f.Problems)
	return f
}
