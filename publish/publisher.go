package publish

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
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
	// DefaultWriteTimeout is above the 5 s after which the log itself gives up, so that a lost answer is asked for again.
	DefaultWriteTimeout = 10 * time.Second
	// DefaultLeaseTTL is that of docs/contract.md, section 6.
	DefaultLeaseTTL = 30 * time.Second
	// DefaultPoll is how often the control streams of open runs are looked at: soon enough for somebody who has pressed a
	// button, and at 1,000 runs less than a hundredth of what Redis can do (BenchmarkKeep).
	DefaultPoll = 500 * time.Millisecond
)

// renewals is how often a lease is renewed in its TTL.
const renewals = 3

// maxProducer bounds a producer's name, in bytes.
const maxProducer = 128

// Log is where events are appended. *stream.Redis and *stream.Memory are logs.
type Log interface {
	Claim(ctx context.Context, run stream.RunID, c stream.Claim) (stream.Claimed, error)
	AppendFenced(ctx context.Context, run stream.RunID, a stream.FencedAppend, recs ...stream.Record) (stream.Appended, error)
	Keep(ctx context.Context, holds []stream.Hold) ([]stream.Kept, error)
	PastReader
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
	// what became of it. Within it a write whose answer was lost is tried again. 0 means [DefaultWriteTimeout].
	WriteTimeout time.Duration
	// Producer names this process to others who write the same runs: [A-Za-z0-9._~-], at most 128 bytes. Empty means a
	// random name.
	Producer string
	// LeaseTTL is after how long without a sign of life a run's producer counts as lost; leases are renewed three times as
	// often. It should be the hubs'. 0 means [DefaultLeaseTTL].
	LeaseTTL time.Duration
	// Poll is how often it is looked whether runs were cancelled. 0 means [DefaultPoll].
	Poll time.Duration
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
	for _, d := range []struct {
		v         *time.Duration
		otherwise time.Duration
	}{{&c.WriteTimeout, DefaultWriteTimeout}, {&c.LeaseTTL, DefaultLeaseTTL}, {&c.Poll, DefaultPoll}} {
		if *d.v == 0 {
			*d.v = d.otherwise
		}
	}
	if c.Producer == "" {
		c.Producer = randomName()
	}
	return c
}

// randomName returns 96 random bits: a name that no other process has.
func randomName() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return hex.EncodeToString(b[:])
}

// validProducer says whether a producer may be called so.
func validProducer(name string) bool {
	const others = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-"
	return len(name) <= maxProducer && strings.Trim(name, others) == "" && name != ""
}

func (c Config) validate() error {
	switch {
	case c.MaxEvent < 0, c.BatchEvents < 0, c.BatchBytes < 0, c.WriteTimeout < 0, c.LeaseTTL < 0, c.Poll < 0:
		return errors.New("publish: a limit is negative")
	case c.Producer != "" && !validProducer(c.Producer):
		return errors.New("publish: the producer's name isn't 1 to 128 of A-Z, a-z, 0-9 and ._~-")
	case c.Window < 0 || c.Window > MaxWindow:
		return fmt.Errorf("publish: window %v, want 0 to %v", c.Window, MaxWindow)
	}
	return nil
}

// Publisher opens runs. Its methods may be called by any number of goroutines at once. It has one goroutine, which renews
// the leases of all its runs and hears of cancels, and which ends when the last of them is released.
type Publisher struct {
	log      Log
	registry Registry
	cfg      Config
	keeper   keeper
	pasts    pasts
}

// New returns a publisher that writes to log and announces in registry, both of which stay the caller's. It fails if
// cfg is invalid.
func New(log Log, registry Registry, cfg Config) (*Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Publisher{log: log, registry: registry, cfg: cfg, keeper: keeper{log: log, ttl: cfg.LeaseTTL, poll: cfg.Poll}}, nil
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
	// ClaimIn claims the run before Open returns, not with its first event: for agents that take their time before it. If this
	// process dies meanwhile, a hub begins the run in this thread, with Input, and ends it. The run's RUN_STARTED may name
	// another one all the same. The registry is told meanwhile; should that fail the Run is broken. Empty means that the run
	// is claimed with its first event.
	ClaimIn stream.ThreadID
	// Continue allows a run that has entries: they are read, and what comes is judged as what comes behind them. A
	// RUN_STARTED then begins the run anew for everybody.
	Continue bool
	// Sequence makes it safe to offer the same events again in another Run, perhaps of another process. Nil means that
	// this Run is a producer of its own, with the run's next epoch: whoever else writes the run is fenced off.
	Sequence *Sequence
}

// Sequence says who offers events, and where the first of them stands among all that the producer has offered in its
// epoch: 0 is the first. Those that are in the log already are passed over. A later epoch fences off the earlier ones,
// and counts from 0 again.
type Sequence struct {
	Producer string // as Config.Producer
	Epoch    uint64 // from 1 on, below 2^53
	Seq      uint64 // below 2^53
}

func (s *Sequence) validate() error {
	switch {
	case !validProducer(s.Producer):
		return fmt.Errorf("%w: the producer isn't 1 to 128 of A-Z, a-z, 0-9 and ._~-", ErrBadSequence)
	case s.Epoch < 1 || s.Epoch >= 1<<53:
		return fmt.Errorf("%w: the epoch isn't a number from 1 on", ErrBadSequence)
	case s.Seq >= 1<<53:
		return fmt.Errorf("%w: the sequence number isn't one", ErrBadSequence)
	}
	return nil
}

// Open announces the run as started, where its thread is known, and returns it ready for Append. It reads what the log
// has of the run, so that its cost grows with that, unless this publisher knows the run already, or claims a new one; ctx
// bounds it. The first
// event claims the run: other producers of it are fenced off then. Errors: those of stream.ParseRunID and
// ParseThreadID, *InvalidError for the input, ErrExists, ErrEnded, ErrOtherThread, ErrTrimmed, ErrBadSequence, *WriteError, with
// Sequence ErrFenced and *stream.GapError, and what the log says when it can't be
// read (stream.ErrUnavailable and others); after that one nothing was written. The caller must end the returned Run with
// Finish, Fail or Close, or let go of it with Release.
func (p *Publisher) Open(ctx context.Context, rc RunConfig) (*Run, error) {
	if err := rc.validate(); err != nil {
		return nil, err
	}
	if rc.ClaimIn != "" && !rc.Continue && rc.Sequence == nil {
		r, err := p.openFresh(ctx, rc)
		if !errors.Is(err, stream.ErrRunExists) && !errors.Is(err, stream.ErrRunEnded) {
			return r, err
		} // what there is says which error it is
	}
	r := newRun(ctx, p)
	var err error
	if r.past, err = p.recall(ctx, rc.Run); err != nil {
		return nil, fmt.Errorf("read the run's log: %w", err)
	}
	if err := r.prepare(ctx, rc); err != nil {
		r.cancel(ErrReleased)
		p.keeper.remove(r)
		p.pasts.put(r.past)
		return nil, err
	}
	return r.opened(r.begin(ctx, rc))
}

// openFresh opens a run that is taken for a new one: the log isn't read, and the claim says if it isn't.
func (p *Publisher) openFresh(ctx context.Context, rc RunConfig) (*Run, error) {
	r := newRun(ctx, p)
	r.past, r.fresh = newPast(rc.Run), true
	return r.opened(r.begin(ctx, rc))
}

// opened is what Open returns of a run that was begun, or not.
func (r *Run) opened(err error) (*Run, error) {
	if err == nil {
		return r, nil
	}
	r.cancel(ErrReleased)
	r.timers.Wait()
	r.pub.keeper.remove(r)
	return nil, err
}

// recall is what the log has of a run, from what is known of it already where that still holds.
func (p *Publisher) recall(ctx context.Context, run stream.RunID) (past, error) {
	if known, found := p.pasts.take(run); found {
		same, err := known.replay(ctx, p.log, p.cfg.MaxEvent, nil)
		if err == nil && same {
			return known, nil
		}
		if err != nil {
			return past{}, err
		}
	}
	return readPast(ctx, p.log, run, p.cfg.MaxEvent)
}

// prepare says whether the run may be written. Where it may not, nothing has changed.
func (r *Run) prepare(ctx context.Context, rc RunConfig) error {
	switch {
	case r.headless:
		return ErrTrimmed
	case r.adm.Ended() && rc.Sequence == nil:
		return ErrEnded
	case r.existed && !rc.Continue:
		return ErrExists
	case rc.Thread != "" && r.info.Thread != "" && r.info.Thread != rc.Thread:
		return fmt.Errorf("%w: %q", ErrOtherThread, r.info.Thread)
	case rc.Sequence != nil:
		return r.takeUp(ctx, *rc.Sequence)
	}
	return nil
}

// begin writes what is known of the run before its first event.
func (r *Run) begin(ctx context.Context, rc RunConfig) error {
	if r.info.Thread == "" {
		r.info.Thread = rc.Thread
	}
	if r.info.Parent == "" {
		r.info.Parent = rc.Parent
	}
	if rc.Input != nil {
		if err := r.SetInput(rc.Input); err != nil {
			return err
		}
	}
	if rc.ClaimIn != "" {
		if err := r.claimEarly(ctx, rc.ClaimIn); err != nil {
			return err
		}
	}
	if rc.Start {
		return r.start(ctx)
	}
	if rc.Thread != "" && !r.existed {
		return r.announceNow(ctx)
	}
	return nil
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
	if rc.ClaimIn != "" {
		if _, err := stream.ParseThreadID(string(rc.ClaimIn)); err != nil {
			return err
		}
	}
	if rc.Parent != "" {
		if _, err := stream.ParseRunID(string(rc.Parent)); err != nil {
			return fmt.Errorf("parent: %w", err)
		}
	}
	if rc.Sequence != nil {
		return rc.Sequence.validate()
	}
	return nil
}
