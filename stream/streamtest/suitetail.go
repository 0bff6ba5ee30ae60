package streamtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aguihub/aguihub/stream"
)

func testFollow(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "follow")
	ids := fill(t, log, r, 0, 700)
	all := followTail(t, log, b, r, stream.ID{})
	late := followTail(t, log, b, r, ids[499])
	all.Wait(t, 700)
	ids = append(ids, fill(t, log, r, 700, 900)...)
	all.check(t, ids, 0)
	late.check(t, ids[500:], 500)
}

func testFollowBeforeKey(t *testing.T, b Backend) {
	log := b.Open(t)
	r, other := run(t, "early"), run(t, "early-other")
	tail := log.NewTail(b.Tail)
	c, o := NewCollector(), NewCollector()
	t.Cleanup(tail.Follow(r, stream.ID{}, c.Sink))
	RunTail(t, tail)
	t.Cleanup(tail.Follow(other, stream.ID{}, o.Sink))
	ids := fill(t, log, r, 0, 3)
	c.Wait(t, 3)
	checkEntries(t, c.Entries(), ids, 0)
	ids = fill(t, log, other, 0, 2)
	o.Wait(t, 2)
	checkEntries(t, o.Entries(), ids, 0)
	if err := tail.Run(t.Context()); !errors.Is(err, stream.ErrTailStarted) {
		t.Fatalf("second Run: %v", err)
	}
}

func testFollowRace(t *testing.T, b Backend) {
	log := b.Open(t)
	const runs, events, followers = 8, 60, 5
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	ids := make([][]stream.ID, runs)
	collectors := make([]*Collector, runs*followers)
	for i := range collectors {
		collectors[i] = NewCollector()
	}
	each(runs*(followers+1), func(i int) {
		r := stream.RunID(fmt.Sprintf("race-%d", i%runs))
		if i < runs {
			for n := range events {
				got, err := log.Append(t.Context(), r, event(n))
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = append(ids[i], got...)
			}
			return
		}
		c := collectors[i-runs]
		stop := tail.Follow(r, stream.ID{}, c.Sink)
		if i%2 == 0 { // comes and goes: each time on from what it has
			stop()
			after := stream.ID{}
			if got := c.Entries(); len(got) > 0 {
				after = got[len(got)-1].ID
			}
			stop = tail.Follow(r, after, c.Sink)
		}
		t.Cleanup(stop)
	})
	for i, c := range collectors {
		c.Wait(t, events)
		checkEntries(t, c.Entries(), ids[i%runs], 0)
	}
}

func testTwoFollowers(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "two")
	ids := fill(t, log, r, 0, 40)
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	high, low := NewCollector(), NewCollector()
	t.Cleanup(tail.Follow(r, ids[29], high.Sink))
	high.Wait(t, 10)
	stop := tail.Follow(r, ids[4], low.Sink)
	low.Wait(t, 35)
	checkEntries(t, low.Entries(), ids[5:], 5)
	stop()
	ids = append(ids, fill(t, log, r, 40, 50)...)
	high.Wait(t, 20)
	checkEntries(t, high.Entries(), ids[30:], 30)
	checkEntries(t, low.Entries(), ids[5:40], 5)
}

func testManyRuns(t *testing.T, b Backend) {
	log := b.Open(t)
	const runs = 300
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	collectors := make([]*Collector, runs)
	stops := make([]func(), runs)
	id := func(i int) stream.RunID { return stream.RunID(fmt.Sprintf("many-%d", i)) }
	each(runs, func(i int) {
		collectors[i] = NewCollector()
		stops[i] = tail.Follow(id(i), stream.ID{}, collectors[i].Sink)
	})
	if h := tail.Health(); h.Keys != runs || h.Shards != 3 && b.Wakes == "" {
		t.Fatalf("%+v", h)
	}
	Eventually(t, "wake-ups come", func() bool { return tail.Health().Wakes.By == b.Wakes })
	for round := range 3 {
		for i := range runs {
			if _, err := log.Append(t.Context(), id(i), event(round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, c := range collectors {
		once(t, id(i), c.Wait(t, 3))
	}
	each(runs, func(i int) { stops[i]() })
	Eventually(t, "connections without runs end", func() bool {
		h := tail.Health()
		return h.Keys == 0 && h.Shards == 0
	})
	if !tail.Healthy() || tail.LastError() != nil {
		t.Fatal(tail.LastError())
	}
}

func testStop(t *testing.T, b Backend) {
	log := b.Open(t)
	r, other := run(t, "stop"), run(t, "stop-other")
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	c, o := NewCollector(), NewCollector()
	entered, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	stop := tail.Follow(r, stream.ID{}, func(batch stream.Batch) {
		first.Do(func() { close(entered); <-release })
		c.Sink(batch)
	})
	t.Cleanup(tail.Follow(other, stream.ID{}, o.Sink))
	fill(t, log, r, 0, 1)
	<-entered
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(release)
	<-stopped
	n := len(c.Entries())
	fill(t, log, r, 1, 4)
	fill(t, log, other, 0, 1)
	o.Wait(t, 1) // whatever was to come for the first run has come by the time of a later entry
	fill(t, log, other, 1, 2)
	o.Wait(t, 2)
	if got := len(c.Entries()); got != n || n != 1 {
		t.Fatalf("%d entries, %d of them after stop", got, got-n)
	}
	stop() // again
}

func testSlowSink(t *testing.T, b Backend) {
	log := b.Open(t)
	slow, quick := run(t, "slow"), run(t, "quick")
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	release := make(chan struct{})
	s, q := NewCollector(), NewCollector()
	t.Cleanup(tail.Follow(slow, stream.ID{}, func(batch stream.Batch) { <-release; s.Sink(batch) }))
	t.Cleanup(tail.Follow(quick, stream.ID{}, q.Sink))
	slowIDs := fill(t, log, slow, 0, 10)
	quickIDs := fill(t, log, quick, 0, 10)
	q.Wait(t, 10)
	slowIDs = append(slowIDs, fill(t, log, slow, 10, 20)...)
	quickIDs = append(quickIDs, fill(t, log, quick, 10, 20)...)
	q.Wait(t, 20)
	if len(s.Entries()) != 0 {
		t.Fatal("the slow sink has entries already")
	}
	close(release)
	s.Wait(t, 20)
	checkEntries(t, s.Entries(), slowIDs, 0)
	checkEntries(t, q.Entries(), quickIDs, 0)
}

func testFollowWrongType(t *testing.T, b Backend) {
	log := b.Open(t)
	bad, good := run(t, "bad"), run(t, "good")
	b.SetWrongType(t, log, bad)
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	c, g := NewCollector(), NewCollector()
	t.Cleanup(tail.Follow(good, stream.ID{}, g.Sink))
	fill(t, log, good, 0, 1)
	g.Wait(t, 1)
	t.Cleanup(tail.Follow(bad, stream.ID{}, c.Sink))
	if errs := c.WaitErr(t, 1); !errors.Is(errs[0], stream.ErrWrongType) {
		t.Fatalf("%v", errs)
	}
	ids := fill(t, log, good, 1, 30)
	g.Wait(t, 30)
	checkEntries(t, g.Entries()[1:], ids, 1)
	b.Delete(t, log, bad)
	ids = fill(t, log, bad, 0, 5)
	c.Wait(t, 5)
	checkEntries(t, c.Entries(), ids, 0)
	if errs := c.Errs(); len(errs) != 1 {
		t.Fatalf("told %d times: %v", len(errs), errs)
	}
	if !tail.Healthy() {
		t.Fatalf("one bad key makes the tail unhealthy: %v", tail.LastError())
	}
}

func testOutage(t *testing.T, b Backend) {
	log := b.Open(t)
	const runs = 120
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	id := func(i int) stream.RunID { return stream.RunID(fmt.Sprintf("outage-%d", i)) }
	collectors := make([]*Collector, runs)
	ids := make([][]stream.ID, runs)
	follow := func(i int) {
		collectors[i] = NewCollector()
		t.Cleanup(tail.Follow(id(i), stream.ID{}, collectors[i].Sink))
	}
	for i := range runs - 1 {
		follow(i)
		ids[i] = fill(t, log, id(i), 0, 3)
	}
	for i := range runs - 1 {
		collectors[i].Wait(t, 3)
	}
	b.Outage(t, log, func() {
		follow(runs - 1)
		Eventually(t, "the tail notices", func() bool { return !tail.Healthy() })
		if err := tail.LastError(); !errors.Is(err, stream.ErrUnavailable) {
			t.Errorf("last error %v", err)
		}
		if err := log.Ping(t.Context()); !errors.Is(err, stream.ErrUnavailable) {
			t.Errorf("ping: %v", err)
		}
		_, err := log.Append(t.Context(), id(0), event(99))
		if failed, ok := errors.AsType[*stream.AppendError](err); !ok || failed.Appended != 0 || !errors.Is(err, stream.ErrUnavailable) {
			t.Errorf("append: %v", err)
		}
	})
	for i := range runs {
		have := len(ids[i])
		ids[i] = append(ids[i], fill(t, log, id(i), have, have+3)...)
	}
	for i, c := range collectors {
		c.Wait(t, len(ids[i]))
		checkEntries(t, c.Entries(), ids[i], 0)
	}
	Eventually(t, "the tail is healthy again", tail.Healthy)
}

func testRegistry(t *testing.T, b Backend) {
	log := b.Open(t)
	reg := log.NewRegistry(nil)
	ctx := t.Context()
	if last, err := reg.Last(ctx); err != nil || !last.IsZero() {
		t.Fatalf("%v, %v", last, err)
	}
	infos := []stream.RunInfo{
		{Run: "r1", Thread: "t1", State: stream.RunStarted},
		{Run: "r1", Thread: "t1", State: stream.RunFinished},
		{Run: "r2", Thread: "t1", Parent: "r1", State: stream.RunStarted},
		{Run: "r3", State: "something new"},
		{Run: "r2", State: stream.RunDeleted},
	}
	for _, info := range infos {
		if err := reg.Announce(ctx, info); err != nil {
			t.Fatal(err)
		}
	}
	var got []stream.RunInfo
	var before, newest stream.ID
	for {
		events, next, err := reg.List(ctx, before, 2)
		if err != nil || len(events) > 2 {
			t.Fatalf("%v, %v", events, err)
		}
		for _, e := range events {
			if newest.IsZero() {
				newest = e.ID
			}
			got = append(got, e.RunInfo)
		}
		if before = next; next.IsZero() {
			break
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, infos) {
		t.Fatalf("%+v", got)
	}
	if last, err := reg.Last(ctx); err != nil || last != newest {
		t.Fatalf("last %v, %v, want %v", last, err, newest)
	}
	for _, bad := range []stream.RunInfo{{Run: "a/b", State: "started"}, {State: "started"}, {Run: "r", Thread: "a{b", State: "started"}, {Run: "r", Parent: "..", State: "started"}} {
		if err := reg.Announce(ctx, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func testRegistryUntrusted(t *testing.T, b Backend) {
	log := b.Open(t)
	reg := log.NewRegistry(nil)
	for _, fields := range []map[string]string{
		{"run": "ok1", "state": "started"},
		{"run": "a/b", "state": "started"},
		{"run": strings.Repeat("x", 257), "state": "started"},
		{"state": "started"},
		{"run": "r"},
		{"run": "r", "state": strings.Repeat("s", 65)},
		{"run": "r", "thread": "\x00", "state": "started"},
		{"run": "r", "parent": "{}", "state": "started"},
		{"run": "\xff", "state": "started"},
		{"run": "ok2", "state": "started", "thread": "t", "parent": "p", "more": "fields"},
	} {
		b.AppendFields(t, log, log.Keys().Runs(), fields)
	}
	events, next, err := reg.List(t.Context(), stream.ID{}, 0)
	if err != nil || !next.IsZero() || len(events) != 2 || events[0].Run != "ok2" || events[1].Run != "ok1" {
		t.Fatalf("%+v, %v, %v", events, next, err)
	}
	if reg.Skipped() != 8 {
		t.Fatalf("%d skipped", reg.Skipped())
	}
}

func testRegistryFollow(t *testing.T, b Backend) {
	log := b.Open(t)
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	reg := log.NewRegistry(tail)
	ctx := t.Context()
	announce := func(i int) {
		t.Helper()
		if err := reg.Announce(ctx, stream.RunInfo{Run: stream.RunID(fmt.Sprintf("rf-%d", i)), State: stream.RunStarted}); err != nil {
			t.Fatal(err)
		}
	}
	announce(0)
	last, err := reg.Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan stream.RunEvent, 100)
	t.Cleanup(reg.Follow(last, func(batch []stream.RunEvent) {
		for _, e := range batch {
			events <- e
		}
	}))
	b.AppendFields(t, log, log.Keys().Runs(), map[string]string{"run": "/", "state": "started"})
	deadline, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i := 1; i <= 5; i++ {
		announce(i)
		select {
		case e := <-events:
			if want := stream.RunID(fmt.Sprintf("rf-%d", i)); e.Run != want || !last.Less(e.ID) {
				t.Fatalf("%+v, want %s", e, want)
			}
			last = e.ID
		case <-deadline.Done():
			t.Fatal("no event")
		}
	}
	if reg.Skipped() != 1 {
		t.Fatalf("%d skipped", reg.Skipped())
	}
}

func testThread(t *testing.T, b Backend) {
	log := b.Open(t)
	reg := log.NewRegistry(nil)
	ctx := t.Context()
	for _, r := range []stream.RunID{"th-1", "th-2", "th-3"} {
		if err := reg.Announce(ctx, stream.RunInfo{Run: r, Thread: "th", State: stream.RunStarted}); err != nil {
			t.Fatal(err)
		}
	}
	if err := reg.Announce(ctx, stream.RunInfo{Run: "th-4", Thread: "th", State: stream.RunFinished}); err != nil {
		t.Fatal(err)
	}
	for r, start := range map[stream.RunID]int64{"th-1": 3000, "th-2": 1000, "th-3": 2000, "th-4": 9000} {
		if err := reg.Correct(ctx, "th", r, start); err != nil {
			t.Fatal(err)
		}
	}
	// Announced again, as a second hub does: the corrected start stays.
	if err := reg.Announce(ctx, stream.RunInfo{Run: "th-1", Thread: "th", State: stream.RunStarted}); err != nil {
		t.Fatal(err)
	}
	runs, err := reg.Thread(ctx, "th", 0)
	want := []stream.ThreadRun{{Run: "th-1", StartMs: 3000}, {Run: "th-3", StartMs: 2000}, {Run: "th-2", StartMs: 1000}}
	if err != nil || !slices.Equal(runs, want) {
		t.Fatalf("%+v, %v", runs, err)
	}
	if runs, err = reg.Thread(ctx, "th", 2); err != nil || !slices.Equal(runs, want[:2]) {
		t.Fatalf("%+v, %v", runs, err)
	}
	if runs, err = reg.Thread(ctx, "nobody", 5); err != nil || len(runs) != 0 {
		t.Fatalf("%+v, %v", runs, err)
	}
	// Corrected and listed at once; who isn't there stays out.
	if runs, err = reg.ThreadWith(ctx, "th", "th-4", 9000, 0); err != nil || !slices.Equal(runs, want) {
		t.Fatalf("%+v, %v", runs, err)
	}
	want = []stream.ThreadRun{{Run: "th-2", StartMs: 4000}, {Run: "th-1", StartMs: 3000}, {Run: "th-3", StartMs: 2000}}
	if runs, err = reg.ThreadWith(ctx, "th", "th-2", 4000, 0); err != nil || !slices.Equal(runs, want) {
		t.Fatalf("%+v, %v", runs, err)
	}
}
