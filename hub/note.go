package hub

import "github.com/aguihub/aguihub/stream"

// Note tells those who watch a run something that is no entry of it: a Delivery that has nothing but the note. Each
// subscriber gets one until the run has a new entry, so that it may be told again and again. It never blocks.
func (h *Hub) Note(run stream.RunID, note []byte) {
	f := h.Peek(run)
	if f == nil {
		return
	}
	d := &Delivery{Note: note}
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.note(d)
	}
	f.weigh()
}

// note queues a note, unless the reader has one that holds, or has yet to take something.
func (s *Subscriber) note(d *Delivery) {
	s.mu.Lock()
	if !s.noted && s.err == nil && len(s.queue) == 0 {
		s.noted = true
		s.queue = append(s.queue, d)
		s.bytes += d.Size()
	}
	s.unlock()
}
