package publish_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

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

// TestTheReaperLearnsOfAllThatHappenedSinceItsLastLook: however much of it there is.
func TestTheReaperLearnsOfAllThatHappenedSinceItsLastLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := publish.NewReaper(w, w, publish.ReaperConfig{}, zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		active := 0
		for _, more := range []int{1, 20, 0, 15, 16, 17, 2500, 3} {
			for range more {
				active++
				ok(t, w.Announce(t.Context(), stream.RunInfo{Run: stream.RunID(fmt.Sprint("r", active)), Thread: "t1", State: stream.RunStarted}))
			}
			time.Sleep(publish.DefaultLeaseTTL)
			synctest.Wait()
			if n := r.Figures().Active; n != active {
				t.Errorf("%d runs of %d are looked at, after another %d", n, active, more)
			}
		}
		cancel()
		running.Wait()
	})
}
