package publish_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

// reap runs n reapers over a log until the returned function is called.
func reap(t *testing.T, log publish.ReaperLog, registry publish.ReaperRegistry, n int, cfg publish.ReaperConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range n {
		r := publish.NewReaper(log, registry, cfg, zap.NewNop())
		group.Go(func() {
			if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// lost writes the beginning of a run, as a producer that dies at once.
func lost(t *testing.T, w *world, ttl time.Duration) stream.Fence {
	t.Helper()
	ok(t, w.Announce(t.Context(), stream.RunInfo{Run: "r1", Thread: "t1", State: stream.RunStarted}))
	got, err := w.Claim(t.Context(), "r1", stream.Claim{Producer: "p", TTL: ttl})
	ok(t, err)
	_, err = w.Memory.AppendFenced(t.Context(), "r1", stream.FencedAppend{Fence: got.Fence, TTL: ttl},
		stream.Record{Event: []byte(`{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)},
		stream.Record{Event: []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m1"}`)})
	ok(t, err)
	return got.Fence
}

// wantLegal fails unless the run's entries are what the client takes, and end.
func wantLegal(t *testing.T, w *world, run stream.RunID) {
	t.Helper()
	r := agui.NewRun(nil, agui.RunConfig{})
	for i, en := range entries(t, w, run) {
		if v := r.Apply(agui.Entry{Event: en.Event, Input: en.Input}); v.Reason != "" {
			t.Fatalf("entry %d: %s %s", i, v.Reason, v.Detail)
		}
	}
	if !r.Ended() {
		t.Fatal("it goes on")
	}
}

func TestALostProducersRunIsEndedOnceAndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var told atomic.Int64 // since when
		stop := reap(t, w, w, 3, publish.ReaperConfig{Stalled: func(run stream.RunID, sinceMs int64) {
			if old := told.Swap(sinceMs); run != "r1" || (old != 0 && old != sinceMs) {
				t.Error(run, old, sinceMs)
			}
		}})
		fence := lost(t, w, publish.DefaultLeaseTTL)
		began := time.Now()
		time.Sleep(publish.DefaultLeaseTTL) // the bubble's time
		wantText(t, types(t, w, "r1"), "RUN_STARTED TEXT_MESSAGE_START")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantText(t, types(t, w, "r1"), "RUN_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_END RUN_ERROR")
		wantLegal(t, w, "r1")
		all := entries(t, w, "r1")
		if last := string(all[3].Event); !strings.Contains(last, `"code":"producer_lost"`) {
			t.Fatal(last)
		}
		took := time.UnixMilli(int64(all[3].ID.Ms)).Sub(began.Add(publish.DefaultLeaseTTL))
		if took < 10*time.Second || took > 30*time.Second {
			t.Errorf("%v after the lapse", took)
		}
		if since := time.UnixMilli(told.Load()).Sub(began.Add(publish.DefaultLeaseTTL)); since < 0 || since > 10*time.Second {
			t.Errorf("it is told to be stalled since %v after the lapse", since)
		}
		wantText(t, states(t, w), "started@t1 error@t1")
		_, err := w.Memory.AppendFenced(t.Context(), "r1", stream.FencedAppend{Fence: fence, Seq: 2, Floor: 2}, stream.Record{Event: []byte(`{}`)})
		if !errors.Is(err, publish.ErrFenced) {
			t.Errorf("the producer came back: %v", err)
		}
		time.Sleep(time.Hour)
		if n := len(entries(t, w, "r1")); n != 4 {
			t.Errorf("%d entries in the end", n)
		}
		stop()
	})
}

func TestALivingProducersRunIsNeverEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := reap(t, w, w, 2, publish.ReaperConfig{Idle: time.Minute})
		run := open(t, w, start)
		time.Sleep(24 * time.Hour) // the bubble's time; it thinks, and says nothing
		ok(t, run.Finish(t.Context(), publish.End{}))
		wantText(t, types(t, w, "r1"), "RUN_STARTED RUN_FINISHED")
		ok(t, run.Close(t.Context()))
		stop()
	})
}

func TestAShortOutageOfRedisCostsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := reap(t, w, w, 2, publish.ReaperConfig{})
		run := open(t, w, start)
		for range 20 { // the lease lapses each time, and the first who comes back may be a reaper
			w.SetFault(stream.ErrUnavailable)
			time.Sleep(40 * time.Second) // the bubble's time
			w.SetFault(nil)
			time.Sleep(20 * time.Second)
		}
		ok(t, run.Finish(t.Context(), publish.End{}))
		ok(t, run.Close(t.Context()))
		stop()
	})
}

func TestAReleasedRunIsSomebodyElsesForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := reap(t, w, w, 2, publish.ReaperConfig{})
		run := open(t, w, start)
		time.Sleep(25 * time.Second) // the bubble's time
		ok(t, run.Release(t.Context()))
		time.Sleep(29 * time.Second)
		run = open(t, w, publish.RunConfig{Run: "r1", Continue: true})
		ok(t, run.Append(t.Context(), []byte(`{"type":"STEP_STARTED","stepName":"s"}`)))
		time.Sleep(10 * time.Minute)
		ok(t, run.Release(t.Context()))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		wantText(t, types(t, w, "r1"), "RUN_STARTED STEP_STARTED STEP_FINISHED RUN_ERROR")
		stop()
	})
}

func TestAPlainAgentsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plain := func(run stream.RunID, events ...string) {
			t.Helper()
			ok(t, w.Announce(t.Context(), stream.RunInfo{Run: run, Thread: "t1", State: stream.RunStarted}))
			for _, e := range events {
				_, err := w.Append(t.Context(), run, stream.Record{Event: []byte(e)})
				ok(t, err)
			}
		}
		const started = `{"type":"RUN_STARTED","threadId":"t1","runId":"r"}`
		plain("with", started)
		plain("without", started)
		plain("ended", started, `{"type":"RUN_FINISHED","threadId":"t1","runId":"r"}`)
		for _, run := range []stream.RunID{"with", "ended"} {
			w.SetLease(run, 30*time.Second)
		}
		stop := reap(t, w, w, 1, publish.ReaperConfig{})
		time.Sleep(20 * time.Second) // the bubble's time
		stop()
		// Another hub goes on: that a lease was seen stands in Redis.
		time.Sleep(10 * time.Minute)
		stop = reap(t, w, w, 2, publish.ReaperConfig{})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantText(t, types(t, w, "with"), "RUN_STARTED RUN_ERROR")
		wantText(t, types(t, w, "without"), "RUN_STARTED")
		wantText(t, types(t, w, "ended"), "RUN_STARTED RUN_FINISHED")
		if got := states(t, w); strings.Count(got, "finished@t1") < 1 || strings.Count(got, "error@t1") < 1 {
			t.Error(got)
		}
		stop()
	})
}

func TestAnIdleRunIsEndedWhereThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ok(t, w.Announce(t.Context(), stream.RunInfo{Run: "r1", Thread: "t1", State: stream.RunStarted}))
		stop := reap(t, w, w, 2, publish.ReaperConfig{Idle: 10 * time.Minute})
		_, err := w.Append(t.Context(), "r1", stream.Record{Event: []byte(`{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)})
		ok(t, err)
		for range 10 {
			time.Sleep(9 * time.Minute) // the bubble's time
			_, err := w.Append(t.Context(), "r1", stream.Record{Event: []byte(`{"type":"CUSTOM","name":"n","value":1}`)})
			ok(t, err)
		}
		if n := len(entries(t, w, "r1")); n != 11 {
			t.Fatalf("%d entries", n)
		}
		time.Sleep(14 * time.Minute)
		synctest.Wait()
		all := entries(t, w, "r1")
		if last := string(all[len(all)-1].Event); len(all) != 12 || !strings.Contains(last, `"code":"idle"`) {
			t.Fatal(len(all), last)
		}
		wantText(t, states(t, w), "started@t1 error@t1")
		stop()
	})
}

func TestAnEndThatCouldNotBeAnnouncedIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		run := open(t, w, start)
		w.away(stream.ErrUnavailable)
		if err := run.Finish(t.Context(), publish.End{}); !errors.Is(err, stream.ErrUnavailable) {
			t.Fatal(err)
		}
		w.away(nil)
		stop := reap(t, w, w, 1, publish.ReaperConfig{})
		time.Sleep(time.Minute) // the bubble's time
		synctest.Wait()
		wantText(t, states(t, w), "started@t1 finished@t1")
		stop()
		_ = run.Release(t.Context())
	})
}
