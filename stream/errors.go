package stream

import (
	"errors"
	"fmt"
)

var (
	// ErrWrongType says that a key holds something else than its name promises, e.g. a string where a
	// run's stream should be. It concerns that key alone.
	ErrWrongType = errors.New("stream: key of another type")
	// ErrLost says that the entry at a reader's position isn't there any more, or isn't the same: trimmed, lost in a
	// failover or a restart, or the key was deleted or recreated. What is there now doesn't go on from that position.
	ErrLost = errors.New("stream: the entry at the position is gone")
	// ErrUnavailable says that Redis can't be reached or can't serve now (loading, failing over). The cause is
	// wrapped too. Reads may be tried again; what it means for appends is at [AppendError].
	ErrUnavailable = errors.New("stream: redis unavailable")
	// ErrDenied says that Redis refuses this user the key or the command (NOAUTH, WRONGPASS, NOPERM).
	ErrDenied = errors.New("stream: denied by redis")
	// ErrFull says that Redis is out of memory and takes no writes. Nothing was written.
	ErrFull = errors.New("stream: redis out of memory")
	// ErrClosed says that the log was closed.
	ErrClosed = errors.New("stream: closed")
)

// AppendError says how far an append came. Appended records, the first ones, are certainly in the stream under
// IDs. Of the others none is, except where Err is [ErrUnavailable] or the context's error: then the answer was
// lost, and they may be there or not. To find out read the stream; appending again may append twice.
type AppendError struct {
	Appended int   // number of records known to be appended
	IDs      []ID  // their ids, len(IDs) == Appended
	Err      error // the cause; never nil
}

// Error implements error.
func (e *AppendError) Error() string {
	return fmt.Sprintf("stream: append, %d done: %v", e.Appended, e.Err)
}

// Unwrap returns the cause.
func (e *AppendError) Unwrap() error { return e.Err }
