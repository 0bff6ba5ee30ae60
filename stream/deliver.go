package stream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Follow calls sink with the entries of run after after, those that are there already and those that come,
// until stop is called. It returns at once and works before Run, for runs that don't exist yet (their first
// entry comes like any other) and while Redis is away; after Run has returned it has no effect. A run may be
// followed several times; each follower has its own position.
//
// stop returns when sink isn't running and won't be called again; it may be called more than once, but not
// from within sink. Many Follows at once cost Redis a few commands, not one each.
func (t *Tail) Follow(run RunID, after ID, sink Sink) (stop func()) {
	return t.followKey(t.keys.Run(run), after, false, func(ms []message, err error) {
		sink(Batch{Entries: entriesOf(ms), Err: err})
	})
}

// entriesOf converts a run's messages.
func entriesOf(ms []message) []Entry {
	if len(ms) == 0 {
		return nil
	}
	entries := make([]Entry, len(ms))
	for i, m := range ms {
		entries[i] = entryOf(m)
	}
	return entries
}

// entryOf converts a message. Where an agent gave a field twice, the last one counts.
func entryOf(m message) Entry {
	e := Entry{ID: m.id}
	event, ok := m.fields["event"].(string)
	if e.NoEvent = !ok; ok {
		e.Event = []byte(event)
	}
	if input, ok := m.fields["input"].(string); ok {
		e.Input = []byte(input)
	}
	return e
}

// delivery is one batch on its way to one follower.
type delivery struct {
	follower *follower
	messages []message
	err      error
}

// assign gives each follower what it lacks of the replies and moves its position.
func (t *Tail) assign(keys []position, live []*followed, replies []reply) []delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range replies {
		if len(r.lost) > 0 {
			live[r.key].fresh = true // for those who follow on
		}
		if r.err != nil {
			live[r.key].bad, live[r.key].badUntil = r.err, time.Now().Add(badKeyWait)
		}
	}
	for i, k := range keys {
		if k.fresh && live[i].bad == nil {
			live[i].forgive()
		}
	}
	var ds []delivery
	for _, r := range replies {
		for _, f := range live[r.key].followers {
			if d, some := f.take(keys[r.key], r); some {
				f.busy = true
				ds = append(ds, d)
			}
		}
	}
	return ds
}

// take is what a reply has for the follower, whose position moves. Caller holds Tail.mu.
func (f *follower) take(at position, r reply) (d delivery, some bool) {
	d = delivery{follower: f, err: r.err}
	there := func(p position) bool { return p.after == f.pos }
	switch {
	case f.busy:
		f.of.wakes.missed = true
		return d, false
	case f.lost, f.pos != at.after && !slices.ContainsFunc(at.ahead, there): // came while reading: its turn is the next read
		return d, false
	case slices.Contains(r.lost, f.pos):
		d.err = ErrLost
		f.lose()
	case r.err != nil:
		if f.told != nil {
			return d, false
		}
		f.told = r.err
	default:
		if d.messages = after(r.messages, f.pos); len(d.messages) == 0 {
			return d, false
		}
		newest := d.messages[len(d.messages)-1]
		f.pos, f.sum, f.summed = newest.id, newest.sum(), true
	}
	return d, true
}

// forgive has the next error told again: the key was looked at singly and is well.
func (fk *followed) forgive() {
	for _, f := range fk.followers {
		f.told = nil
	}
}

// after returns the messages behind pos. They are in order.
func after(ms []message, pos ID) []message {
	i, found := slices.BinarySearchFunc(ms, pos, func(m message, id ID) int { return m.id.Compare(id) })
	if found {
		i++
	}
	return ms[i:]
}

// deliver calls the sinks, one after the other. When one takes longer than the grace the rest goes on without
// it: its follower stays busy, and so out of the reads, until the sink returns.
func (t *Tail) deliver(ctx context.Context, s *shard, ds []delivery, wg *sync.WaitGroup) {
	for len(ds) > 0 && ctx.Err() == nil {
		w := &worker{tail: t, shard: s, rest: ds, done: make(chan struct{})}
		wg.Go(func() { w.run(ctx) })
		ds = w.wait(t.cfg.Grace)
	}
}

// worker calls sinks until it is done or abandoned in the middle of a slow one.
type worker struct {
	// static
	tail  *Tail
	shard *shard
	done  chan struct{} // closed when all is delivered

	// guarded by mu
	mu        sync.Mutex
	rest      []delivery
	began     int // deliveries begun, by which wait sees progress
	abandoned bool
}

func (w *worker) run(ctx context.Context) {
	for {
		w.mu.Lock()
		if w.abandoned {
			w.mu.Unlock()
			return
		}
		if len(w.rest) == 0 || ctx.Err() != nil {
			w.mu.Unlock()
			close(w.done)
			return
		}
		d := w.rest[0]
		w.rest = w.rest[1:]
		w.began++
		w.mu.Unlock()

		d.follower.call(d.messages, d.err)

		w.tail.finish(d.follower, w.shard)
		w.mu.Lock()
		late := w.abandoned
		w.mu.Unlock()
		if late { // a read may have begun without this run
			w.tail.changed(w.shard)
		}
	}
}

// wait waits until all is delivered and returns nil, or until one sink has taken longer than the grace: then
// it leaves the worker to that sink and returns what others are still to get.
func (w *worker) wait(grace time.Duration) []delivery {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	seen := 0
	for {
		select {
		case <-w.done:
			return nil
		case <-timer.C:
		}
		w.mu.Lock()
		if w.began == seen {
			w.abandoned = true
			rest := w.rest
			w.mu.Unlock()
			return rest
		}
		seen = w.began
		w.mu.Unlock()
		timer.Reset(grace)
	}
}

// call hands a batch to the sink unless the follower was stopped.
func (f *follower) call(ms []message, err error) {
	f.gate <- struct{}{}
	defer func() { <-f.gate }()
	if !f.stopped {
		f.sink(ms, err)
	}
}

// finish lets the follower take the next batch, which may be there already.
func (t *Tail) finish(f *follower, s *shard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.busy = false
	if f.of.wakes.missed {
		f.of.wakes.missed = false
		t.wakeKey(f.of)
	}
	if f.of.shard != s { // which may have begun to read without it
		t.markStale(f.of.shard)
	}
}

// changed has the shard take up its keys anew.
func (t *Tail) changed(s *shard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.markStale(s)
}
