package transport

import (
	"errors"
	"net/http"
	"strings"

	"github.com/aguihub/aguihub/stream"
)

// Names of the ids in patterns of paths.
const (
	PathRun    = "runId"
	PathThread = "threadId"
)

// RunID is the run that the path names. The mux has percent-decoded it, exactly once.
func RunID(r *http.Request) (stream.RunID, error) {
	run, err := stream.ParseRunID(r.PathValue(PathRun))
	if err != nil {
		return "", badID("bad_run_id", stream.ErrBadRunID, err)
	}
	return run, nil
}

// ThreadID is the thread that the path names, as RunID.
func ThreadID(r *http.Request) (stream.ThreadID, error) {
	thread, err := stream.ParseThreadID(r.PathValue(PathThread))
	if err != nil {
		return "", badID("bad_thread_id", stream.ErrBadThreadID, err)
	}
	return thread, nil
}

// badID tells the client what is wrong with an id; the texts of package stream never repeat it.
func badID(code string, kind, err error) *Error {
	text := strings.TrimPrefix(err.Error(), kind.Error()+": ")
	e := BadRequest(code, "the id can't be used: "+text)
	e.Cause = errors.Join(err)
	return e
}
