package stream

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sweptSource counts what sweeps ask of a tail's source.
type sweptSource struct {
	source
	looks, reads atomic.Int64
}

func (s *sweptSource) behind(ctx context.Context, shard uint64, keys []position) ([]int, error) {
	s.looks.Add(int64(len(keys)))
	return s.source.behind(ctx, shard, keys)
}

func (s *sweptSource) readAnchored(ctx context.Context, shard uint64, keys []position, count int) ([]reply, []anchor, error) {
	s.reads.Add(int64(len(keys)))
	return s.source.readAnchored(ctx, shard, keys, count)
}

// TestAQuietRunIsLookedAtOftenAndReadSeldom: once in TailConfig.Look it is looked whether a run has something, and its
// position is verified after so many looks; a run that is read anyway isn't read once more for that.
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
