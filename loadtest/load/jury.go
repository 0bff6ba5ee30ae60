package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aguihub/aguihub/loadtest/checker"
	"github.com/aguihub/aguihub/stream"
)

// jury is what package checker needs to judge subscribers: who they are, and what was published.
type jury struct {
	seats    int // of each run
	archives []*checker.Archive
	members  [][]*checker.Subscriber // by run
	wg       sync.WaitGroup
	adjourn  context.CancelFunc
}

func (j *jury) init(w Workload) {
	j.seats = w.Judged
	if j.seats == 0 {
		return
	}
	for range w.Runs {
		j.archives = append(j.archives, &checker.Archive{})
	}
}

// note notes what was published, with the ids that it got.
func (j *jury) note(events []Event, ids []string) error {
	if j.seats == 0 {
		return nil
	}
	for i, e := range events {
		id, err := stream.ParseID(ids[i])
		if err != nil {
			return fmt.Errorf("the id of an entry: %w", err)
		}
		entry := checker.Entry{ID: id, Kind: e.Kind, N: e.N}
		if e.Kind == checker.Open || e.Kind == checker.Text {
			entry.Message = "m"
		}
		j.archives[e.Run].Add(entry)
	}
	return nil
}

// wires are how judged subscribers attach, by turns.
var wires = [...]checker.Wire{checker.Socket, checker.SSE, checker.Bare}

// attach has the judged subscribers follow their runs. Where the system isn't one of hubs there are none.
func (j *jury) attach(ctx context.Context, m *measuring) {
	hubs, ok := m.system.(ranked)
	if !ok {
		j.seats = 0
	}
	if j.seats == 0 {
		return
	}
	ctx, j.adjourn = context.WithCancel(ctx)
	for run := range m.runs {
		members := make([]*checker.Subscriber, j.seats)
		for i := range members {
			var habits checker.Habits
			if i%2 == 1 {
				habits = checker.Habits{Leave: 2 * time.Second, Pause: 2 * time.Second, Nap: time.Second}
			}
			name := fmt.Sprintf("run %d, judged subscriber %d", run, i)
			s := checker.NewSubscriber(name, runName(run), hubs.bases, habits, uint64(run)<<16+uint64(i)) //nolint:gosec // small
			members[i] = s
			j.wg.Go(func() { s.Follow(ctx, wires[i%len(wires)]) })
		}
		j.members = append(j.members, members)
	}
}

// verdict waits until the judged subscribers have seen their run's end, and judges. lost is how many haven't.
func (j *jury) verdict(ctx context.Context, patience time.Duration) (judged, lost int, found []string) {
	all := make(chan struct{})
	go func() { j.wg.Wait(); close(all) }()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-all:
	case <-t.C:
		j.dismiss()
	case <-ctx.Done():
		j.dismiss()
	}
	for run, members := range j.members {
		for _, s := range members {
			judged++
			if !s.Ended() {
				lost++
			}
			found = append(found, j.archives[run].Judge(s)...)
		}
	}
	return judged, lost, found
}

// dismiss ends what the judged subscribers do.
func (j *jury) dismiss() {
	if j.adjourn != nil {
		j.adjourn()
	}
	j.wg.Wait()
}
