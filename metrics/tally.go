package metrics

import (
	"maps"
	"sync"
)

// maxNames bounds a tally: what it counts becomes labels, and these must stay few whatever comes.
const maxNames = 64

// Tally counts by name: a reason, a code, a state. Names are constants of the code; should more than 64 come all the
// same, the rest count as "other". The zero Tally is ready, and anyone may use it at once.
type Tally struct {
	mu     sync.Mutex
	counts map[string]uint64
}

// Expect has names counted from zero on, so that their series are there before anything has happened.
func (t *Tally) Expect(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]uint64{}
	}
	for _, name := range names {
		t.counts[name] += 0
	}
}

// Add counts one.
func (t *Tally) Add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]uint64{}
	}
	if _, known := t.counts[name]; !known && len(t.counts) >= maxNames {
		name = "other"
	}
	t.counts[name]++
}

// Read returns the counts so far; nil where there are none.
func (t *Tally) Read() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
