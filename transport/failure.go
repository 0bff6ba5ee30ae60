package transport

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// failures maps the errors of the layers below to what clients are told. The first row that an error wraps counts.
var failures = [...]struct {
	is    error
	tells Error
}{
	{backfill.ErrNotBegun, Error{
		Status: http.StatusNotFound, Code: "run_not_begun", Close: CloseUnknownRun,
		Message: "the run has entries, but none that begins it: see what is withheld with aguihub check",
	}},
	{backfill.ErrUnknownRun, Error{
		Status: http.StatusNotFound, Code: "unknown_run", Close: CloseUnknownRun,
		Message: "the run is unknown",
	}},
	{backfill.ErrTooLarge, Error{
		Status: http.StatusRequestEntityTooLarge, Code: "conversation_too_large", Close: CloseTooLarge,
		Message: "the conversation is larger than this hub restates",
	}},
	{backfill.ErrGone, Error{
		Status: http.StatusGone, Code: "cursor_gone", Close: CloseGone,
		Message: "the cursor is at no entry of the run any more",
	}},
	{backfill.ErrTrimmed, Error{
		Status: http.StatusGone, Code: "run_trimmed", Close: CloseBadRequest,
		Message: "the run's first entries were trimmed: attach without from=start, or list events after a cursor",
	}},
	{hub.ErrLagged, Error{
		Status: http.StatusServiceUnavailable, Code: "too_slow", Close: CloseSlow, RetryAfter: time.Second,
		Message: "the connection is too slow for the run",
	}},
	{hub.ErrTooManyWaiting, Error{
		Status: http.StatusTooManyRequests, Code: "too_many_waiting", Close: CloseConnections, RetryAfter: 5 * time.Second,
		Message: "too many unknown runs are waited for",
	}},
	{hub.ErrLost, Error{
		Status: http.StatusGone, Code: "run_gone", Close: CloseGone,
		Message: "entries of the run are missing",
	}},
	{stream.ErrNoRun, Error{
		Status: http.StatusNotFound, Code: "unknown_run", Close: CloseUnknownRun,
		Message: "the run is unknown",
	}},
	{stream.ErrRunEnded, Error{
		Status: http.StatusConflict, Code: "run_ended", Close: CloseBadRequest,
		Message: "the run has ended",
	}},
	{stream.ErrFenced, Error{
		Status: http.StatusConflict, Code: "fenced", Close: CloseBadRequest,
		Message: "the run has another producer",
	}},
	{stream.ErrWrongType, Error{
		Status: http.StatusConflict, Code: "wrong_type", Close: CloseUnknownRun,
		Message: "the run's key in Redis is no stream",
	}},
	{hub.ErrClosed, draining},
	{stream.ErrClosed, draining},
	{stream.ErrUnavailable, Error{
		Status: http.StatusServiceUnavailable, Code: "redis_unavailable", Close: CloseOverloaded, RetryAfter: time.Second,
		Message: "Redis can't be reached at the moment",
	}},
	{stream.ErrFull, Error{
		Status: http.StatusServiceUnavailable, Code: "redis_full", Close: CloseOverloaded, RetryAfter: 5 * time.Second,
		Message: "Redis is out of memory",
	}},
	{stream.ErrDenied, Error{
		Status: http.StatusServiceUnavailable, Code: "redis_denied", Close: CloseInternal, RetryAfter: 30 * time.Second,
		Message: "Redis refuses the hub access",
	}},
	{stream.ErrBadRunID, Error{
		Status: http.StatusBadRequest, Code: "bad_run_id", Close: CloseBadRequest, Message: "the run id can't be used",
	}},
	{stream.ErrBadThreadID, Error{
		Status: http.StatusBadRequest, Code: "bad_thread_id", Close: CloseBadRequest,
		Message: "the thread id can't be used",
	}},
	{stream.ErrBadCursor, Error{
		Status: http.StatusBadRequest, Code: "bad_cursor", Close: CloseBadRequest, Message: "the cursor can't be read",
	}},
	{context.Canceled, Error{ // whoever ends a request for another reason says so by the cause
		Status: statusClientLeft, Code: "client_left", Close: CloseDraining,
		Message: "the client left before there was an answer",
	}},
	{context.DeadlineExceeded, Error{
		Status: http.StatusServiceUnavailable, Code: "timeout", Close: CloseOverloaded, RetryAfter: time.Second,
		Message: "the answer took too long",
	}},
}

// statusClientLeft is what nginx logs for the same. Nobody is there to read it; it keeps such requests apart from faults.
const statusClientLeft = 499

var draining = Error{
	Status: http.StatusServiceUnavailable, Code: "draining", Close: CloseDraining, RetryAfter: time.Second,
	Message: "the hub is stopping",
}

// Draining is what a hub that stops tells new requests.
func Draining() *Error {
	e := draining
	return &e
}

// ErrorFor is what clients are told of an error of the layers below; an unknown one is internal. An *Error stays as it
// is. err must not be nil.
func ErrorFor(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	for i := range failures {
		if errors.Is(err, failures[i].is) {
			e := failures[i].tells
			e.Cause = err
			return &e
		}
	}
	return &Error{
		Status: http.StatusInternalServerError, Code: "internal", Close: CloseInternal,
		Message: "an internal error, which the hub has logged", Cause: err,
	}
}
