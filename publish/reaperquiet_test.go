package publish_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

// counted is a world that counts for how many runs it is asked for leases.
type counted struct {
	*world
	asked atomic.Int64
}

func (c *counted) Leases(ctx context.Context, runs ...stream.RunID) ([]stream.Lease, error) {
	c.asked.Add(int64(len(runs)))
	return c.world.Leases(ctx, runs...)
}

// TestRunsThatNobodyClaimsAreSeldomLookedAt: and yet a lease that is set later is seen in time.
func TestRunsThatNobodyClaimsAreSeldomLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &counted{world: newWorld(t)}
		const runs = 10
		for i := range runs {
			run := stream.RunID(fmt.Sprintf("r%d", i))
			ok(t, w.Announce(t.Context(), stream.RunInfo{Run: run, Thread: "t1", State: stream.RunStarted}))
			_, err := w.Append(t.Context(), run, stream.Record{Event: fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":"t1","runId":%q}`, run)})
			ok(t, err)
		}
		defer reap(t, w, w, 1, publish.ReaperConfig{})()
		time.Sleep(5 * time.Minute) // the bubble's time
		synctest.Wait()
		if asked := w.asked.Load(); asked < runs*300/20 || asked > runs*300/12 {
			t.Errorf("%d runs were asked for %d times in five minutes", runs, asked)
		}
		w.SetLease("r3", publish.DefaultLeaseTTL)
		time.Sleep(2 * publish.DefaultLeaseTTL)
		synctest.Wait()
		wantText(t, types(t, w.world, "r3"), "RUN_STARTED RUN_ERROR")
		wantText(t, types(t, w.world, "r4"), "RUN_STARTED")
	})
}
