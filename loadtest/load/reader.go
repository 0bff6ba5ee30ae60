package load

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// reader is a subscriber that counts. It looks at each event's counter: none may be missing, or come twice, except where
// a snapshot was announced meanwhile, which stands for what it covers.
type reader struct {
	run, number int
	stream      Stream
	rests       bool

	got    atomic.Int64
	last   atomic.Int64 // the newest counter; 0 before the first
	jumps  atomic.Int64 // snapshots that stood for events
	closed atomic.Bool
}

func (r *reader) close() {
	r.closed.Store(true)
	_ = r.stream.Close() // whatever there was to say, nobody listens any more
}

// tally is what readers counted.
type tally struct{ got, jumps int64 }

func (t *tally) add(o tally) {
	t.got += o.got
	t.jumps += o.jumps
}

func (r *reader) tally() tally { return tally{r.got.Load(), r.jumps.Load()} }

// rest is how long a slow reader waits after each message.
const rest = 100 * time.Millisecond

// Marks of a past that stands for events: on the hub's subprotocol, and among bare events.
var (
	catchupMark  = []byte(`"control":"catchup"`)
	snapshotMark = []byte(`"MESSAGES_SNAPSHOT"`)
)

// read reads until the stream ends.
func (m *measuring) read(r *reader) {
	covered := true // what comes first may be anything
	for {
		b, err := r.stream.Next()
		if err != nil {
			if !r.closed.Load() && !m.closing.Load() {
				m.failures.add("run %d, subscriber %d: %v", r.run, r.number, err)
			}
			return
		}
		now := time.Now()
		if bytes.Contains(b, catchupMark) || bytes.Contains(b, snapshotMark) {
			covered = true
		}
		err = see(b, now, func(s sighting) {
			switch last := int(r.last.Load()); {
			case s.n == last+1 || covered && s.n > last:
				if s.n > last+1 && last > 0 {
					r.jumps.Add(1)
				}
			default:
				m.failures.add("run %d, subscriber %d: event %d after %d", r.run, r.number, s.n, last)
			}
			covered = false
			r.last.Store(int64(s.n))
			r.got.Add(1)
			if !r.rests {
				m.latency.record(r.number, now.Add(-s.took), s.took)
			}
		})
		if err != nil {
			m.failures.add("run %d, subscriber %d: %v", r.run, r.number, err)
		}
		if r.rests {
			time.Sleep(rest)
		}
	}
}

// failures are things that went wrong, the first of them in words.
type failures struct {
	mu    sync.Mutex
	n     int
	words []string
}

// wordsKept is how many failures are told.
const wordsKept = 10

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n <= wordsKept {
		f.words = append(f.words, fmt.Sprintf(format, args...))
	}
}

func (f *failures) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n > wordsKept {
		return append(f.words[:wordsKept:wordsKept], fmt.Sprintf("and %d more", f.n-wordsKept))
	}
	return f.words
}
