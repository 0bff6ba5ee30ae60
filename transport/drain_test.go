package transport_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/transport"
)

// The rule: clients of a drain leave one by one over the time that it has, at most twenty a second, and never as a wave.
func TestADrainIsSpread(t *testing.T) {
	const over = 30 * time.Second
	for name, n := range map[string]int{"few": 40, "as many as the time has gaps": 600, "many": 30_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var seconds [31]int
				next := 0
				transport.Spread(t.Context(), n, over, func(i int) {
					if i != next {
						t.Fatalf("%d after %d", i, next-1)
					}
					next++
					seconds[min(int(time.Since(began).Seconds()), 30)]++
				})
				most := max(20, n/30)
				for at, left := range seconds {
					if left > 2*most {
						t.Errorf("%d of %d left in second %d", left, n, at)
					}
				}
				if next != n || n < 600 && time.Since(began) > over || time.Since(began) > over+over/10 {
					t.Errorf("%d of %d had left after %v", next, n, time.Since(began))
				}
			})
		})
	}
	t.Run("until its time is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), over/3)
			defer cancel()
			left := 0
			transport.Spread(ctx, 600, over, func(int) { left++ })
			if left < 150 || left > 250 {
				t.Errorf("%d of 600 left in a third of the time", left)
			}
		})
	})
}
