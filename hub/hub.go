// Package hub fans runs out inside one process: one feed per run, whatever the number of its subscribers. A Feed reads
// its run once, asks its Machine once per entry what of it is sent, and pushes that to bounded subscribers without
// ever waiting for one. Nothing here looks into a payload.
package hub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/stream"
)

// Log is where a feed reads its run: the past by pages, the live tail by Follow (stream.Redis with its Tail).
type Log interface {
	Range(ctx context.Context, run stream.RunID, after stream.ID, maxEntries, maxBytes int) (stream.Page, error)
	Follow(run stream.RunID, after stream.ID, sink stream.Sink) (stop func())
}

// Machine decides about the entries of one run and remembers what they add up to. Its methods are called under the
// feed's lock or by the feed's loader, never by two goroutines at once.
type Machine interface {
	// Prepared says whether Admit may be called; until it is, Prepare is called first with the next entries. Prepare
	// may wait and do I/O: the lock isn't held, so it changes nothing that others may look at. What it found out is
	// taken over by ready, which is called under the lock; nil where there is nothing.
	Prepared() bool
	Prepare(ctx context.Context, next []stream.Entry) (ready func(), err error)
	// Admit takes the next entry. It must not block.
	Admit(entry stream.Entry) *Delivery
	// Size is what the machine holds in memory, in bytes.
	Size() int
}

// Beginner is a Machine that can take up a run in its middle, from what was written down of it.
type Beginner interface {
	Machine
	// Begin is called with the first entries that there are, and whether there are more, before any is admitted. It returns
	// the entry that the machine stands at once ready was called, under the rules of Prepare; ready is nil where the run is
	// to be read from its first entry.
	Begin(ctx context.Context, head []stream.Entry, more bool) (at stream.Cursor, ready func())
}

// Config of a Hub. Nothing may change while it runs.
type Config struct {
	// RingBytes bounds the newest deliveries that a feed keeps, in bytes with 200 for each entry; 0 is 512 KiB, which holds what a catch-up by events may send.
	RingBytes int
	// QueueBytes bounds a subscriber's queue, in bytes; 0 is 1 MiB. One delivery always fits.
	QueueBytes int
	// Linger is how long a feed without subscribers is kept, so that a reload finds it warm; 0 is 30 s.
	Linger time.Duration
	// MaxWaiting bounds the feeds of runs that have no entry yet, and apart from them those of which it isn't known yet
	// whether they have; 0 is 10,000.
	MaxWaiting int
	// Budget bounds what all feeds hold together, in bytes; past it feeds without subscribers are dropped, the oldest
	// first. 0 is 1 GiB.
	Budget int
}

func (c *Config) fill() {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.RingBytes, 512<<10)
	def(&c.QueueBytes, 1<<20)
	def(&c.MaxWaiting, 10_000)
	def(&c.Budget, 1<<30)
	if c.Linger <= 0 {
		c.Linger = 30 * time.Second
	}
}

// Part is the config of a hub beside another, which may hold one nth as much.
func (c *Config) Part(n int) Config {
	part := *c
	part.fill()
	part.Budget, part.MaxWaiting = part.Budget/n, max(part.MaxWaiting/n, 1)
	return part
}

// Errors that callers branch on.
var (
	// ErrTooManyWaiting says that too many runs without an entry are waited for.
	ErrTooManyWaiting = errors.New("hub: too many unknown runs are waited for")
	// ErrLagged says that a subscriber's queue overflowed and was dropped.
	ErrLagged = errors.New("hub: subscriber lagged")
	// ErrLost says that entries went missing from under a feed: trimmed or lost while it read, or the key was deleted.
	ErrLost = errors.New("hub: entries are missing from the run's stream")
	// ErrClosed says that the subscriber or the hub was closed.
	ErrClosed = errors.New("hub: closed")
)

// Hub holds the feeds of one process.
type Hub struct {
	log        Log
	newMachine func(stream.RunID) Machine
	config     Config
	logger     *zap.Logger
	spawn      func(func(context.Context)) // runs a function in a goroutine; no-op after wait
	wait       func()                      // cancels the context of all that was spawned and waits for it

	mu     sync.Mutex
	feeds  map[stream.RunID]*Feed
	closed bool
	held   Held // as of the last sweep

	stats stats
}

// New starts a hub whose goroutines end with ctx; Close waits for them. newMachine makes the machine of a run.
func New(ctx context.Context, log Log, newMachine func(stream.RunID) Machine, config Config, logger *zap.Logger) *Hub {
	config.fill()
	h := &Hub{log: log, newMachine: newMachine, config: config, logger: logger, feeds: map[stream.RunID]*Feed{}}
	h.stats.tailAge = metrics.NewHistogram()
	h.spawn, h.wait = group(ctx)
	h.spawn(h.tend)
	return h
}

// group makes a set of goroutines that share a context and end together.
func group(ctx context.Context) (spawn func(func(context.Context)), wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var wg sync.WaitGroup
	closed := false
	spawn = func(f func(context.Context)) {
		mu.Lock()
		defer mu.Unlock()
		if !closed {
			wg.Go(func() { f(ctx) })
		}
	}
	wait = func() {
		mu.Lock()
		closed = true
		mu.Unlock()
		cancel()
		wg.Wait()
	}
	return spawn, wait
}

// Close drops all feeds, ends their subscribers with ErrClosed and waits for the hub's goroutines. The Log must be
// usable until it returns.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	feeds := h.feeds
	h.feeds = map[stream.RunID]*Feed{}
	h.mu.Unlock()
	for _, f := range feeds {
		f.drop(ErrClosed)
	}
	h.wait()
	for _, f := range feeds {
		f.unfollow()
	}
}

// Feed returns the run's feed, started if there was none. Release it when it is no longer used. A run without an entry
// may turn out to be one too many to wait for: then the feed dies with ErrTooManyWaiting.
func (h *Hub) Feed(run stream.RunID) (*Feed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	f := h.feeds[run]
	if f == nil {
		if int(h.stats.unread.Load()) >= h.config.MaxWaiting {
			return nil, ErrTooManyWaiting
		}
		f = newFeed(h, run)
		h.feeds[run] = f
		h.stats.unread.Add(1)
		h.spawn(f.load)
	}
	f.users++
	return f, nil
}

// Release says that a feed got from Feed is no longer used by the caller.
func (h *Hub) Release(f *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.users--
	if f.users == 0 {
		f.idleSince = time.Now()
	}
}

// forget takes a feed out of the map, so that the next one who asks gets a fresh one.
func (h *Hub) forget(f *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeds[f.run] == f {
		delete(h.feeds, f.run)
	}
}

// tend drops feeds that nobody has used for a while, sooner when all together are over the budget.
func (h *Hub) tend(ctx context.Context) {
	ticker := time.NewTicker(h.config.Linger/4 + time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, f := range h.idle() {
			f.drop(ErrClosed)
			f.unfollow()
		}
	}
}

// idle takes the feeds out of the map that are to be dropped.
func (h *Hub) idle() []*Feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	var held Held
	var unused []*Feed
	for _, f := range h.feeds {
		size := f.held()
		held = held.plus(size, 1)
		if f.users == 0 {
			unused = append(unused, f)
		}
	}
	slices.SortFunc(unused, func(a, b *Feed) int { return a.idleSince.Compare(b.idleSince) })
	now := time.Now()
	var out []*Feed
	for _, f := range unused {
		if now.Sub(f.idleSince) < h.config.Linger && held.total() <= h.config.Budget {
			break
		}
		held = held.plus(f.held(), -1)
		delete(h.feeds, f.run)
		out = append(out, f)
	}
	h.held = held
	return out
}

// Peek returns the feed of a run if there is one, without using it.
func (h *Hub) Peek(run stream.RunID) *Feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.feeds[run]
}

// Drop ends the run's feed, if there is one, and its subscribers with err. The next who asks gets a fresh one.
func (h *Hub) Drop(run stream.RunID, err error) {
	h.mu.Lock()
	f := h.feeds[run]
	delete(h.feeds, run)
	h.mu.Unlock()
	if f == nil {
		return
	}
	f.drop(err)
	h.spawn(func(context.Context) { f.unfollow() })
}
