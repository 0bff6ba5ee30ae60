package load

import (
	"context"
	"io"

	"github.com/aguihub/aguihub/loadtest/process"
)

// Party is one of those that are compared: something that gets events from publishers to subscribers.
type Party struct {
	Name string
	// Redis has what redis-server needs beyond the rest in its command line.
	Redis []string
	// Start starts its programs on a Redis that is there.
	Start func(ctx context.Context, s Setting) (System, error)
}

// Setting is what a party starts in.
type Setting struct {
	Redis *Redis
	Hubs  int
	Dir   string    // for its files
	Log   io.Writer // of its programs; nil for none
}

// System is a party that runs. Its methods may be called by any number of goroutines, but for Close.
type System interface {
	// Programs are those whose cost is the hub's; none where there is no hub.
	Programs() []*process.Process
	// Publish publishes events, in order, and returns their entry ids where there are such. It waits for the answer.
	Publish(ctx context.Context, events []Event) (ids []string, err error)
	// Attach brings subscriber number i of a run to where the live tail begins.
	Attach(ctx context.Context, run, i int) (Stream, error)
	// Close ends the programs. All streams must have been closed.
	Close()
}

// Stream is what a subscriber gets.
type Stream interface {
	// Next waits for what comes next, which is good until it is called again: one event or more with whatever is around them.
	Next() ([]byte, error)
	// Close ends the stream, and a Next that waits. It may be called at any time.
	Close() error
}

// profiler is a System whose first hub can be looked into.
type profiler interface {
	// debug is the base of net/http/pprof's paths.
	debug() string
}

// ranked is a System of hubs at which package checker can attach.
type ranked interface{ bases() []string }
