package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sweptSource counts what sweeps ask of a tail's source.
type sweptSource struct {
	source
	looks, reads atomic.Int64
	asked        func(keys []position) // called with what is looked at or read, where it isn't nil
}

func (s *sweptSource) behind(ctx context.Context, shard uint64, keys []position) ([]int, error) {
	s.looks.Add(int64(len(keys)))
	if s.asked != nil {
		s.asked(keys)
	}
	return s.source.behind(ctx, shard, keys)
}

func (s *sweptSource) readAnchored(ctx context.Context, shard uint64, keys []position, count int) ([]reply, []anchor, error) {
	s.reads.Add(int64(len(keys)))
	if s.asked != nil {
		s.asked(keys)
	}
	return s.source.readAnchored(ctx, shard, keys, count)
}

// TestAQuietRunIsLookedAtOftenAndReadSeldom: once in TailConfig.Look it is looked whether a run has something, and its
// position is verified after so many looks; a run that is read anyway isn't read once more for that, or looked at.
func TestAQuietRunIsLookedAtOftenAndReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, _, _ := newWokenTail(log, true)
		source := &sweptSource{source: tail.src}
		tail.src = source
		defer runTail(t, tail)()
		ids := appendN(t, log, "r", 1, "there")
		var r heard
		defer tail.Follow("r", ids[0], r.sink)()
		synctest.Wait()
		const sweeps = 100
		sweptFor := func(each time.Duration, meanwhile func()) (looks, reads int64) {
			looks, reads = source.looks.Load(), source.reads.Load()
			for range time.Duration(sweeps) * tail.cfg.Look / each {
				time.Sleep(each)
				meanwhile()
				synctest.Wait()
			}
			return source.looks.Load() - looks, source.reads.Load() - reads
		}
		looks, reads := sweptFor(time.Second, func() {})
		if looks+reads < sweeps || looks+reads > sweeps*5/4 || reads < sweeps/(verifySweeps+1) || reads > looks/verifySweeps+1 {
			t.Errorf("%d looks and %d reads in %d times Look", looks, reads, sweeps)
		}
		entries := 0
		looks, reads = sweptFor(2*tail.cfg.Look, func() { entries++; appendN(t, log, "r", 1, "woken") })
		if reads != int64(entries) || looks < sweeps {
			t.Errorf("%d looks and %d reads for %d entries", looks, reads, entries)
		}
		looks, reads = sweptFor(tail.cfg.Look/2, func() { entries++; appendN(t, log, "r", 1, "woken") })
		if reads != 2*sweeps || looks > 1 {
			t.Errorf("%d looks and %d reads, though it was read twice in the time of a look", looks, reads)
		}
		if r.count() != entries || len(r.errs) > 0 || tail.Health().Wakes.Lost > 0 {
			t.Errorf("%d entries of %d, %v, %+v", r.count(), entries, r.errs, tail.Health())
		}
	})
}

// TestASweepThatFailsHasItsRunsReadAnew: what answers after an error may be another server.
func TestASweepThatFailsHasItsRunsReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, _, _ := newWokenTail(log, true)
		defer runTail(t, tail)()
		ids := appendN(t, log, "r", 1, "there")
		var r heard
		defer tail.Follow("r", ids[0], r.sink)()
		synctest.Wait()
		time.Sleep(tail.cfg.Look) // it was read a sweep ago
		synctest.Wait()
		log.SetFault(ErrUnavailable)
		time.Sleep(tail.cfg.Look)
		synctest.Wait()
		if tail.Healthy() {
			t.Error("nobody noticed")
		}
		log.Delete("r")
		log.SetFault(nil)
		time.Sleep(2 * maxBackoff)
		synctest.Wait()
		if len(r.errs) != 1 {
			t.Errorf("%v", r.errs)
		}
	})
}

// TestEveryQuietRunIsLookedAtInTime: wherever others come and go, and however many were taken up together, who then don't stay
// together.
func TestEveryQuietRunIsLookedAtInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail, _, _ := newWokenTail(log, true)
		var mu sync.Mutex
		last, most := map[string]time.Time{}, 0
		tail.src = &sweptSource{source: tail.src, asked: func(keys []position) {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, len(keys))
			for _, k := range keys {
				if before, some := last[k.key]; some && time.Since(before) > tail.cfg.Look+maxWakeGap {
					t.Errorf("%s after %v", k.key, time.Since(before))
				}
				last[k.key] = time.Now()
			}
		}}
		defer runTail(t, tail)()
		var r heard
		stops := map[int]func(){}
		follow := func(n int) {
			run := RunID(fmt.Sprint("r", n))
			stops[n] = tail.Follow(run, appendN(t, log, run, 1, "there")[0], r.sink)
		}
		const runs = 300
		for n := range runs {
			follow(n)
		}
		time.Sleep(2 * tail.cfg.Look)
		mu.Lock()
		most = 0
		mu.Unlock()
		for n := range 3 * runs {
			time.Sleep(tail.cfg.Look / 50)
			if n < 2*runs {
				follow(runs + n)
			}
			gone := n * 7919 % (runs + n)
			stop := stops[gone]
			if stop == nil {
				continue
			}
			run := RunID(fmt.Sprint("r", gone)) // it was read right before: another takes its place, not its turn
			appendN(t, log, run, 1, "the last")
			synctest.Wait()
			stop()
			delete(stops, gone)
			mu.Lock()
			delete(last, log.Keys().Run(run))
			mu.Unlock()
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if most > 2*len(stops)/sweepSteps {
			t.Errorf("%d of %d or fewer at once", most, len(stops))
		}
		for n, stop := range stops {
			stop()
			if when, some := last[log.Keys().Run(RunID(fmt.Sprint("r", n)))]; !some || time.Since(when) > tail.cfg.Look+maxWakeGap {
				t.Errorf("r%d: %v ago", n, time.Since(when))
			}
		}
	})
}
