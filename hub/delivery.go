package hub

import (
	"sync/atomic"
	"time"

	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/stream"
)

// Delivery is one entry of a run as its subscribers get it. It is immutable and shared by all of them.
type Delivery struct {
	ID     stream.ID
	Cursor stream.Cursor // the position of a reader who has this entry
	// Events are sent in order; none where the entry is withheld. Only the last one completes the entry.
	Events [][]byte
	// Reason is why the entry is withheld or sent otherwise than published; "" where nothing is wrong.
	Reason string
	// Detail is the reason in words for people, at most 300 bytes.
	Detail string
	// Private says of each of Events whether only some classes of subscribers get it; nil where all do.
	Private []bool
	// End says that the run ends with this entry, Restart that it began anew.
	End, Restart bool
	// Note is something about the run that is no entry of it: see [Hub.Note]. Nothing else is set then.
	Note []byte

	size  int
	wires [Wires]atomic.Pointer[[]byte]
	shown [Classes]atomic.Pointer[Delivery]
}

// Classes is how many classes of subscribers there may be that see deliveries otherwise than they are.
const Classes = 2

// Shown returns the delivery as a class of subscribers sees it, made once for all of the class: it may be the same one, which
// keeps one encoding for all. show may run more than once when several ask at the same time.
func (d *Delivery) Shown(class int, show func(*Delivery) *Delivery) *Delivery {
	if p := d.shown[class].Load(); p != nil {
		return p
	}
	p := show(d)
	d.shown[class].Store(p)
	return p
}

// Wires is how many wire forms a Delivery can keep: whoever transports deliveries numbers its forms below it.
const Wires = 8

// deliveryCost is what a delivery costs beside its bytes, roughly: the struct and its places in ring and queue.
const deliveryCost = 200

// Size is what the delivery weighs in a queue, in bytes.
func (d *Delivery) Size() int {
	if d.size == 0 {
		d.size = deliveryCost + len(d.Detail) + len(d.Note)
		for _, e := range d.Events {
			d.size += len(e)
		}
	}
	return d.size
}

// Wire returns the delivery in a wire form, encoded once for all subscribers. encode may run more than once when
// several ask at the same time; its result must not be changed.
func (d *Delivery) Wire(form int, encode func(*Delivery) []byte) []byte {
	if p := d.wires[form].Load(); p != nil {
		return *p
	}
	b := encode(d)
	d.wires[form].Store(&b)
	return b
}

// stats are the hub's running figures; read them with Hub.Figures.
type stats struct {
	unread, waiting, subscribers        atomic.Int64 // now
	deliveries, lagged, entries, folded atomic.Int64 // since start; folded in nanoseconds
	withheld                            metrics.Tally
	tailAge                             *metrics.Histogram
}

// Held is what feeds hold, in bytes.
type Held struct{ Folds, Rings, Queues int }

// total is what counts against the budget. Queues are bounded each, and share the bytes of their entries.
func (h Held) total() int { return h.Folds + h.Rings }

func (h Held) plus(other Held, times int) Held {
	return Held{h.Folds + times*other.Folds, h.Rings + times*other.Rings, h.Queues + times*other.Queues}
}

// Figures is a reading of the hub's figures.
type Figures struct {
	Feeds       int               // runs that are followed
	Waiting     int64             // of them, runs without an entry yet
	Subscribers int64             // now
	Entries     int64             // read from runs, since start
	Withheld    map[string]uint64 // of them, not sent as published, by reason
	Deliveries  int64             // put into queues, since start
	Lagged      int64             // subscribers that lagged, since start
	Folding     time.Duration     // spent in machines, since start
	Held        Held              // as of the last sweep
	Budget      int               // of folds and rings, in bytes
	TailAge     *metrics.Histogram
}

// Figures reads the hub's figures.
func (h *Hub) Figures() Figures {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Figures{
		Feeds: len(h.feeds), Waiting: h.stats.waiting.Load(),
		Subscribers: h.stats.subscribers.Load(), Entries: h.stats.entries.Load(), Withheld: h.stats.withheld.Read(),
		Deliveries: h.stats.deliveries.Load(), Lagged: h.stats.lagged.Load(), Folding: time.Duration(h.stats.folded.Load()),
		Held: h.held, Budget: h.config.Budget, TailAge: h.stats.tailAge,
	}
}
