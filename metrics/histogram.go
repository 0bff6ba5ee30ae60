package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Histogram counts durations by how long they were. Observe costs a few atomic operations and may be called by any
// number of goroutines at once; a nil Histogram counts nothing.
type Histogram struct{ inner prometheus.Histogram }

// waits are the bounds of histograms in seconds. Those that service levels are measured by (docs/metrics.md) are among
// them.
var waits = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// NewHistogram returns an empty histogram of waits, from a millisecond to half a minute.
func NewHistogram() *Histogram {
	return &Histogram{prometheus.NewHistogram(prometheus.HistogramOpts{Name: "unnamed", Help: "Named by the collector.", Buckets: waits})}
}

// Observe counts one duration; a negative one, which clocks that differ make, counts as zero.
func (h *Histogram) Observe(d time.Duration) {
	if h != nil {
		h.inner.Observe(max(d, 0).Seconds())
	}
}

// read returns the count, the sum in seconds, and the cumulative counts by bound.
func (h *Histogram) read() (count uint64, sum float64, buckets map[float64]uint64) {
	var m dto.Metric
	if err := h.inner.Write(&m); err != nil {
		panic("metrics: histogram: " + err.Error()) // it has no labels that could be wrong
	}
	buckets = make(map[float64]uint64, len(m.GetHistogram().GetBucket()))
	for _, b := range m.GetHistogram().GetBucket() {
		buckets[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(), buckets
}

// Count is how many durations were observed.
func (h *Histogram) Count() uint64 {
	if h == nil {
		return 0
	}
	n, _, _ := h.read()
	return n
}
