package hub

import (
	"context"
	"sync"

	"github.com/aguihub/aguihub/stream"
)

// Subscriber is one reader of a feed: a queue bounded in bytes between the feed, which never waits, and the reader.
type Subscriber struct {
	feed  *Feed
	limit int
	after stream.ID     // what comes up to it, the reader has
	ready chan struct{} // holds one token while there may be something to take

	mu    sync.Mutex
	queue []*Delivery
	bytes int
	noted bool // it got a note, and no entry since
	err   error
}

func newSubscriber(f *Feed, after stream.ID, queue []*Delivery) *Subscriber {
	s := &Subscriber{feed: f, limit: f.hub.config.QueueBytes, after: after, ready: make(chan struct{}, 1)}
	for _, d := range queue {
		s.queue = append(s.queue, d)
		s.bytes += d.Size()
	}
	if len(queue) > 0 {
		s.ready <- struct{}{}
	}
	return s
}

// push queues a delivery, or drops the queue if it doesn't fit. It never blocks.
func (s *Subscriber) push(d *Delivery) {
	if !s.after.Less(d.ID) {
		return
	}
	s.mu.Lock()
	switch {
	case s.err != nil:
		s.mu.Unlock()
		return
	case s.bytes > 0 && s.bytes+d.Size() > s.limit:
		s.queue, s.bytes, s.err = nil, 0, ErrLagged
		s.feed.hub.stats.lagged.Add(1)
	default:
		s.queue, s.noted = append(s.queue, d), false
		s.bytes += d.Size()
	}
	s.mu.Unlock()
	s.wake()
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
	s.mu.Unlock()
	s.wake()
}

func (s *Subscriber) wake() {
	select {
	case s.ready <- struct{}{}:
	default: // a token is there already
	}
}

// Next waits for deliveries and returns all that are queued, in buf's memory where it fits. One goroutine may call it.
// After what was queued it returns ErrLagged, why the feed died, or ErrClosed; or ctx's error when that ends.
func (s *Subscriber) Next(ctx context.Context, buf []*Delivery) ([]*Delivery, error) {
	for {
		if out, err := s.take(buf); len(out) > 0 || err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ready:
		}
	}
}

// Ready is readable when Next may have something to return. A reader that waits on it calls Next afterwards.
func (s *Subscriber) Ready() <-chan struct{} { return s.ready }

// TryNext returns what is queued, which may be nothing, and is nothing where a note comes first.
func (s *Subscriber) TryNext(buf []*Delivery) ([]*Delivery, error) {
	s.mu.Lock()
	noted := len(s.queue) > 0 && s.queue[0].Note != nil
	s.mu.Unlock()
	if noted {
		return nil, nil
	}
	return s.take(buf)
}

func (s *Subscriber) take(buf []*Delivery) ([]*Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, s.err
	}
	buf = append(buf[:0], s.queue...)
	clear(s.queue)
	s.queue, s.bytes = s.queue[:0], 0
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
	s.mu.Unlock()
	s.wake()
}
