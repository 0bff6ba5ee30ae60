package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// Codes of the RUN_ERROR that a Reaper writes.
const (
	// CodeProducerLost is that of a run whose producer's lease lapsed.
	CodeProducerLost = "producer_lost"
	// CodeIdle is that of a run without a lease in which nothing came for too long.
	CodeIdle = "idle"
)

// ReaperLog is where a Reaper looks at runs and ends them. *stream.Redis and *stream.Memory are such logs.
type ReaperLog interface {
	RunReader
	LeaseBook
	RunEnder
}

// RunReader reads runs.
type RunReader interface {
	PastReader
	Bounds(ctx context.Context, runs ...stream.RunID) ([]stream.Bounds, error)
}

// LeaseBook tells how leases stand, and keeps what was seen of them.
type LeaseBook interface {
	Leases(ctx context.Context, runs ...stream.RunID) ([]stream.Lease, error)
	NoteLeases(ctx context.Context, runs ...stream.RunID) error
	ShortenLeases(ctx context.Context, most time.Duration, runs ...stream.RunID) error
}

// RunEnder ends runs.
type RunEnder interface {
	Reap(ctx context.Context, run stream.RunID, r stream.Reap, events ...[]byte) ([]stream.ID, error)
	Settle(ctx context.Context, run stream.RunID, epoch uint64) error
}

// ReaperRegistry is where a Reaper learns of runs. *stream.Registry is one.
type ReaperRegistry interface {
	List(ctx context.Context, before stream.ID, limit int) ([]stream.RunEvent, stream.ID, error)
	Announce(ctx context.Context, info stream.RunInfo) error
}

// ReaperConfig is how a Reaper goes about it. The zero value is ready for use; nothing may change while running.
type ReaperConfig struct {
	// Name is who ends the runs, as Config.Producer. Empty means a random name.
	Name string
	// LeaseTTL is the producers'. It decides how often runs are looked at, six times in a TTL, and for how long a lease must
	// have been lapsed, half of it: a run ends within another TTL after the lapse. 0 means [DefaultLeaseTTL].
	LeaseTTL time.Duration
	// Idle ends runs that have no lease and got no entry for so long. 0 means never.
	Idle time.Duration
	// MaxEvent is the hubs'. 0 means [agui.DefaultMaxEvent].
	MaxEvent int
	// MaxRuns bounds the runs that are looked at: those that started last. 0 means 10,000.
	MaxRuns int
	// Stalled is told of each run whose lease has lapsed, and since when by the clock of Redis in milliseconds, at each look
	// at it. It must not block. Nil means nobody.
	Stalled func(run stream.RunID, sinceMs int64)
}

// Shares of the TTL. A lease may be gone though its producer lives: the clock of Redis was set, or Redis lost the key. It is
// there again with the next renewal, which the grace outlasts.
const (
	scansPerTTL  = 6
	gracesPerTTL = 2
	// A run that nobody was seen to claim is looked at in every third scan: a lease is seen long before it can lapse.
	scansPerUnclaimed = 3
)

// longLease is how many TTLs a publisher's lease may have left before it counts as one that was set before the clock of Redis
// was set back: publishers choose their TTL themselves, though it should be the hubs'.
const longLease = 5

// reapers is how many runs are ended at once.
const reapers = 4

func (c ReaperConfig) withDefaults() ReaperConfig {
	if c.Name == "" {
		c.Name = randomName()
	}
	if c.LeaseTTL <= 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.MaxEvent <= 0 {
		c.MaxEvent = agui.DefaultMaxEvent
	}
	if c.MaxRuns <= 0 {
		c.MaxRuns = 10_000
	}
	if c.Stalled == nil {
		c.Stalled = func(stream.RunID, int64) {}
	}
	return c
}

// Reaper ends the runs whose producers are lost. Any number may work on the same runs: each run is ended once. It goes by
// the leases and the clock of Redis alone: how well a producer can be reached, and what its clock or the Reaper's says,
// doesn't matter. What it ends is fenced off from its producer in the same moment.
type Reaper struct {
	log      ReaperLog
	registry ReaperRegistry
	cfg      ReaperConfig
	logger   *zap.Logger

	// owned by Run
	active map[stream.RunID]*activeRun
	newest stream.ID // of the registry's entries that were read
	first  bool      // nothing was read yet

	mu      sync.Mutex
	figures ReaperFigures
}

// activeRun is a run that has started and whose end the registry doesn't know.
type activeRun struct {
	info    stream.RunInfo
	started stream.ID // of the registry's entry

	rests    int       // scans that it isn't looked at in
	lapsedAt time.Time // when the lapse of its lease was seen; zero while it holds
	lookAt   time.Time // without a lease it isn't to be read before then; zero where that wasn't considered yet
	last     stream.ID // its newest entry when it was looked at for being idle, and since when that is so
	since    time.Time
}

// ReaperFigures is what a Reaper has done since its start.
type ReaperFigures struct {
	Active  int    // runs that are looked at
	Stalled int    // of them, those whose lease has lapsed
	Lost    uint64 // runs ended by this Reaper with the code producer_lost
	Idle    uint64 // with the code idle
}

// NewReaper returns a reaper, which works while Run runs.
func NewReaper(log ReaperLog, registry ReaperRegistry, cfg ReaperConfig, logger *zap.Logger) *Reaper {
	return &Reaper{
		log: log, registry: registry, cfg: cfg.withDefaults(), logger: logger, active: map[stream.RunID]*activeRun{}, first: true,
	}
}

// Figures returns what the reaper has done so far.
func (r *Reaper) Figures() ReaperFigures {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.figures
}

// Run looks at the runs until ctx ends, and returns ctx's error. It may be called once.
func (r *Reaper) Run(ctx context.Context) error {
	every := r.cfg.LeaseTTL / scansPerTTL
	for {
		if err := r.scan(ctx); err != nil && ctx.Err() == nil {
			r.logger.Warn("looking for lost producers", zap.Error(err))
		}
		if !wait(ctx, every*9/10+rand.N(every/5+1)) { // hubs that were started together part
			return ctx.Err()
		}
	}
}

// scan looks at all active runs once.
func (r *Reaper) scan(ctx context.Context) error {
	if err := r.learn(ctx); err != nil {
		return err
	}
	runs := make([]stream.RunID, 0, len(r.active))
	for run, a := range r.active {
		if a.rests--; a.rests < 0 {
			runs = append(runs, run)
		}
	}
	leases, err := r.log.Leases(ctx, runs...)
	if err != nil {
		return err
	}
	var note, shorten []stream.RunID
	var due []reaping
	stalled := 0
	now := time.Now()
	for i, run := range runs {
		l, a := leases[i], r.active[run]
		if a.rests = 0; !l.Known && !l.Held && r.cfg.Idle == 0 {
			a.rests = scansPerUnclaimed - 1
		}
		switch {
		case l.Held:
			a.lapsedAt = time.Time{}
			if !l.Known || l.LapsedMs > 0 {
				note = append(note, run)
			}
			if l.Epoch > 0 && l.Left > longLease*r.cfg.LeaseTTL {
				shorten = append(shorten, run)
			}
		case l.Known && !l.Ended:
			stalled++
			if l.LapsedMs == 0 {
				note = append(note, run)
			}
			if r.lapsed(a, l, now) {
				due = append(due, reaping{run: a, lease: l})
			}
		case r.worthALook(a, l, now):
			due = append(due, reaping{run: a, lease: l, idle: !l.Known})
		}
	}
	r.mu.Lock()
	r.figures.Active, r.figures.Stalled = len(r.active), stalled
	r.mu.Unlock()
	if err := errors.Join(r.log.NoteLeases(ctx, note...), r.log.ShortenLeases(ctx, r.cfg.LeaseTTL, shorten...)); err != nil {
		return err
	}
	return r.reapAll(ctx, due)
}

// lapsed tells of a run whose lease has lapsed, and says whether it may be time to end it. The clock of Redis decides in the
// end; before then it isn't worth asking.
func (r *Reaper) lapsed(a *activeRun, l stream.Lease, now time.Time) bool {
	if a.lapsedAt.IsZero() {
		a.lapsedAt = now
	}
	if l.LapsedMs == 0 { // nobody has noted it yet
		return false
	}
	r.cfg.Stalled(a.info.Run, l.LapsedMs)
	return now.Sub(a.lapsedAt) >= r.grace()
}

// worthALook says whether a run that has no lease, or whose end its producer noted, is to be read now: whether it has ended,
// or is idle.
func (r *Reaper) worthALook(a *activeRun, l stream.Lease, now time.Time) bool {
	switch {
	case !l.Known && r.cfg.Idle == 0, now.Before(a.lookAt):
		return false
	case a.lookAt.IsZero():
		a.lookAt = now.Add(r.cfg.LeaseTTL / gracesPerTTL) // its producer is about to announce the end itself
		return false
	default:
		a.lookAt = now.Add(max(r.cfg.Idle/scansPerTTL, r.cfg.LeaseTTL/scansPerTTL))
		return true
	}
}

// grace is for how long a lease must have been lapsed.
func (r *Reaper) grace() time.Duration { return r.cfg.LeaseTTL / gracesPerTTL }

// How much of the registry is read at once: little of it is news as a rule.
const (
	newsPage = 16
	fullPage = 1000
)

// learn reads what the registry has got since the last time: at the first, as much of it as has MaxRuns starts.
func (r *Reaper) learn(ctx context.Context) error {
	page := newsPage
	if r.first {
		page = fullPage
	}
	var before, newest stream.ID
	ended := map[stream.RunID]bool{} // later than what is being read
	var met []*activeRun
	for {
		events, next, err := r.registry.List(ctx, before, page)
		if err != nil {
			return err
		}
		known := false
		for _, e := range events {
			if newest.IsZero() {
				newest = e.ID
				r.first = r.first || newest.Less(r.newest) // another Redis: all is news
			}
			if known = !r.first && !r.newest.Less(e.ID); known {
				break
			}
			switch {
			case !e.State.Known():
			case e.State != stream.RunStarted && e.State != stream.RunClaimed:
				ended[e.Run] = true
			case !ended[e.Run]:
				ended[e.Run] = true // an earlier start is no news
				met = append(met, &activeRun{info: e.RunInfo, started: e.ID})
			}
		}
		if before = next; known || next.IsZero() || len(met) >= r.cfg.MaxRuns {
			break
		}
		page = fullPage
	}
	for run := range ended {
		delete(r.active, run)
	}
	for _, a := range met {
		r.active[a.info.Run] = a
	}
	r.first = false
	if !newest.IsZero() {
		r.newest = newest
	}
	r.bound()
	return nil
}

// bound drops the runs that started first where there are too many.
func (r *Reaper) bound() {
	for len(r.active) > r.cfg.MaxRuns {
		var oldest *activeRun
		for _, a := range r.active {
			if oldest == nil || a.started.Less(oldest.started) {
				oldest = a
			}
		}
		delete(r.active, oldest.info.Run)
	}
}

// reaping is a run that may have to be ended.
type reaping struct {
	run   *activeRun
	lease stream.Lease
	idle  bool // it has no lease: only that nothing comes may end it
}

// reapAll looks at each of the runs, some at a time.
func (r *Reaper) reapAll(ctx context.Context, due []reaping) error {
	var group errgroup.Group
	group.SetLimit(reapers)
	over := make([]bool, len(due))
	for i, d := range due {
		group.Go(func() (err error) {
			over[i], err = r.reap(ctx, d)
			return err
		})
	}
	err := group.Wait()
	for i, d := range due {
		if over[i] {
			delete(r.active, d.run.info.Run)
		}
	}
	return err
}

// reap ends a run, where it is to be ended, and says whether it is over.
func (r *Reaper) reap(ctx context.Context, d reaping) (over bool, err error) {
	run := d.run.info.Run
	if d.idle {
		if due, err := r.maybeIdle(ctx, d.run); err != nil || !due {
			return false, err
		}
	}
	p, err := readPast(ctx, r.log, run, r.cfg.MaxEvent)
	switch {
	case errors.Is(err, stream.ErrWrongType):
		return true, nil
	case err != nil:
		return false, err
	case !p.existed && (!d.lease.Known || d.lease.Ended || d.run.info.Thread == ""): // announced and not begun yet, or gone
		return false, nil
	}
	info := d.run.info
	if info.Thread == "" {
		info.Thread = p.info.Thread
	}
	if p.adm.Ended() {
		info.State = p.end
		if d.lease.Known && !d.lease.Ended {
			err = r.log.Settle(ctx, run, d.lease.Epoch)
		}
		return err == nil, errors.Join(err, r.registry.Announce(ctx, info))
	}
	if d.lease.Ended {
		return false, nil // noted as ended, and the end isn't there: not ours to judge
	}
	code, message := CodeProducerLost, "The agent gives no sign of life any more."
	reap := stream.Reap{By: r.cfg.Name, Epoch: d.lease.Epoch, Head: p.seen, Grace: r.grace()}
	if d.idle {
		code, message, reap.Idle = CodeIdle, "Nothing came from the agent for too long.", r.cfg.Idle
	}
	events, err := p.endWith(info, code, message)
	if err != nil {
		return false, err
	}
	ids, err := r.log.Reap(ctx, run, reap, events...)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	if !p.existed { // its thread doesn't know it yet
		if err := r.registry.Announce(ctx, info); err != nil {
			return false, err
		}
	}
	r.count(d.idle)
	r.logger.Warn("run ended for its producer", zap.String("run", string(run)), zap.String("code", code), zap.Int64("lapsed_ms", d.lease.LapsedMs))
	info.State = stream.RunError
	return true, r.registry.Announce(ctx, info)
}

func (r *Reaper) count(idle bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if idle {
		r.figures.Idle++
	} else {
		r.figures.Lost++
	}
}

// maybeIdle says whether a run without a lease is worth reading: its end stands there, which the registry doesn't know,
// or nothing new has come for long enough. The clock of Redis decides in the end.
func (r *Reaper) maybeIdle(ctx context.Context, a *activeRun) (bool, error) {
	bounds, err := r.log.Bounds(ctx, a.info.Run)
	if err != nil || bounds[0].WrongType || bounds[0].Last.ID.IsZero() {
		return false, err
	}
	last := bounds[0].Last
	var e agui.Event
	if !last.NoEvent && e.Parse(last.Event) == nil && e.Type.Terminal() {
		return true, nil
	}
	if last.ID != a.last {
		a.last, a.since = last.ID, time.Now()
	}
	return time.Since(a.since) >= r.cfg.Idle, nil
}

// endWith is what ends the run with RUN_ERROR: what closes the open items, and the event. A run that its producer has
// claimed and not begun gets a start, so that its thread has what was asked for and what became of it.
func (p *past) endWith(info stream.RunInfo, code, message string) ([][]byte, error) {
	var events [][]byte
	if !p.existed {
		raw, err := Event(runStarted{
			Type: agui.RunStarted.String(), ThreadID: string(info.Thread), RunID: string(info.Run), ParentRunID: string(info.Parent),
		})
		if err != nil {
			return nil, err
		}
		events = append(events, raw)
	}
	raw, err := Event(runError{Type: agui.RunError.String(), Message: message, Code: code})
	if err != nil {
		return nil, err
	}
	var e agui.Event
	if err := e.Parse(raw); err != nil {
		return nil, fmt.Errorf("the event that ends a run: %w", err)
	}
	events = append(events, sealAdmission(p.adm, &e)...)
	return append(events, e.Raw), nil
}
