package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// Defaults of Config.
const (
	// DefaultWindow keeps a delta well under what a reader notices, and lets a fast model's deltas share a write.
	DefaultWindow = 10 * time.Millisecond
	// MaxWindow bounds Config.Window: an event may be late by so much and no more.
	MaxWindow = 20 * time.Millisecond
	// DefaultBatchEvents and DefaultBatchBytes bound one transaction, during which Redis serves nobody else.
	DefaultBatchEvents = 256
	DefaultBatchBytes  = 512 << 10
	// DefaultWriteTimeout is above the 5 s after which the log itself gives up.
	DefaultWriteTimeout = 10 * time.Second
)

// Log is where events are appended. *stream.Redis and *stream.Memory are logs.
type Log interface {
	Append(ctx context.Context, run stream.RunID, recs ...stream.Record) ([]stream.ID, error)
	Range(ctx context.Context, run stream.RunID, after stream.ID, maxEntries, maxBytes int) (stream.Page, error)
}

// Registry is where runs are announced. *stream.Registry is one.
type Registry interface {
	Announce(ctx context.Context, info stream.RunInfo) error
}

// Config says how a Publisher writes. The zero value is ready for use; nothing may change while running.
type Config struct {
	// MaxEvent is the largest event, and the largest input, in bytes. 0 means [agui.DefaultMaxEvent]. It should be the hubs'.
	MaxEvent int
	// PassInvalid appends whatever is valid JSON with a type, as hubs with --invalid=pass send it.
	PassInvalid bool
	// Window is how long an event may wait for others to share a write. 0 means [DefaultWindow], and more than
	// [MaxWindow] is an error.
	Window time.Duration
	// BatchEvents and BatchBytes end the wait when so much is buffered, and bound one write, which has at least one
	// event. 0 means [DefaultBatchEvents] and [DefaultBatchBytes].
	BatchEvents int
	BatchBytes  int
	// WriteTimeout bounds one write, also where the caller's context has ended: cutting a write short would leave open
	// what became of it. 0 means [DefaultWriteTimeout].
	WriteTimeout time.Duration
}

func (c Config) withDefaults() Config {
	fill := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	fill(&c.MaxEvent, agui.DefaultMaxEvent)
	fill(&c.BatchEvents, DefaultBatchEvents)
	fill(&c.BatchBytes, DefaultBatchBytes)
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = DefaultWriteTimeout
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.MaxEvent < 0, c.BatchEvents < 0, c.BatchBytes < 0, c.WriteTimeout < 0:
		return errors.New("publish: a limit is negative")
	case c.Window < 0 || c.Window > MaxWindow:
		return fmt.Errorf("publish: window %v, want 0 to %v", c.Window, MaxWindow)
	}
	return nil
}

// Publisher opens runs. Its methods may be called by any number of goroutines at once. It holds nothing that would
// need closing.
type Publisher struct {
	log      Log
	registry Registry
	cfg      Config
}

// New returns a publisher that writes to log and announces in registry, both of which stay the caller's. It fails if
// cfg is invalid.
func New(log Log, registry Registry, cfg Config) (*Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Publisher{log: log, registry: registry, cfg: cfg.withDefaults()}, nil
}

// RunConfig is the run that is opened.
type RunConfig struct {
	// Run names it. It must keep the rules of [stream.ParseRunID].
	Run stream.RunID
	// Thread is the thread it belongs to. It may be empty unless Start is set: then the first RUN_STARTED says it.
	Thread stream.ThreadID
	// Parent is the run of the same thread that it goes on from, if that isn't the newest one.
	Parent stream.RunID
	// Input is the RunAgentInput as JSON, the user's message in it. It is recorded with the run's first entry; without it
	// the run's history is partial. Nil means that it isn't known (yet: see [Run.SetInput]).
	Input []byte
	// Start writes RUN_STARTED before Open returns.
	Start bool
	// Continue allows a run that has entries: they are read, and what comes is judged as what comes behind them. A
	// RUN_STARTED then begins the run anew for everybody.
	Continue bool
}

// Open announces the run as started, where its thread is known, and returns it ready for Append. It reads what the log
// has of the run, so that its cost grows with that; ctx bounds it. Errors: those of stream.ParseRunID and
// ParseThreadID, *InvalidError for the input, ErrExists, ErrEnded,
// ErrOtherThread, *WriteError, and what the log says when it can't be
// read (stream.ErrUnavailable and others); after that one nothing was written. The caller must end the returned Run with
// Finish, Fail or Close, or let go of it with Release. One process at a time should write a run.
func (p *Publisher) Open(ctx context.Context, rc RunConfig) (*Run, error) {
	if err := rc.validate(); err != nil {
		return nil, err
	}
	r := &Run{
		pub:     p,
		info:    stream.RunInfo{Run: rc.Run},
		writing: make(chan struct{}, 1),
	}
	if err := r.replay(ctx); err != nil {
		return nil, fmt.Errorf("read the run's log: %w", err)
	}
	switch {
	case r.adm.Ended():
		return nil, ErrEnded
	case r.existed && !rc.Continue:
		return nil, ErrExists
	case rc.Thread != "" && r.info.Thread != "" && r.info.Thread != rc.Thread:
		return nil, fmt.Errorf("%w: %q", ErrOtherThread, r.info.Thread)
	}
	if r.info.Thread == "" {
		r.info.Thread = rc.Thread
	}
	if r.info.Parent == "" {
		r.info.Parent = rc.Parent
	}
	if rc.Input != nil {
		if err := r.SetInput(rc.Input); err != nil {
			return nil, err
		}
	}
	if rc.Start {
		if err := r.start(ctx); err != nil {
			return nil, err
		}
		return r, nil
	}
	if rc.Thread != "" && !r.existed {
		if err := r.announceNow(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (rc RunConfig) validate() error {
	if _, err := stream.ParseRunID(string(rc.Run)); err != nil {
		return err
	}
	if rc.Thread != "" || rc.Start {
		if _, err := stream.ParseThreadID(string(rc.Thread)); err != nil {
			return err
		}
	}
	if rc.Parent != "" {
		if _, err := stream.ParseRunID(string(rc.Parent)); err != nil {
			return fmt.Errorf("parent: %w", err)
		}
	}
	return nil
}
