package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

// sweeping is a service that sweeps a log in memory until the test ends.
func sweeping(t *testing.T) (*failing, *stream.Registry) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the test's own ends before its cleanups
	memory, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tail := memory.NewTail(stream.TailConfig{})
	registry := memory.NewRegistry(tail)
	log := &failing{benchLog: benchLog{memory, tail}}
	service := backfill.New(ctx, log, registry, stream.ID{}, backfill.Config{}, zap.NewNop())
	ended := make(chan error, 2)
	go func() { ended <- tail.Run(ctx) }()
	go func() { ended <- service.Discover(ctx, memory) }()
	t.Cleanup(func() {
		service.Close()
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
	return log, registry
}

// failing is a log that can't tell of one run for a while.
type failing struct {
	benchLog
	run stream.RunID
	err atomic.Pointer[error]
}

func (f *failing) Range(ctx context.Context, run stream.RunID, after stream.ID, entries, bytes int) (stream.Page, error) {
	if err := f.err.Load(); err != nil && run == f.run {
		return stream.Page{}, *err
	}
	return f.benchLog.Range(ctx, run, after, entries, bytes)
}

// plain is what an agent does that announces nothing.
func plain(t *testing.T, log *failing, run string) {
	t.Helper()
	event := fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":"t1","runId":%q}`, run)
	if _, err := log.Append(t.Context(), stream.RunID(run), stream.Record{Event: event}); err != nil {
		t.Fatal(err)
	}
}

// inThread expects the runs of the thread t1, the one that started last first.
func inThread(t *testing.T, registry *stream.Registry, want ...stream.RunID) {
	t.Helper()
	runs, err := registry.Thread(t.Context(), "t1", 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []stream.RunID
	for _, r := range runs {
		got = append(got, r.Run)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the thread has %v, not %v", got, want)
	}
}

// The rule: a run that an agent began with a plain XADD is announced within a sweep, to lists and to its thread, once.
func TestARunThatNobodyAnnouncedIsFoundByTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, registry := sweeping(t)
		log.SetWrongType("bad")
		plain(t, log, "r1")
		for range 3 {
			time.Sleep(6 * time.Second) // the bubble's time: a sweep each
			synctest.Wait()
		}
		inThread(t, registry, "r1")
		events, _, err := registry.List(t.Context(), stream.ID{}, 10)
		if err != nil || len(events) != 1 || events[0].Thread != "t1" || events[0].State != stream.RunStarted {
			t.Fatalf("registry: %v, %v", events, err)
		}
		// Redis forgets it, and the agent begins anew under its id.
		if err := log.Erase(t.Context(), "r1", "t1", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		plain(t, log, "r1")
		time.Sleep(12 * time.Second)
		inThread(t, registry, "r1")
	})
}

// The rule: a run that couldn't be read when the sweep met it, since Redis was away or changed its roles, is met again by
// the next one.
func TestARunThatCouldNotBeReadIsFoundByTheNextSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, registry := sweeping(t)
		log.run = "r1"
		log.err.Store(&stream.ErrUnavailable)
		plain(t, log, "r1")
		time.Sleep(12 * time.Second)
		inThread(t, registry)
		log.err.Store(nil)
		time.Sleep(6 * time.Second)
		inThread(t, registry, "r1")
	})
}

// The rule: a run whose announcement Redis has lost, and whose entries it hasn't, is announced again within a sweep.
func TestALostAnnouncementIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, registry := sweeping(t)
		plain(t, log, "r1")
		time.Sleep(6 * time.Second)
		inThread(t, registry, "r1")
		log.LoseRegistry("t1")
		inThread(t, registry)
		time.Sleep(12 * time.Second)
		inThread(t, registry, "r1")
	})
}
