package load

import (
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// recorder is a histogram of times that many goroutines record to. It takes what was due in a stretch of time, however
// late it came: what a stalled system holds up counts with all that it waited.
type recorder struct {
	from, to atomic.Int64 // stamps
	shards   [recorderShards]struct {
		mu   sync.Mutex
		hist *hdr.Histogram
	}
}

const (
	recorderShards = 8
	// The longest time that is told apart, and how many digits of a time are kept.
	longest = int64(time.Minute)
	digitsK = 3
)

func newRecorder() *recorder {
	r := &recorder{}
	for i := range r.shards {
		r.shards[i].hist = hdr.New(int64(time.Microsecond), longest, digitsK)
	}
	return r
}

func (r *recorder) between(from, to time.Time) {
	r.to.Store(stamp(to))
	r.from.Store(stamp(from))
}

// record takes what was due at a moment and took so long.
func (r *recorder) record(shard int, due time.Time, took time.Duration) {
	if from, at := r.from.Load(), stamp(due); from == 0 || at < from || at >= r.to.Load() {
		return
	}
	s := &r.shards[shard%recorderShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.hist.RecordValue(min(max(int64(took), 0), longest)) // within its bounds
}

// Times are what a histogram comes to, in milliseconds.
type Times struct {
	N    int64   `json:"n"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func (r *recorder) times() Times {
	all := hdr.New(int64(time.Microsecond), longest, digitsK)
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		all.Merge(s.hist)
		s.mu.Unlock()
	}
	ms := func(v int64) float64 { return float64(v) / float64(time.Millisecond) }
	return Times{
		N: all.TotalCount(), P50: ms(all.ValueAtQuantile(50)), P99: ms(all.ValueAtQuantile(99)),
		P999: ms(all.ValueAtQuantile(99.9)), Max: ms(all.Max()),
	}
}
