package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// memoryWaker tells of what is appended to a log in memory.
type memoryWaker struct {
	log    *Memory
	deaf   atomic.Bool   // wake-ups get lost
	mute   atomic.Value  // the key whose wake-ups get lost
	away   atomic.Bool   // probes fail
	cut    chan struct{} // ends a listening
	probes atomic.Int64
}

func (w *memoryWaker) probe(context.Context) error {
	if w.probes.Add(1); w.away.Load() {
		return errors.New("no wake-ups")
	}
	return nil
}

func (w *memoryWaker) listen(ctx context.Context, to ears) error {
	seen := map[string]ID{}
	for first := true; ; first = false {
		w.log.mu.Lock()
		changed := w.log.changed
		var woken []string
		for key, s := range w.log.streams {
			if seen[key] != s.last {
				seen[key] = s.last
				woken = append(woken, key)
			}
		}
		w.log.mu.Unlock()
		if first {
			to.up()
			woken = nil
		}
		for _, key := range woken {
			if !w.deaf.Load() && w.mute.Load() != key {
				to.woke(key)
			}
		}
		select {
		case <-changed:
		case <-w.cut:
			return errors.New("cut")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (*memoryWaker) hear(string, bool) {}

// newWokenTail is a tail in memory that waits for wake-ups.
func newWokenTail(log *Memory, covers bool) (*Tail, *memoryWaker, *countingSource) {
	w := &memoryWaker{log: log, cut: make(chan struct{})}
	source := &countingSource{source: log.NewTail(TailConfig{}).src}
	tail := newTail(source, log.Keys(), TailConfig{By: TailWake}, &driver{name: "memory", covers: covers, waker: w})
	tail.cfg.WakeAbove = 0
	return tail, w, source
}

func TestWakeUpsReadAtOnceWhatTheyTellOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, _, source := newWokenTail(log, true)
		defer runTail(t, tail)()
		var r, quiet heard
		defer tail.Follow("r", ID{}, r.sink)()
		defer tail.Follow("quiet", ID{}, quiet.sink)()
		synctest.Wait()
		if h := tail.Health(); h.Wakes.By != "memory" || h.Wakes.Keys != 2 {
			t.Fatalf("%+v", h)
		}
		blocked := source.reads.Load()
		for i := range 10 {
			time.Sleep(minWakeGap)
			began := time.Now()
			appendN(t, log, "r", 1, "one")
			synctest.Wait()
			if r.count() != i+1 || time.Since(began) > 0 {
				t.Fatalf("%d entries, %v later", r.count(), time.Since(began))
			}
		}
		if source.reads.Load() != blocked {
			t.Error("blocked reads for runs that are woken")
		}
		if len(r.errs)+len(quiet.errs)+len(quiet.entries) > 0 || tail.Health().Wakes.Lost > 0 {
			t.Errorf("%v, %v, %+v", r.errs, quiet.errs, tail.Health())
		}
	})
}

func TestAWakeUpThatIsLostIsMadeUpForByTheSweep(t *testing.T) {
	for _, covers := range []bool{true, false} {
		t.Run(fmt.Sprintf("a driver that covers all: %v", covers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newMemory(t)
				tail, w, _ := newWokenTail(log, covers)
				defer runTail(t, tail)()
				var r heard
				defer tail.Follow("r", ID{}, r.sink)()
				synctest.Wait()
				appendN(t, log, "r", 1, "woken")
				synctest.Wait()
				if h := tail.Health(); h.Wakes.Keys != 1 {
					t.Fatalf("%+v", h)
				}
				time.Sleep(2 * minWakeGap)
				synctest.Wait()
				w.deaf.Store(true)
				appendN(t, log, "r", 1, "lost")
				began := time.Now()
				for r.count() < 2 && time.Since(began) < time.Minute {
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				if late := time.Since(began); late > tail.cfg.Look {
					t.Errorf("%v late", late)
				}
				time.Sleep(2 * tail.cfg.Look) // and the run, or the driver, isn't trusted any more
				synctest.Wait()
				if h := tail.Health(); h.Wakes.Lost != 1 || h.Wakes.Keys != 0 {
					t.Errorf("%+v", h)
				}
				appendN(t, log, "r", 1, "read without")
				synctest.Wait()
				if r.count() != 3 || len(r.errs) > 0 {
					t.Errorf("%d entries, %v", r.count(), r.errs)
				}
				w.deaf.Store(false)
				time.Sleep(2 * holdTime)
				appendN(t, log, "r", 1, "woken")
				synctest.Wait()
				if h := tail.Health(); h.Wakes.Keys != 1 || r.count() != 4 {
					t.Errorf("later: %+v, %d entries", h, r.count())
				}
			})
		})
	}
}

// TestOthersWakeUpsDontHoldUpTheSweep: however many runs are woken meanwhile, one whose wake-up got lost isn't later than
// the sweep.
func TestOthersWakeUpsDontHoldUpTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, w, _ := newWokenTail(log, false)
		defer runTail(t, tail)()
		var r, busy heard
		defer tail.Follow("r", ID{}, r.sink)()
		defer tail.Follow("busy", ID{}, busy.sink)()
		synctest.Wait()
		appendN(t, log, "r", 1, "woken")
		appendN(t, log, "busy", 1, "woken")
		synctest.Wait()
		if h := tail.Health(); h.Wakes.Keys != 2 {
			t.Fatalf("%+v", h)
		}
		w.mute.Store(log.Keys().Run("r"))
		appendN(t, log, "r", 1, "lost")
		began := time.Now()
		for r.count() < 2 && time.Since(began) <= 2*tail.cfg.Look {
			appendN(t, log, "busy", 1, "woken")
			time.Sleep(minWakeGap / 4)
			synctest.Wait()
		}
		if late := time.Since(began); late > tail.cfg.Look {
			t.Errorf("%v late", late)
		}
	})
}

func TestALostSubscriptionLeadsBackToBlockedReadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, w, _ := newWokenTail(log, true)
		defer runTail(t, tail)()
		const runs = 300
		var got [runs]heard
		var stops []func()
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		for i := range got {
			stops = append(stops, tail.Follow(RunID(fmt.Sprintf("r%d", i)), ID{}, got[i].sink))
		}
		check := func(n int, when string) {
			t.Helper()
			for i := range got {
				appendN(t, log, RunID(fmt.Sprintf("r%d", i)), 1, when)
			}
			synctest.Wait()
			time.Sleep(2 * minWakeGap)
			synctest.Wait()
			for i := range got {
				if got[i].count() != n || len(got[i].errs) > 0 {
					t.Fatalf("%s: %d entries, %v", when, got[i].count(), got[i].errs)
				}
			}
		}
		synctest.Wait()
		check(1, "with wake-ups")
		if h := tail.Health(); h.Shards != 1 || h.Wakes.Keys != runs {
			t.Errorf("%+v", h)
		}
		w.away.Store(true)
		w.cut <- struct{}{}
		synctest.Wait()
		check(2, "without")
		if h := tail.Health(); h.Shards != 3 || h.Wakes.By != "" || h.Wakes.Keys != 0 {
			t.Errorf("%+v", h)
		}
		w.away.Store(false)
		time.Sleep(probeEvery + maxBackoff)
		synctest.Wait()
		check(3, "with wake-ups again")
		if h := tail.Health(); h.Shards != 1 || h.Wakes.Keys != runs || h.Wakes.Changes != 3 {
			t.Errorf("%+v", h)
		}
	})
}

func TestFewRunsAreReadWithoutWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		w := &memoryWaker{log: log, cut: make(chan struct{})}
		tail := newTail(log.NewTail(TailConfig{}).src, log.Keys(), TailConfig{}, &driver{name: "memory", covers: true, waker: w})
		defer runTail(t, tail)()
		var stops []func()
		follow := func(n int) {
			for len(stops) < n {
				stops = append(stops, tail.Follow(RunID(fmt.Sprintf("r%d", len(stops))), ID{}, func(Batch) {}))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		follow(100)
		if h := tail.Health(); h.Wakes.By != "" || w.probes.Load() > 0 {
			t.Errorf("%+v, %d probes", h, w.probes.Load())
		}
		follow(101)
		if h := tail.Health(); h.Wakes.Keys != 101 || h.Shards != 1 {
			t.Errorf("%+v", h)
		}
		for _, stop := range stops[50:] {
			stop()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if h := tail.Health(); h.Wakes.By != "" || h.Keys != 50 || h.Wakes.Lost > 0 {
			t.Errorf("%+v", h)
		}
		for _, stop := range stops[:50] {
			stop()
		}
	})
}

func TestASlowSinkOfAWokenRunGetsAllOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, w, _ := newWokenTail(log, true)
		defer runTail(t, tail)()
		release := make(chan struct{})
		var slow, quick heard
		defer tail.Follow("slow", ID{}, func(b Batch) { <-release; slow.sink(b) })()
		defer tail.Follow("slow", ID{}, quick.sink)() // of the same run
		synctest.Wait()
		for i := range 5 {
			appendN(t, log, "slow", 1, "one")
			time.Sleep(time.Second)
			synctest.Wait()
			if quick.count() != i+1 {
				t.Fatalf("%d entries", quick.count())
			}
		}
		w.cut <- struct{}{} // the batch is under way while the run changes its shard
		synctest.Wait()
		close(release)
		synctest.Wait()
		time.Sleep(minWakeGap)
		synctest.Wait()
		if slow.count() != 5 {
			t.Errorf("%d entries", slow.count())
		}
		for i, e := range slow.entries {
			if e.ID != quick.entries[i].ID {
				t.Errorf("entry %d is %v, not %v", i, e.ID, quick.entries[i].ID)
			}
		}
	})
}
