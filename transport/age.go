package transport

import (
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/metrics"
)

// ObserveAge notes how old the oldest entry among items is, by its XADD, now that they have been written. It costs one
// observation a write, whatever the number of entries.
func ObserveAge(h *metrics.Histogram, items []backfill.Item, now time.Time) {
	for i := range items {
		if d := items[i].Delivery; d != nil {
			h.Observe(now.Sub(time.UnixMilli(int64(d.ID.Ms))))
			return
		}
	}
}
