package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newMemory returns an empty log in memory.
func newMemory(t *testing.T) *Memory {
	t.Helper()
	log, err := NewMemory(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// runTail runs tail until the returned function is called.
func runTail(t *testing.T, tail *Tail) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tail.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	}
}

func TestTailInABubbleTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail := log.NewTail(TailConfig{})
		defer runTail(t, tail)()
		begin := time.Now()
		var got []Entry
		tail.Follow("r", ID{}, func(b Batch) { got = append(got, b.Entries...) })
		synctest.Wait()
		for i := range 10 {
			if _, err := log.Append(t.Context(), "r", Record{Event: fmt.Appendf(nil, "%d", i)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(got) != i+1 {
				t.Fatalf("%d entries after %d appends", len(got), i+1)
			}
		}
		if waited := time.Since(begin); waited != 0 {
			t.Fatalf("it took %v", waited)
		}
		if got[0].ID.Ms != uint64(begin.UnixMilli()) || got[9].ID.Seq != 9 {
			t.Fatalf("ids %v to %v don't come from the clock", got[0].ID, got[9].ID)
		}
	})
}

func TestTailBacksOffWhileReadsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		log.SetFault(ErrUnavailable)
		source := &countingSource{source: log.NewTail(TailConfig{}).src}
		tail := newTail(source, log.Keys(), TailConfig{})
		defer runTail(t, tail)()
		var got atomic.Int64
		tail.Follow("r", ID{}, func(b Batch) { got.Add(int64(len(b.Entries))) })
		time.Sleep(time.Minute)
		if reads := source.reads.Load(); reads < 25 || reads > 80 {
			t.Errorf("%d reads in a minute of outage", reads)
		}
		if h := tail.Health(); !errors.Is(h.Err, ErrUnavailable) || time.Since(h.OldestRead) < time.Minute {
			t.Errorf("%+v", h)
		}
		log.SetFault(nil)
		if _, err := log.Append(t.Context(), "r", Record{Event: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxBackoff)
		synctest.Wait()
		if got.Load() != 1 || !tail.Healthy() {
			t.Errorf("%d entries, %v", got.Load(), tail.LastError())
		}
	})
}

// countingSource counts what a tail asks of its source.
type countingSource struct {
	source
	reads, interrupts atomic.Int64
	delay             time.Duration // of an interrupt, as a network has it
}

func (s *countingSource) read(ctx context.Context, shard uint64, keys []position, count int, block time.Duration) ([]reply, error) {
	s.reads.Add(1)
	return s.source.read(ctx, shard, keys, count, block)
}

func (s *countingSource) interrupt(ctx context.Context, shards []uint64) error {
	s.interrupts.Add(int64(len(shards)))
	time.Sleep(s.delay)
	return s.source.interrupt(ctx, shards)
}

// deafSource loses every interrupt.
type deafSource struct{ source }

func (deafSource) interrupt(context.Context, []uint64) error { return nil }

func TestALostWakeUpCostsABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		appendN(t, log, "r", 3, "there")
		tail := newTail(deafSource{log.NewTail(TailConfig{}).src}, log.Keys(), TailConfig{})
		defer runTail(t, tail)()
		defer tail.Follow("quiet", ID{}, func(Batch) {})()
		synctest.Wait() // blocked in a read
		var r heard
		defer tail.Follow("r", ID{}, r.sink)()
		synctest.Wait()
		if r.count() > 0 {
			t.Fatal("the wake-up wasn't lost")
		}
		time.Sleep(tail.cfg.Block)
		synctest.Wait()
		if r.count() != 3 {
			t.Errorf("%d entries a block later", r.count())
		}
		appendN(t, log, "r", 1, "comes") // and then as ever
		synctest.Wait()
		if r.count() != 4 || len(r.errs) > 0 {
			t.Errorf("%d entries, %v", len(r.entries), r.errs)
		}
	})
}

func TestManyFollowsAtOnceCostFewInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		source := &countingSource{source: log.NewTail(TailConfig{}).src, delay: time.Millisecond}
		tail := newTail(source, log.Keys(), TailConfig{})
		defer runTail(t, tail)()
		stopFirst := tail.Follow("first", ID{}, func(Batch) {})
		synctest.Wait() // blocked in a read
		var wg sync.WaitGroup
		stops := make([]func(), 1000)
		for i := range stops {
			wg.Go(func() { stops[i] = tail.Follow(RunID(fmt.Sprintf("r%d", i)), ID{}, func(Batch) {}) })
		}
		wg.Wait()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if n := source.interrupts.Load(); n > 25 {
			t.Errorf("%d interrupts for 1,000 follows", n)
		}
		if h := tail.Health(); h.Keys != 1001 || h.Shards != 11 {
			t.Errorf("%+v", h)
		}
		before := source.interrupts.Load()
		for _, stop := range stops {
			stop()
		}
		stopFirst()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if h := tail.Health(); h.Keys != 0 || h.Shards != 0 || source.interrupts.Load() != before {
			t.Errorf("%+v after all stops, %d interrupts", h, source.interrupts.Load()-before)
		}
	})
}

func TestASlowSinkHoldsUpItsConnectionForTheGraceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail := log.NewTail(TailConfig{Grace: 20 * time.Millisecond})
		defer runTail(t, tail)()
		release := make(chan struct{})
		var slow, quick atomic.Int64
		tail.Follow("slow", ID{}, func(b Batch) { <-release; slow.Add(int64(len(b.Entries))) })
		tail.Follow("quick", ID{}, func(b Batch) { quick.Add(int64(len(b.Entries))) })
		synctest.Wait()
		add := func(run RunID) {
			if _, err := log.Append(t.Context(), run, Record{Event: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		add("slow")
		synctest.Wait()
		add("quick")
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		if quick.Load() != 1 {
			t.Fatal("the quick run waits for longer than the grace")
		}
		begin := time.Now()
		for i := range 5 { // the slow one is left out: no grace is spent any more
			add("slow")
			add("quick")
			synctest.Wait()
			if quick.Load() != int64(i)+2 {
				t.Fatalf("%d entries of the quick run", quick.Load())
			}
		}
		if time.Since(begin) != 0 {
			t.Fatalf("it took %v", time.Since(begin))
		}
		close(release)
		synctest.Wait() // and is taken up again at once
		if slow.Load() != 6 || time.Since(begin) != 0 {
			t.Fatalf("%d entries of the slow run after %v", slow.Load(), time.Since(begin))
		}
	})
}

func TestStopWaitsForTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail := log.NewTail(TailConfig{})
		defer runTail(t, tail)()
		release := make(chan struct{})
		calls := 0
		stop := tail.Follow("r", ID{}, func(Batch) { calls++; time.Sleep(time.Second); <-release })
		if _, err := log.Append(t.Context(), "r", Record{Event: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stopped := false
		var wg sync.WaitGroup
		wg.Go(func() { stop(); stopped = true })
		time.Sleep(10 * time.Second)
		if stopped {
			t.Error("stop returned while the sink was running")
		}
		if _, err := log.Append(t.Context(), "r", Record{Event: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		close(release)
		wg.Wait()
		time.Sleep(10 * time.Second)
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestLargeEntriesShrinkTheCount(t *testing.T) {
	large := []reply{{messages: []message{{fields: map[string]any{"event": string(make([]byte, maxReadBytes+1))}}}}}
	count := maxReadCount
	for range 20 {
		count = adaptCount(count, large)
	}
	if count != 1 {
		t.Errorf("count %d after large replies", count)
	}
	for range 20 {
		count = adaptCount(count, nil)
	}
	if count != maxReadCount {
		t.Errorf("count %d after small ones", count)
	}
}

func TestReadPageStopsWhereTheStreamIsTrimmedMeanwhile(t *testing.T) {
	var reads int
	page, err := readPage(ID{}, 100, 1<<20, func(from ID, count int) ([]Entry, error) {
		reads++
		if reads > 1 {
			from = ID{Ms: from.Ms + 10} // trimmed beyond what was read
		}
		entries := make([]Entry, count)
		for i := range entries {
			entries[i] = Entry{ID: ID{Ms: from.Ms + uint64(i), Seq: 1}}
		}
		return entries, nil
	})
	if err != nil || reads != 2 || len(page.Entries) != firstChunk || !page.More {
		t.Errorf("%d entries, more %v after %d reads, %v", len(page.Entries), page.More, reads, err)
	}
}
