package agui

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// LargeEvent is the size in bytes above which an event of preambles and catch-ups is a Restated one.
const LargeEvent = 8 << 10

// maxRestated bounds the events that a view knows to be asked for again. There are few: a preamble has one or two snapshots
// and the CUSTOM events that are large; what catch-ups drop first differs from one subscriber to the next.
const maxRestated = 16

// restated are the large events that were made of one view. They go with it, when the run moves on.
type restated struct {
	held *atomic.Int64 // what they and their forms weigh, in bytes; shared with the views made of it

	mu     sync.Mutex
	events []*Restated
}

// Restated is a large event of preambles and catch-ups, one for all who get the same bytes out of the same view. Its
// methods may be called by anyone at once.
type Restated struct {
	// Event is immutable.
	Event []byte
	held  *atomic.Int64

	mu    sync.Mutex // held while a form is made, so that it is made once
	forms [RestatedForms]struct {
		made  bool
		bytes []byte
	}
}

// RestatedForms is how many wire forms a Restated can keep: whoever transports it numbers its forms below it.
const RestatedForms = 2

// Restated is an event of the view's preamble or of a catch-up; nil where it isn't large. It is the same for equal bytes:
// so Event may be another slice than the one that was asked about, which then nobody needs.
func (v *View) Restated(event []byte) *Restated {
	if len(event) <= LargeEvent {
		return nil
	}
	v.restated.mu.Lock()
	defer v.restated.mu.Unlock()
	for _, r := range v.restated.events {
		if bytes.Equal(r.Event, event) {
			return r
		}
	}
	r := &Restated{Event: event, held: v.restated.held}
	if len(v.restated.events) < maxRestated {
		v.restated.events = append(v.restated.events, r)
		r.held.Add(int64(len(event)))
	} else {
		r.held = new(atomic.Int64) // it goes with who asked
	}
	return r
}

// Form returns the event in a wire form, made once: who asks meanwhile waits for it. encode may put it off by saying false;
// then what it made is nobody else's.
func (r *Restated) Form(form int, encode func(event []byte) (b []byte, made bool)) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.forms[form]
	if f.made {
		return f.bytes
	}
	b, made := encode(r.Event)
	if made {
		f.bytes, f.made = b, true
		r.held.Add(int64(len(b)))
	}
	return b
}
