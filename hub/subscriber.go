package hub

import (
	"context"
	"slices"
	"sync"

	"github.com/aguihub/aguihub/stream"
)

// Subscriber is one reader of a feed: a queue bounded in bytes between the feed, which never waits, and the reader.
type Subscriber struct {
	feed  *Feed
	limit int
	after stream.ID // what comes up to it, the reader has

	// owned by the reader, and nil for one that doesn't wait
	ready  chan struct{}
	signal func()

	mu    sync.Mutex
	queue []*Delivery
	bytes int
	noted bool // it got a note, and no entry since
	err   error
	wake  func() // called once when there is something to take; nil where nobody waits
}

func newSubscriber(f *Feed, after stream.ID, queue []*Delivery) *Subscriber {
	s := &Subscriber{feed: f, limit: f.hub.config.QueueBytes, after: after}
	for _, d := range queue {
		s.queue = append(s.queue, d)
		s.bytes += d.Size()
	}
	return s
}

// push queues deliveries, or drops the queue where one doesn't fit. It never blocks.
func (s *Subscriber) push(ds []*Delivery) {
	s.mu.Lock()
	for _, d := range ds {
		switch {
		case s.err != nil || !s.after.Less(d.ID):
		case s.bytes > 0 && s.bytes+d.Size() > s.limit:
			s.queue, s.bytes, s.err = nil, 0, ErrLagged
			s.feed.hub.stats.lagged.Add(1)
		default:
			s.queue, s.noted = append(s.queue, d), false
			s.bytes += d.Size()
		}
	}
	s.unlock()
}

// unlock gives s.mu back, and wakes who waits where there is something to take.
func (s *Subscriber) unlock() {
	var wake func()
	if len(s.queue) > 0 || s.err != nil {
		wake, s.wake = s.wake, nil
	}
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// queued is what waits to be taken, in bytes.
func (s *Subscriber) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// fail ends the subscriber once its queue was taken.
func (s *Subscriber) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.unlock()
}

// Next waits for deliveries and returns all that are queued, in buf's memory where it fits. One goroutine may call it.
// After what was queued it returns ErrLagged, why the feed died, or ErrClosed; or ctx's error when that ends.
func (s *Subscriber) Next(ctx context.Context, buf []*Delivery) ([]*Delivery, error) {
	if s.ready == nil {
		s.ready = make(chan struct{}, 1)
		s.signal = func() {
			select {
			case s.ready <- struct{}{}:
			default: // of a wait that was given up
			}
		}
	}
	for {
		if out, err := s.TakeOrWake(buf, s.signal); len(out) > 0 || err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ready:
		}
	}
}

// TakeOrWake returns all that is queued, or why nothing comes any more. Where there is neither, wake is called as soon as
// there is, once, in place of what was given before; nil calls nobody. It is called from the feed, and must not wait for
// anything.
func (s *Subscriber) TakeOrWake(buf []*Delivery, wake func()) ([]*Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := s.take(buf)
	if len(out) == 0 && err == nil {
		s.wake = wake
	}
	return out, err
}

// TakePlain returns what is queued and has wake called once when there is more, like TakeOrWake. ok is false, and nothing
// was taken, where there is something else than entries of a run that simply goes on.
func (s *Subscriber) TakePlain(buf []*Delivery, wake func()) (out []*Delivery, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || slices.ContainsFunc(s.queue, func(d *Delivery) bool { return d.Restart }) {
		return nil, false
	}
	out, _ = s.take(buf)
	s.wake = wake
	return out, true
}

// TryNext returns what is queued, which may be nothing, and is nothing where a note comes first.
func (s *Subscriber) TryNext(buf []*Delivery) ([]*Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.queue[0].Note != nil {
		return nil, nil
	}
	return s.take(buf)
}

// keptQueue is up to how many places of its queue a subscriber keeps when it was emptied.
const keptQueue = 16

// take empties the queue; s.mu is held.
func (s *Subscriber) take(buf []*Delivery) ([]*Delivery, error) {
	if len(s.queue) == 0 {
		return nil, s.err
	}
	buf = append(buf[:0], s.queue...)
	clear(s.queue)
	s.queue, s.bytes = s.queue[:0], 0
	if cap(s.queue) > keptQueue {
		s.queue = nil
	}
	return buf, nil
}

// Close takes the subscriber out of its feed. Next returns ErrClosed from then on.
func (s *Subscriber) Close() {
	f := s.feed
	f.mu.Lock()
	if _, ok := f.subs[s]; ok {
		delete(f.subs, s)
		f.hub.stats.subscribers.Add(-1)
	}
	f.mu.Unlock()
	s.mu.Lock()
	s.queue, s.bytes = nil, 0
	s.err = ErrClosed
	s.unlock()
}
