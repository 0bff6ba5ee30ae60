package agents

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

func tooLargeInput() error {
	return &transport.Error{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Message: "the body is too large"}
}

// problemOf says why a run wasn't started.
func problemOf(err error) error {
	if bad, ok := errors.AsType[*publish.InvalidError](err); ok {
		if bad.Reason == agui.ReasonTooLarge {
			return tooLargeInput()
		}
		return invalidInput("the body isn't a RunAgentInput: " + bad.Detail)
	}
	if busy, ok := errors.AsType[*bridge.BusyError](err); ok {
		return &transport.Error{Status: http.StatusConflict, Code: "thread_busy", Message: busyText(busy.Run)}
	}
	if open, ok := errors.AsType[*bridge.InterruptError](err); ok {
		return &transport.Error{
			Status: http.StatusConflict, Code: "interrupts_open",
			Message: "resume must answer every open interrupt of the thread; these are missing: " + strings.Join(open.Missing, ", "),
		}
	}
	return problemOfKind(err)
}

// problemOfKind deals with errors that hold no data.
func problemOfKind(err error) error {
	switch {
	case errors.Is(err, bridge.ErrUnknownAgent):
		return &transport.Error{Status: http.StatusNotFound, Code: "unknown_agent", Message: "there is no such agent: /v1/agents lists them"}
	case errors.Is(err, bridge.ErrFull):
		return &transport.Error{
			Status: http.StatusServiceUnavailable, Code: "too_many_runs", RetryAfter: 2 * time.Second,
			Message: "as many runs as this hub takes are under way",
		}
	case errors.Is(err, bridge.ErrClosed):
		return transport.Draining()
	case errors.Is(err, publish.ErrExists), errors.Is(err, publish.ErrEnded):
		return &transport.Error{
			Status: http.StatusConflict, Code: "run_exists", Message: "there is a run of this runId already: each run needs one of its own",
		}
	case errors.Is(err, stream.ErrBadRunID), errors.Is(err, stream.ErrBadThreadID):
		return invalidInput("an id of the RunAgentInput can't be used: " + idDetail(err))
	default:
		return err
	}
}

func invalidInput(message string) error {
	return &transport.Error{Status: http.StatusUnprocessableEntity, Code: "invalid_input", Message: message}
}

func busyText(run string) string {
	who := "a run"
	if run != "" {
		who = "run " + run
	}
	return who + " of the thread goes on; ?concurrent=supersede cancels it"
}

// idDetail is what is wrong with an id; the texts of package stream never repeat it.
func idDetail(err error) string {
	text := err.Error()
	for _, kind := range []error{stream.ErrBadRunID, stream.ErrBadThreadID} {
		text = strings.Replace(text, kind.Error()+": ", "", 1)
	}
	return text
}
