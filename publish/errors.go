package publish

import (
	"errors"
	"fmt"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

var (
	// ErrExists is returned by [Publisher.Open] for a run that has entries already, unless RunConfig.Continue says
	// that this is expected.
	ErrExists = errors.New("publish: the run has entries already")
	// ErrEnded says that the run is over: its terminal event is in the log, or on its way there.
	ErrEnded = errors.New("publish: the run has ended")
	// ErrOtherThread is returned by [Publisher.Open] for a run that began in another thread: it stays there.
	ErrOtherThread = errors.New("publish: the run belongs to another thread")
	// ErrTrimmed is returned by [Publisher.Open] for a run whose first entries a hub has trimmed, where the checkpoint that
	// stands for them is damaged or of another version: nobody can tell what may come next in it.
	ErrTrimmed = errors.New("publish: the run was trimmed and its checkpoint can't be read")
	// ErrNotStarted is returned by [Run.Finish] where the run has no RUN_STARTED that it could answer to.
	ErrNotStarted = errors.New("publish: the run has not started")
	// ErrReleased is returned by methods of a Run after Release or Close.
	ErrReleased = errors.New("publish: the run was released")
	// ErrFenced says that another producer has taken the run over, or that a hub has ended it since this one gave no sign
	// of life. Nothing that this producer writes gets into the log any more. It is stream.ErrFenced.
	ErrFenced = stream.ErrFenced
	// ErrBadSequence is returned by [Publisher.Open] for a Sequence that can't be one.
	ErrBadSequence = errors.New("publish: bad sequence")
	// ErrCancelled is what the cause of a run's context is once somebody has asked to cancel the run: see [CancelledError].
	ErrCancelled = errors.New("publish: the run is to be cancelled")
)

// CancelledError says who cancels a run, and why. It comes from whoever may reach the hub.
type CancelledError struct {
	Reason string // in words, at most 1,000 bytes; may be empty
	By     string // may be empty
}

// Error implements error.
func (e *CancelledError) Error() string {
	if e.Reason == "" {
		return ErrCancelled.Error()
	}
	return ErrCancelled.Error() + ": " + e.Reason
}

// Is makes it an ErrCancelled.
func (e *CancelledError) Is(target error) bool { return target == ErrCancelled }

// InvalidError says that an event, or an input, isn't one that the official client would take here. It was not appended
// and left no trace: the run goes on as if it had not been offered.
type InvalidError struct {
	Index  int         // of the event among those of the call
	Path   string      // JSON Pointer to what is wrong; "" where it is the whole event or its place in the run
	Reason agui.Reason // as subscribers and metrics would have it
	Detail string      // in words for people, at most 300 bytes
	// Terminal says that the event was meant to end the run. Withholding it leaves the run open.
	Terminal bool
}

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("publish: event %d is %s: %s", e.Index, e.Reason, e.Detail)
}

// Is makes what comes after the end of a run an ErrEnded.
func (e *InvalidError) Is(target error) bool {
	return target == ErrEnded && e.Reason == agui.ReasonAfterEnd
}

// WriteError says how far a Run came when writing to the log failed. The run takes nothing more after it. To go on open
// it again with RunConfig.Continue: that reads what the log really has, and fences off what may still be on its way.
type WriteError struct {
	Written   int       // events that are certainly in the log, since Open
	Uncertain int       // events behind those whose answer was lost until Config.WriteTimeout was over: in the log or not
	Unwritten int       // events behind those that are certainly not in the log
	LastID    stream.ID // entry of the last event that is certainly there; zero if none
	Err       error     // the cause; never nil
}

// Error implements error.
func (e *WriteError) Error() string {
	return fmt.Sprintf("publish: %d written, %d uncertain, %d not written: %v", e.Written, e.Uncertain, e.Unwritten, e.Err)
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }
