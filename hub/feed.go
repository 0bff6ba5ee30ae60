package hub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

// Feed is one run's entries in one process: read once, admitted once, pushed to every subscriber. It goes through
// loading (its loader pages through what is there) to live (the tail's sink applies what comes); a live feed whose
// machine must be prepared first goes back to loading.
type Feed struct {
	hub *Hub
	run stream.RunID

	// guarded by hub.mu
	users     int
	idleSince time.Time

	mu      sync.Mutex
	counted *atomic.Int64 // the hub's count that the feed is in, of those unread or those waiting; nil for none
	machine Machine
	last    stream.ID // the newest entry that was admitted
	sum     uint32    // its checksum
	ring    []*Delivery
	// ringFrom is the entry before the ring's first: zero while the ring holds the run from its first entry.
	ringFrom  stream.ID
	ringBytes int
	subs      map[*Subscriber]struct{}
	fresh     []*Delivery // room for apply
	loading   bool
	stop      func()        // of the tail; nil while loading
	changed   chan struct{} // closed and replaced whenever something that Wait looks at has changed
	loaded    bool          // the head was reached once
	err       error         // why the feed is dead; nil while it lives

	weight   Held // as of the last count
	unsteady int  // how many counts have to be anew: see weigh
}

// Pages are read at most this large. Redis answers one in about a millisecond (docs/profiles.md).
const (
	pageEntries = 1000
	pageBytes   = 4 << 20
	// The first one of a run that may be taken up in its middle is small: it may be for nothing.
	headEntries = 8
	headBytes   = 64 << 10
)

func newFeed(h *Hub, run stream.RunID) *Feed {
	return &Feed{
		hub: h, run: run, machine: h.newMachine(run), subs: map[*Subscriber]struct{}{}, loading: true,
		changed: make(chan struct{}), counted: &h.stats.unread, unsteady: 2,
	}
}

// Run is the feed's run.
func (f *Feed) Run() stream.RunID { return f.run }

// Loaded says whether the run was read up to its head once. Until then nobody knows whether the run exists.
func (f *Feed) Loaded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loaded
}

// Machine is the feed's machine. Look at it only from functions that the feed calls under its lock.
func (f *Feed) Machine() Machine { return f.machine }

// held is what the feed holds, with the queues of its subscribers. Of a feed in which nothing happens it is known.
func (f *Feed) held() Held {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsteady == 0 && f.weight.Queues == 0 {
		return f.weight
	}
	f.unsteady = max(f.unsteady-1, 0)
	f.weight = Held{Folds: f.machine.Size(), Rings: f.ringBytes}
	for s := range f.subs {
		f.weight.Queues += s.queued()
	}
	return f.weight
}

// weigh has what the feed holds counted anew, and once more for what those who look at it now make of that without the
// lock; f.mu is held.
func (f *Feed) weigh() { f.unsteady = 2 }

// load reads the run up to its head and then follows its tail.
func (f *Feed) load(ctx context.Context) {
	f.unfollow()
	for attempt := 0; ; {
		more, err := f.page(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return
		case errors.Is(err, stream.ErrWrongType), errors.Is(err, ErrLost):
			f.hub.logger.Warn("run can't be read", zap.String("run", string(f.run)), zap.Error(err))
			f.hub.forget(f)
			f.drop(err)
			return
		case err != nil:
			f.hub.logger.Warn("reading a run, will try again", zap.String("run", string(f.run)), zap.Error(err))
			if !pause(ctx, attempt) {
				return
			}
			attempt++
			continue
		}
		attempt = 0
		if !more {
			if !f.follow() {
				f.hub.forget(f)
			}
			return
		}
	}
}

// beginner is the machine where it can take the run up in its middle and nothing of the run was read yet.
func (f *Feed) beginner() (Beginner, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.machine.(Beginner)
	return b, ok && !f.loaded && f.last.IsZero()
}

// begin takes the run up in its middle, where there is something to begin with; it says whether.
func (f *Feed) begin(ctx context.Context, b Beginner, head stream.Page) bool {
	at, ready := b.Begin(ctx, head.Entries, head.More)
	if ready == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		ready()
		f.weigh()
		f.last, f.sum, f.ringFrom = at.Entry, at.Sum, at.Entry
		f.arrived()
		f.signal()
	}
	return true
}

// pause waits before another attempt, jittered, up to two seconds; false when ctx ended.
func pause(ctx context.Context, attempt int) bool {
	d := min(50*time.Millisecond<<min(attempt, 6), 2*time.Second)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// page reads and applies one page.
func (f *Feed) page(ctx context.Context) (more bool, err error) {
	f.mu.Lock()
	last, sum, dead := f.last, f.sum, f.err
	f.mu.Unlock()
	if dead != nil {
		return false, ErrClosed
	}
	entries, bytes := pageEntries, pageBytes
	beginner, first := f.beginner()
	if first {
		entries, bytes = headEntries, headBytes
	}
	page, err := f.hub.log.Range(ctx, f.run, last, entries, bytes)
	if err != nil {
		return false, err
	}
	if first && f.begin(ctx, beginner, page) {
		return true, nil
	}
	if page.Anchor == stream.AnchorMissing || page.Anchor == stream.AnchorHeld && page.AnchorSum != sum {
		return false, ErrLost
	}
	var ready func()
	if len(page.Entries) > 0 && !f.machine.Prepared() {
		began := time.Now()
		if ready, err = f.machine.Prepare(ctx, page.Entries); err != nil {
			return false, err
		}
		if time.Since(began) > longPrepare {
			if there, err := f.stands(ctx, page.Entries[len(page.Entries)-1]); err != nil || !there {
				return true, err // it is read again
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ready != nil {
		ready()
		f.weigh()
	}
	f.apply(page.Entries)
	return page.More, nil
}

// longPrepare is how long a preparation takes at least where a failover may lie between the page that it is for and what it
// found out: who attaches must not get one with the other. Else it takes a few milliseconds.
const longPrepare = 100 * time.Millisecond

// stands says whether an entry is still there and the same.
func (f *Feed) stands(ctx context.Context, e stream.Entry) (bool, error) {
	page, err := f.hub.log.Range(ctx, f.run, e.ID, 1, 1)
	return page.Anchor == stream.AnchorHeld && page.AnchorSum == stream.Checksum(e.Event), err
}

// follow goes live from the newest entry; false where the feed is dead.
func (f *Feed) follow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	if f.last.IsZero() && !f.loaded && !f.await() {
		return false
	}
	f.loading, f.loaded = false, true
	f.stop = f.hub.log.Follow(f.run, f.last, f.sink)
	f.signal()
	return true
}

// sink takes a batch of the live tail.
func (f *Feed) sink(b stream.Batch) {
	if b.Err != nil {
		err := b.Err
		if errors.Is(err, stream.ErrLost) {
			err = ErrLost
		}
		f.hub.forget(f)
		f.drop(err)
		f.hub.spawn(func(context.Context) { f.unfollow() })
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.loading {
		return
	}
	if !f.machine.Prepared() {
		f.loading = true
		f.hub.spawn(f.load)
		return
	}
	f.hub.stats.tailAge.Observe(time.Since(time.UnixMilli(int64(b.Entries[0].ID.Ms))))
	f.apply(b.Entries)
}

// apply admits entries and pushes what is sent; f.mu is held.
func (f *Feed) apply(entries []stream.Entry) {
	if len(entries) == 0 {
		return
	}
	began := time.Now()
	defer func() { f.hub.stats.folded.Add(int64(time.Since(began))) }()
	fresh := f.fresh[:0]
	for _, e := range entries {
		if !f.last.Less(e.ID) {
			continue
		}
		d := f.machine.Admit(e)
		f.last = e.ID
		f.keep(d)
		fresh = append(fresh, d)
		f.hub.stats.entries.Add(1)
		if d.Reason != "" {
			f.hub.stats.withheld.Add(d.Reason)
		}
	}
	if newest := entries[len(entries)-1]; newest.ID == f.last {
		f.sum = stream.Checksum(newest.Event)
	}
	for s := range f.subs { // together, so that they leave in one write
		s.push(fresh)
	}
	f.weigh()
	clear(fresh)
	if f.fresh = fresh[:0]; cap(fresh) > keptQueue {
		f.fresh = nil
	}
	f.hub.stats.deliveries.Add(int64(len(f.subs) * len(entries)))
	f.arrived()
	f.signal()
}

// await puts a feed whose run has no entry among those that wait for a first one; false where there are too many of them,
// and the feed is dead. f.mu is held.
func (f *Feed) await() bool {
	if f.hub.stats.waiting.Add(1) > int64(f.hub.config.MaxWaiting) {
		f.hub.stats.waiting.Add(-1)
		f.die(ErrTooManyWaiting)
		return false
	}
	f.arrived()
	f.counted = &f.hub.stats.waiting
	return true
}

// arrived takes the feed out of the count that it is in; f.mu is held.
func (f *Feed) arrived() {
	if f.counted != nil {
		f.counted.Add(-1)
		f.counted = nil
	}
}

// keep puts a delivery into the ring and drops the oldest beyond the bound.
func (f *Feed) keep(d *Delivery) {
	f.ring = append(f.ring, d)
	f.ringBytes += d.Size()
	drop := 0
	for f.ringBytes > f.hub.config.RingBytes && drop < len(f.ring)-1 {
		f.ringBytes -= f.ring[drop].Size()
		f.ringFrom = f.ring[drop].ID
		drop++
	}
	if drop > 0 {
		clear(f.ring[:drop])
		f.ring = f.ring[drop:]
	}
}

// signal wakes those who wait for a change; f.mu is held.
func (f *Feed) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// drop ends the feed and all its subscribers with err.
func (f *Feed) drop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.die(err)
}

// die is drop; f.mu is held.
func (f *Feed) die(err error) {
	if f.err != nil {
		return
	}
	f.err = err
	f.arrived()
	for s := range f.subs {
		s.fail(err)
	}
	f.signal()
}

// unfollow ends the tail's calls. It must not be called from the sink.
func (f *Feed) unfollow() {
	f.mu.Lock()
	stop := f.stop
	f.stop = nil
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Wait blocks until the feed has reached its run's head once and ok returns true, the feed dies (its error), or ctx
// ends. ok is called under the feed's lock, after every change.
func (f *Feed) Wait(ctx context.Context, ok func() bool) error {
	for {
		f.mu.Lock()
		err, done, changed := f.err, f.loaded && ok(), f.changed
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// With calls see under the feed's lock, when the machine stands at entry last.
func (f *Feed) With(see func(last stream.ID)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	see(f.last)
	f.weigh()
}

// Join adds a subscriber that gets every entry from now on. see is called under the same lock, when the machine stands
// at entry last: what see finds and what the subscriber gets meet without a gap or a repeat. missed are the deliveries
// after the given entry; covered is false where the ring doesn't reach back to it.
func (f *Feed) Join(after stream.ID, see func(last stream.ID, missed []*Delivery, covered bool)) (*Subscriber, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	missed, covered := f.since(after)
	see(f.last, missed, covered)
	return f.add(f.last, nil), nil
}

// since are the deliveries after an entry; f.mu is held. An entry before the first that the feed has read was trimmed before
// the feed began, and who knows what else with it.
func (f *Feed) since(after stream.ID) (missed []*Delivery, covered bool) {
	trimmed := f.ringFrom.IsZero() && !after.IsZero() && len(f.ring) > 0 && after.Less(f.ring[0].ID)
	if trimmed || after.Less(f.ringFrom) {
		return nil, false
	}
	from := len(f.ring)
	for from > 0 && after.Less(f.ring[from-1].ID) {
		from--
	}
	return slices.Clone(f.ring[from:]), true
}

// JoinAfter adds a subscriber that gets every entry after the given one, zero meaning from the first; the feed may not
// have come that far yet. ok is false if the ring doesn't reach back that far: then page through the run's stream and try again from where that got.
func (f *Feed) JoinAfter(after stream.ID) (s *Subscriber, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, false, f.err
	}
	missed, covered := f.since(after)
	if !covered {
		return nil, false, nil
	}
	return f.add(after, missed), true, nil
}

// add adds a subscriber that has what comes up to after; f.mu is held.
func (f *Feed) add(after stream.ID, queue []*Delivery) *Subscriber {
	s := newSubscriber(f, after, queue)
	f.subs[s] = struct{}{}
	f.weigh()
	f.hub.stats.subscribers.Add(1)
	return s
}
