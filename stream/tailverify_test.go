package stream

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// heard is what a follower was handed.
type heard struct {
	mu      sync.Mutex
	entries []Entry
	errs    []error
}

// count is how many entries came, for those who look while it goes on.
func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.entries)
}

func (h *heard) sink(b Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, b.Entries...)
	if b.Err != nil {
		h.errs = append(h.errs, b.Err)
	}
}

func appendN(t *testing.T, log *Memory, run RunID, n int, text string) []ID {
	t.Helper()
	var all []ID
	for i := range n {
		ids, err := log.Append(t.Context(), run, Record{Event: fmt.Appendf(nil, "%s %d", text, i)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ids...)
	}
	return all
}

func TestEveryLossUnderAFollowerIsTold(t *testing.T) {
	cases := map[string]func(t *testing.T, log *Memory, ids []ID){
		"the newest entries are lost": func(_ *testing.T, log *Memory, ids []ID) {
			log.Lose("r", ids[5])
		},
		"the newest entries are lost and others follow": func(t *testing.T, log *Memory, ids []ID) {
			log.Lose("r", ids[5])
			time.Sleep(time.Millisecond)
			appendN(t, log, "r", 3, "other")
		},
		"the key is deleted": func(_ *testing.T, log *Memory, _ []ID) {
			log.Delete("r")
		},
		"the key is recreated with lower ids": func(t *testing.T, log *Memory, ids []ID) {
			log.Delete("r")
			log.cfg.Now = func() time.Time { return time.UnixMilli(int64(ids[0].Ms) - 1000) }
			appendN(t, log, "r", 20, "other")
		},
		"the key is recreated with the same ids": func(t *testing.T, log *Memory, ids []ID) {
			log.Delete("r")
			log.cfg.Now = func() time.Time { return time.UnixMilli(int64(ids[0].Ms)) }
			appendN(t, log, "r", 20, "other")
		},
		"all is trimmed and others follow": func(t *testing.T, log *Memory, ids []ID) {
			if _, err := log.Trim(t.Context(), "r", ids[9].Next()); err != nil {
				t.Fatal(err)
			}
			appendN(t, log, "r", 3, "other")
		},
	}
	for name, lose := range cases {
		const soon = 5 * time.Second // docs/contract.md, section 2
		testLoss(t, name, lose, soon, func(log *Memory) *Tail { return log.NewTail(TailConfig{}) })
		within := 30 * time.Second
		if name == "the key is deleted" {
			within = soon
		}
		testLoss(t, name+", with wake-ups", lose, within, func(log *Memory) *Tail {
			tail, _, _ := newWokenTail(log, true)
			return tail
		})
	}
}

// testLoss has a loss be found within a time.
func testLoss(t *testing.T, name string, lose func(*testing.T, *Memory, []ID), within time.Duration, newTail func(*Memory) *Tail) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			log := newMemory(t)
			ids := appendN(t, log, "r", 10, "first")
			quiet := appendN(t, log, "quiet", 1, "first")
			tail := newTail(log)
			defer runTail(t, tail)()
			var r, other heard
			tail.Follow("r", ID{}, r.sink)
			tail.Follow("quiet", quiet[0], other.sink)
			synctest.Wait()
			log.SetFault(ErrUnavailable) // so that the loss and what follows are seen at once
			log.SetFault(nil)
			lose(t, log, ids)
			time.Sleep(within)
			synctest.Wait()
			appendN(t, log, "r", 1, "later")
			synctest.Wait()
			if len(r.entries) != 10 || len(r.errs) != 1 || !errors.Is(r.errs[0], ErrLost) {
				t.Errorf("%d entries, %v", len(r.entries), r.errs)
			}
			if len(other.errs) > 0 {
				t.Errorf("a run that is whole: %v", other.errs)
			}
			var anew heard // and the run can be followed anew
			tail.Follow("r", ID{}, anew.sink)
			synctest.Wait()
			if len(anew.entries) == 0 || len(anew.errs) > 0 {
				t.Errorf("anew: %d entries, %v", len(anew.entries), anew.errs)
			}
		})
	})
}

func TestATrimBehindAFollowerIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		ids := appendN(t, log, "r", 10, "first")
		tail := log.NewTail(TailConfig{})
		defer runTail(t, tail)()
		var r heard
		tail.Follow("r", ids[4], r.sink)
		synctest.Wait()
		if _, err := log.Trim(t.Context(), "r", ids[9]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		appendN(t, log, "r", 2, "more")
		synctest.Wait()
		if len(r.entries) != 7 || len(r.errs) > 0 {
			t.Errorf("%d entries, %v", len(r.entries), r.errs)
		}
	})
}

func TestTheRegistryIsHeardAnewWhereItWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemory(t)
		tail := log.NewTail(TailConfig{})
		registry := log.NewRegistry(tail)
		defer runTail(t, tail)()
		announce := func(run RunID) {
			if err := registry.Announce(t.Context(), RunInfo{Run: run, Thread: "t", State: RunStarted}); err != nil {
				t.Fatal(err)
			}
		}
		announce("r1")
		var runs []RunID
		defer registry.Follow(ID{}, func(events []RunEvent) {
			for _, e := range events {
				runs = append(runs, e.Run)
			}
		})()
		synctest.Wait()
		log.mu.Lock()
		delete(log.streams, log.keys.Runs())
		log.mu.Unlock()
		log.cfg.Now = func() time.Time { return time.Now().Add(-time.Hour) }
		announce("r2")
		time.Sleep(tail.cfg.Verify + tail.cfg.Block)
		synctest.Wait()
		announce("r3")
		synctest.Wait()
		if fmt.Sprint(runs) != "[r1 r2 r3]" {
			t.Errorf("%v", runs)
		}
	})
}

// The rule: each follower is told of its loss before any later entry, wherever others of the same run stand, such as one who
// read anew what is left.
func TestALossIsToldToEachFollowerOfARun(t *testing.T) {
	type kind struct{ later, woken bool }
	for name, k := range map[string]kind{
		"while the run is quiet": {}, "before what follows": {later: true},
		"while the run is quiet, by wake-ups": {woken: true}, "before what follows, by wake-ups": {later: true, woken: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newMemory(t)
				tail := log.NewTail(TailConfig{})
				if k.woken {
					tail, _, _ = newWokenTail(log, true)
				}
				defer runTail(t, tail)()
				ids := appendN(t, log, "r", 10, "event")
				var old, anew heard
				defer tail.Follow("r", ids[8], old.sink)()
				synctest.Wait()
				log.Lose("r", ids[5])
				defer tail.Follow("r", ids[5], anew.sink)()
				if k.later {
					synctest.Wait()
					appendN(t, log, "r", 1, "later")
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(old.entries) != 1 || len(old.errs) != 1 || !errors.Is(old.errs[0], ErrLost) {
					t.Errorf("who had what is lost got %d entries, and was told %v", len(old.entries), old.errs)
				}
				if want := map[bool]int{true: 1}[k.later]; len(anew.entries) != want || len(anew.errs) > 0 {
					t.Errorf("who read what is left got %d entries, not %d, and was told %v", len(anew.entries), want, anew.errs)
				}
			})
		})
	}
}
