package transport

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/metrics"
)

// Problem is a problem document: RFC 9457, section 3, with a stable code instead of a type.
type Problem struct {
	Title  string `json:"title"` // of the status
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
}

// Error is an error at the HTTP edge: what the client is told, and why, for the log.
type Error struct {
	Status  int
	Code    string // stable; docs/errors.md lists them
	Message string // for the client, in words
	// RetryAfter is when it may be worth trying again, in whole seconds; 0 says nothing of it.
	RetryAfter time.Duration
	// Close is what closes a WebSocket for the same reason.
	Close CloseCode
	// Cause is for the log; nil where there is none.
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Code + ": " + e.Message
	}
	return e.Code + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// BadRequest is an error for a request that can't be understood.
func BadRequest(code, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: message, Close: CloseBadRequest}
}

// WriteProblem answers with the problem that err is (ErrorFor) and logs its cause where the fault is the hub's. Header
// fields that w has already are kept.
func WriteProblem(w http.ResponseWriter, logger *zap.Logger, err error) {
	e := ErrorFor(err)
	problems.Add(e.Code)
	if e.Status >= http.StatusInternalServerError && e.Cause != nil {
		logger.Warn("request can't be served", zap.String("code", e.Code), zap.Error(e.Cause))
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(int(e.RetryAfter/time.Second), 1)))
	}
	w.WriteHeader(e.Status)
	_ = WriteJSON(w, Problem{ // an error of the connection is net/http's
		Title: http.StatusText(e.Status), Status: e.Status, Detail: e.Message, Code: e.Code,
	})
}

// problems counts problem documents by code, of the process: they are answered by everything that speaks HTTP.
var problems metrics.Tally

// Problems is how often the process has answered with which code.
func Problems() map[string]uint64 { return problems.Read() }

// WriteJSON writes v and a newline.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
