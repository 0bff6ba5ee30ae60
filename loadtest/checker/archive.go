// Package checker decides whether subscribers got what the contract promises: an Archive knows what was published and
// what of it was lost or trimmed, a Subscriber attaches like any client and keeps a record, and Judge compares the two.
package checker

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aguihub/aguihub/stream"
)

// Kind is what a published event does to a client's view.
type Kind int

// The kinds that producers write. Each but a start and an end bears a counter, which grows by one with each event.
const (
	Start  Kind = iota // RUN_STARTED: the run begins, or begins anew
	Open               // TEXT_MESSAGE_START
	Text               // TEXT_MESSAGE_CONTENT
	State              // STATE_SNAPSHOT
	Custom             // CUSTOM
	Close              // TEXT_MESSAGE_END
	End                // RUN_FINISHED
)

// Entry is one event as it was published.
type Entry struct {
	ID      stream.ID
	Kind    Kind
	N       int    // counter
	Message string // of Open and Text

	born    int // how many losses there had been
	gone    int // the loss that took it; 0 while it is there
	trimmed int // the trim that took it; 0 while none has
}

// Archive is what was published to one run. Its methods may be called by any number of goroutines.
type Archive struct {
	mu      sync.Mutex
	entries []Entry
	losses  int
	trims   int
}

// NewArchive is an archive that begins after so many losses. The zero value begins before the first.
func NewArchive(losses int) *Archive { return &Archive{losses: losses} }

// Add notes an entry, in stream order.
func (a *Archive) Add(e Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.born = a.losses
	a.entries = append(a.entries, e)
}

// Trim notes that all entries but the newest keep were trimmed, and returns the first that is kept; ok is false where
// there are no more than that.
func (a *Archive) Trim(keep int) (first stream.ID, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := 0
	a.trims++
	for i := len(a.entries) - 1; i >= 0; i-- {
		if e := &a.entries[i]; e.gone == 0 && e.trimmed == 0 {
			if left++; left == keep {
				first = e.ID
			} else if left > keep {
				e.trimmed, ok = a.trims, true
			}
		}
	}
	return first, ok
}

// Stands adds to there what the archive has up to last.
func (a *Archive) Stands(there map[stream.ID]bool, last stream.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		if !last.Less(e.ID) {
			there[e.ID] = true
		}
	}
}

// Left is what a loss left of a run's newest life.
type Left struct {
	Lost    int  // entries
	Started bool // its start and the opening of its message are there
	Closed  bool // the message's end is
	Ended   bool // its end is
}

// Survive notes which entries are there after a failover or a restart.
func (a *Archive) Survive(there map[stream.ID]bool) (left Left) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.losses++
	opened := false
	for i := range a.entries {
		e := &a.entries[i]
		if e.gone > 0 {
			continue
		}
		if !there[e.ID] {
			e.gone = a.losses
			if e.trimmed == 0 {
				left.Lost++
			}
		}
		if e.Kind == Start {
			left.Started, left.Closed, left.Ended, opened = e.gone == 0, false, false, false
		}
		opened = opened || e.Kind == Open && e.gone == 0
		left.Closed = left.Closed || e.Kind == Close && e.gone == 0
		left.Ended = left.Ended || e.Kind == End && e.gone == 0
	}
	left.Started = left.Started && opened
	return left
}

// view is what a client makes of a run.
type view struct {
	texts map[string][]byte
	state int
}

func newView() *view { return &view{texts: map[string][]byte{}} }

// digest tells views apart.
func (v *view) digest() string {
	var b strings.Builder
	ids := make([]string, 0, len(v.texts))
	for id := range v.texts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Fprintf(&b, "%s: %d bytes %08x, ", id, len(v.texts[id]), crc32.ChecksumIEEE(v.texts[id]))
	}
	fmt.Fprintf(&b, "state %d", v.state)
	return b.String()
}

// TextOf is what a Text event with this counter adds.
func TextOf(n int) string { return fmt.Sprintf("%d ", n) }

func (v *view) clone() *view {
	c := &view{texts: maps.Clone(v.texts), state: v.state}
	for id, text := range c.texts {
		c.texts[id] = slices.Clip(text)
	}
	return c
}

// in says whether the entry was there before the loss numbered version+1.
func (e Entry) in(version int) bool { return e.born <= version && (e.gone == 0 || e.gone > version) }

// fold is the view as of an entry, on what the run began with, as it was before the loss numbered version+1.
func (a *Archive) fold(at stream.ID, version int, base *view) *view {
	return a.foldLeft(at, version, 0, base)
}

// foldLeft is fold for who has seen nothing of what went with a trim and those before it.
func (a *Archive) foldLeft(at stream.ID, version, trim int, base *view) *view {
	v := base.clone()
	for _, e := range a.entries {
		if at.Less(e.ID) {
			break
		}
		if !e.in(version) || e.trimmed > 0 && e.trimmed <= trim {
			continue
		}
		switch e.Kind {
		case Start:
			v = base.clone()
		case Open:
			v.texts[e.Message] = nil
		case Text:
			if text, open := v.texts[e.Message]; open {
				v.texts[e.Message] = append(text, TextOf(e.N)...)
			}
		case State:
			v.state = e.N
		case Custom, Close, End:
		}
	}
	return v
}

// Events returns how many entries were added.
func (a *Archive) Events() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.entries)
}
