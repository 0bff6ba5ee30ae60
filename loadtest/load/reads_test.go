package load

import (
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aguihub/aguihub/loadtest/process"
)

// TestReadsDontGrowWithSubscribers (I7): Redis is asked as often for 1,000 subscribers of a run as for one. An event is published
// once everybody has the one before, so that no two are read at once, however busy the machine.
func TestReadsDontGrowWithSubscribers(t *testing.T) {
	t.Parallel()
	program, err := process.BuildHub(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	subscribers := []int{1, 1000}
	var results [2]*Result
	var g errgroup.Group
	for i, n := range subscribers {
		g.Go(func() (err error) {
			w := Workload{Window: 1, Batch: 1, Subscribers: n, Warmup: 100 * time.Millisecond, Duration: 2 * time.Second, Patience: time.Minute}
			results[i], err = Bench{Dir: t.TempDir()}.Measure(t.Context(), Hub(HubOptions{Name: "hub", Program: program}), w)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		t.Logf("%d subscribers: %.2f commands for each of %d events, %d deliveries: %v", subscribers[i], r.AskedPerEvent(), r.Events, r.Deliveries, r.Commands)
		if len(r.Violations) > 0 || r.Events == 0 || r.Attached != subscribers[i] {
			t.Error(r)
		}
	}
	// Some are for nothing but the time that passes: sweeps, looks at leases and the like.
	one, all := results[0], results[1]
	if most := 1.1*one.AskedPerEvent()*float64(all.Events) + 5*all.Seconds; one.Reads == 0 || float64(all.Asked) > most {
		t.Errorf("%.2f commands an event for one subscriber, %.2f for 1,000", one.AskedPerEvent(), all.AskedPerEvent())
	}
	if most := 1.1*one.ReadsPerEvent()*float64(all.Events) + 5*all.Seconds; float64(all.Reads) > most {
		t.Errorf("%.2f reads an event for one subscriber, %.2f for 1,000", one.ReadsPerEvent(), all.ReadsPerEvent())
	}
}
