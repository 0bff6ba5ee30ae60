package bridge

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnknownAgent is returned by [Bridge.Start] for a name that the configuration lacks.
	ErrUnknownAgent = errors.New("bridge: no such agent")
	// ErrFull is returned by [Bridge.Start] while Config.MaxRuns runs are under way.
	ErrFull = errors.New("bridge: too many runs")
	// ErrClosed is returned by [Bridge.Start] after Close.
	ErrClosed = errors.New("bridge: closed")
)

// BusyError says that a run of the thread goes on.
type BusyError struct{ Run string }

// Error implements error.
func (e *BusyError) Error() string { return fmt.Sprintf("bridge: run %q of the thread goes on", e.Run) }

// InterruptError says that an input resumes a thread and leaves some of its open interrupts without an answer.
type InterruptError struct{ Missing []string }

// Error implements error.
func (e *InterruptError) Error() string {
	return "bridge: open interrupts without an answer: " + strings.Join(e.Missing, ", ")
}

// Codes of the RUN_ERROR that ends a run whose agent didn't end it: docs/errors.md.
const (
	CodeUnreachable = "agent_unreachable" // there was no connection, or none that lasted until the answer's header
	CodeTimeout     = "agent_timeout"     // one of the Limits was reached
	CodeStatus      = "agent_status"      // the answer's status isn't 2xx
	CodeEmpty       = "agent_empty"       // the answer has no byte
	CodeInvalid     = "agent_invalid"     // the answer has no event that the run could begin with
	CodeCut         = "agent_cut"         // the answer ended, or broke off, without a terminal event
	CodeInvalidEnd  = "invalid_end"       // the terminal event is malformed
	CodeStopped     = "hub_stopped"       // the hub was stopped during the run
	CodeUnwritten   = "hub_unwritten"     // the log didn't take the agent's events
)

// failure is an end that the agent didn't make.
type failure struct {
	code, message string
	cause         error // for the log; nil where there is none
}

// Error implements error.
func (f *failure) Error() string {
	if f.cause == nil {
		return f.code + ": " + f.message
	}
	return f.code + ": " + f.cause.Error()
}

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.cause }

// Reasons for which a call is broken off, as causes of its context.
var (
	errSuperseded = errors.New("bridge: superseded by a newer run")
	errStopped    = errors.New("bridge: stopped")
	errFirstByte  = errors.New("bridge: the answer didn't begin in time")
	errSilence    = errors.New("bridge: the agent was silent for too long")
	errTotal      = errors.New("bridge: the run took too long")
)
