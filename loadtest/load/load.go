// Package load makes runs, publishers and subscribers on a schedule, measures what a hub, or what is compared with one,
// takes to serve them, and looks whether everybody got everything. Processor time is that of the programs measured: what
// publishers and subscribers take on the same machine is not in it.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sync/errgroup"

	"github.com/aguihub/aguihub/loadtest/process"
)

// Workload is what is done to a party. Zero values are defaults.
type Workload struct {
	Runs        int           // 1
	Rate        float64       // events a second of each run; 0 for none
	Subscribers int           // of each run
	Hubs        int           // 1
	Size        int           // of an event, in bytes: 230
	Warmup      time.Duration // of publishing, before what is measured: 1 s
	Duration    time.Duration // of what is measured: 5 s

	// Window makes publishing a closed loop instead of a schedule: so many events of a run may be under way to its slowest
	// subscriber. Then Rate isn't looked at.
	Window int
	// Batch is how many events are published together in a closed loop: 64.
	Batch int

	Joins  float64 // subscribers a second that attach afresh; each takes the place of one that leaves
	Slow   int     // of each run's subscribers, those who rest after each message
	Judged int     // further subscribers of each run, whom package checker judges; every other one leaves, comes back and pauses

	History int // events that each run has before anybody attaches; the conversation weighs 20 KB then. Not with Judged
	// Patience is how long what was published may take to come to everybody: 5 s.
	Patience time.Duration
	// Settle waits, before the measuring, until the first hub has given back to the system what it doesn't need.
	Settle bool
	// Profile takes a profile of the first hub; the figures are a little off then.
	Profile Profile
}

// Profile is a kind of profile that a hub gives of itself.
type Profile string

// The kinds. The zero value is none.
const (
	CPU  Profile = "cpu"  // while measuring
	Heap Profile = "heap" // before that, with everybody attached
)

func (w *Workload) fill() {
	w.Runs, w.Hubs, w.Size, w.Batch = max(w.Runs, 1), max(w.Hubs, 1), or(w.Size, 230), or(w.Batch, 64)
	w.Warmup, w.Duration = or(w.Warmup, time.Second), or(w.Duration, 5*time.Second)
	w.Patience = or(w.Patience, 5*time.Second)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Bench is where workloads run.
type Bench struct {
	Dir string    // for files; must be there
	Log io.Writer // of all programs; nil for none
	// Begin is called with everybody attached; publishing begins when it returns. Nil doesn't wait.
	Begin func(context.Context) error
}

// Measure starts a Redis and a party on it, does the workload to it, and ends both. Its error says that it couldn't be
// done; what subscribers missed is in the result.
func (b Bench) Measure(ctx context.Context, p Party, w Workload) (*Result, error) {
	w.fill()
	logging.Disable() // what the clients of servers that have ended have to say
	redis, err := startRedis(ctx, b.Log, p.Redis...)
	if err != nil {
		return nil, err
	}
	defer redis.close()
	system, err := p.Start(ctx, Setting{Redis: redis, Hubs: w.Hubs, Dir: b.Dir, Log: b.Log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer system.Close()
	m := newMeasuring(w, redis, system)
	m.begun = b.Begin
	result, err := m.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	result.Party = p.Name
	return result, nil
}

// measuring is a workload under way.
type measuring struct {
	w      Workload
	redis  *Redis
	system System
	begun  func(context.Context) error // of the bench

	latency  *recorder
	joining  *recorder
	late     *recorder // of publishers behind their schedule
	runs     []*run
	failures failures
	jury     jury

	mu      sync.Mutex
	readers []*reader // now attached
	gone    tally     // of readers that left
	wg      sync.WaitGroup
	closing atomic.Bool
}

// run is one run's publishing. Its fields belong to its publisher, but for n.
type run struct {
	n atomic.Int64 // counter of the newest event that was published
}

func newMeasuring(w Workload, redis *Redis, system System) *measuring {
	m := &measuring{w: w, redis: redis, system: system, latency: newRecorder(), joining: newRecorder(), late: newRecorder()}
	for range w.Runs {
		m.runs = append(m.runs, &run{})
	}
	m.jury.init(w)
	return m
}

func (m *measuring) run(ctx context.Context) (*Result, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	bare, err := m.rss()
	if err != nil {
		return nil, err
	}
	defer m.leave()
	m.jury.attach(ctx, m)
	attaching := time.Now()
	if err := m.attachAll(ctx); err != nil {
		return nil, err
	}
	r := &Result{Workload: m.w, Attached: m.count(), Attaching: time.Since(attaching).Seconds()}
	if m.w.Settle {
		if r.Free, err = settle(ctx, m); err != nil {
			return nil, err
		}
	}
	if r.RSS, err = m.rss(); err != nil {
		return nil, err
	}
	if r.Attached > 0 {
		r.RSSPerSubscriber = float64(r.RSS-r.Free-bare) / float64(r.Attached)
	}
	if m.begun != nil {
		if err := m.begun(ctx); err != nil {
			return nil, err
		}
	}
	if err := m.measure(ctx, r); err != nil {
		return nil, err
	}
	m.judge(ctx, r)
	return r, ctx.Err()
}

// begin publishes the beginnings of all runs, and their history.
func (m *measuring) begin(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(publishers)
	for i := range m.runs {
		g.Go(func() error {
			events := beginning(i)
			for n := range m.w.History {
				events = append(events, past(i, n, m.w.History))
			}
			for chunk := range slices.Chunk(events, 500) {
				if err := m.publish(ctx, chunk); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// publish publishes events and notes them for the judges.
func (m *measuring) publish(ctx context.Context, events []Event) error {
	ids, err := m.system.Publish(ctx, events)
	if err != nil {
		return err
	}
	return m.jury.note(events, ids)
}

// attachers is how many subscribers attach at once.
const attachers = 32

// attachAll attaches all subscribers, one of each run after the other.
func (m *measuring) attachAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(attachers)
	for i := range m.w.Subscribers {
		for run := range m.w.Runs {
			g.Go(func() error { return m.attach(ctx, run, i) })
		}
	}
	return g.Wait()
}

// attach attaches one subscriber, who reads until it is closed.
func (m *measuring) attach(ctx context.Context, run, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := m.system.Attach(ctx, run, i)
	if err != nil {
		return err
	}
	r := &reader{run: run, number: i, stream: s, rests: i < m.w.Slow}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers = append(m.readers, r)
	m.wg.Go(func() { m.read(r) })
	return nil
}

func (m *measuring) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.readers)
}

// swap takes a reader out, at random, and closes it; nil where there is none.
func (m *measuring) swap() *reader {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.readers) == 0 {
		return nil
	}
	i := rand.IntN(len(m.readers)) //nolint:gosec // a load
	r := m.readers[i]
	m.readers[i] = m.readers[len(m.readers)-1]
	m.readers = m.readers[:len(m.readers)-1]
	m.gone.add(r.tally())
	r.close()
	return r
}

// leave closes all streams and waits for their readers.
func (m *measuring) leave() {
	m.closing.Store(true)
	m.mu.Lock()
	for _, r := range m.readers {
		r.close()
	}
	m.mu.Unlock()
	m.wg.Wait()
	m.jury.dismiss()
}

func (m *measuring) rss() (int, error) {
	sum := 0
	for _, p := range m.system.Programs() {
		n, err := p.RSS()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// tally is what the readers counted, those that left included.
func (m *measuring) tally() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.gone
	for _, r := range m.readers {
		t.add(r.tally())
	}
	return t
}

// look is what all has cost so far.
type look struct {
	at               time.Time
	hub, redis, self time.Duration
	tally            tally
	published        int64
	calls, micros    map[string]int // of commands of Redis
}

func (m *measuring) look(ctx context.Context) (look, error) {
	l := look{at: time.Now(), tally: m.tally()}
	for _, p := range m.system.Programs() {
		t, err := p.CPU()
		if err != nil {
			return l, err
		}
		l.hub += t
	}
	for _, r := range m.runs {
		l.published += r.n.Load()
	}
	var err error
	if l.redis, err = m.redis.process.CPU(); err != nil {
		return l, err
	}
	if l.self, err = process.Own(); err != nil {
		return l, err
	}
	l.calls, l.micros, err = m.redis.commands(ctx)
	return l, err
}

// measure publishes, and has others join, for the workload's time.
func (m *measuring) measure(ctx context.Context, r *Result) error {
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	g, publishing := errgroup.WithContext(publishing)
	m.startPublishers(publishing, g)
	g.Go(func() error { return m.join(publishing) })
	process.Pause(publishing, m.w.Warmup)
	before, err := m.look(ctx)
	if err != nil {
		return err
	}
	m.record(before.at, before.at.Add(m.w.Duration))
	profiled := m.profile(ctx, r)
	process.Pause(publishing, m.w.Duration-time.Since(before.at))
	after, err := m.look(ctx)
	if err != nil {
		return err
	}
	stop()
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if err := profiled(); err != nil {
		return err
	}
	if err := m.last(ctx); err != nil {
		return err
	}
	m.drained(ctx)
	r.fill(m, before, after)
	return ctx.Err()
}

func (m *measuring) record(from, to time.Time) {
	for _, r := range []*recorder{m.latency, m.joining, m.late} {
		r.between(from, to)
	}
}

// last publishes one more event to each run, which all subscribers must get, those included who joined behind the others.
func (m *measuring) last(ctx context.Context) error {
	if m.w.Rate == 0 && m.w.Window == 0 {
		return nil
	}
	var events []Event
	for run := range m.runs {
		events = append(events, m.next(run, time.Now()))
	}
	for chunk := range slices.Chunk(events, most) {
		if err := m.publish(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// drained waits until everybody has everything, or nothing comes any more.
func (m *measuring) drained(ctx context.Context) {
	deadline := time.Now().Add(m.w.Patience)
	for m.behind() > 0 && time.Now().Before(deadline) {
		if !process.Pause(ctx, 5*time.Millisecond) {
			return
		}
	}
}

// behind is how many subscribers don't have their run's newest event yet. Those who rest don't count.
func (m *measuring) behind() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, r := range m.readers {
		if !r.rests && r.last.Load() < m.runs[r.run].n.Load() {
			n++
		}
	}
	return n
}

// judge ends the runs where there are judges, and adds what is wrong.
func (m *measuring) judge(ctx context.Context, r *Result) {
	t := m.tally()
	r.Snapshots, r.Resting = t.jumps, m.w.Slow*m.w.Runs
	if n := m.behind(); n > 0 {
		r.Violations = append(r.Violations, fmt.Sprintf("%d subscribers haven't got their run's newest event after %v", n, m.w.Patience))
	}
	r.Violations = append(r.Violations, m.failures.list()...)
	if m.w.Judged == 0 {
		return
	}
	m.closing.Store(true) // the streams end with their runs
	for i := range m.runs {
		if err := m.publish(ctx, end(i)); err != nil {
			r.Violations = append(r.Violations, err.Error())
			return
		}
	}
	judged, lost, found := m.jury.verdict(ctx, m.w.Patience)
	r.Judged, r.Violations = judged, append(r.Violations, found...)
	if lost > 0 {
		r.Violations = append(r.Violations, fmt.Sprintf("%d judged subscribers haven't seen their run's end", lost))
	}
}
