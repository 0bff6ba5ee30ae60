package transport

import (
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/metrics"
)

// Oldest is when the oldest live entry among items was published, by its XADD; ok is false where there is none.
func Oldest(items []backfill.Item) (at time.Time, ok bool) {
	for i := range items {
		if d := items[i].Delivery; d != nil {
			return time.UnixMilli(int64(d.ID.Ms)), true
		}
	}
	return time.Time{}, false
}

// ObserveAge notes how old the oldest live entry among items is, now that they have been written. It costs one observation
// a write, whatever the number of entries.
func ObserveAge(h *metrics.Histogram, items []backfill.Item, now time.Time) {
	if at, ok := Oldest(items); ok {
		h.Observe(now.Sub(at))
	}
}
