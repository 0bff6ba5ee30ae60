package streamtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// FencedLog is what stands beside a run's stream, as every log has it.
type FencedLog interface {
	Claim(ctx context.Context, run stream.RunID, c stream.Claim) (stream.Claimed, error)
	AppendFenced(ctx context.Context, run stream.RunID, a stream.FencedAppend, recs ...stream.Record) (stream.Appended, error)
	Keep(ctx context.Context, holds []stream.Hold) ([]stream.Kept, error)
	RequestCancel(ctx context.Context, run stream.RunID, control []byte) (stream.ID, error)
	Signals(ctx context.Context, runs ...stream.RunID) ([][]stream.Signal, error)
	Leases(ctx context.Context, runs ...stream.RunID) ([]stream.Lease, error)
	NoteLeases(ctx context.Context, runs ...stream.RunID) error
	Reap(ctx context.Context, run stream.RunID, r stream.Reap, events ...[]byte) ([]stream.ID, error)
	Settle(ctx context.Context, run stream.RunID, epoch uint64) error
}

// long is a lease that doesn't lapse within a test, short one that does at once.
const (
	long  = time.Hour
	short = 10 * time.Millisecond
)

func claim(t *testing.T, log FencedLog, r stream.RunID) stream.Fence {
	t.Helper()
	got, err := log.Claim(t.Context(), r, stream.Claim{Producer: "a", TTL: long})
	if err != nil {
		t.Fatal(err)
	}
	return got.Fence
}

func at(f stream.Fence, seq uint64) stream.FencedAppend {
	return stream.FencedAppend{Fence: f, Seq: seq, Floor: seq, TTL: long}
}

func testFenced(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "fenced")
	old := claim(t, log, r)
	if old.Epoch != 1 {
		t.Fatalf("%+v", old)
	}
	first, err := log.AppendFenced(t.Context(), r, at(old, 0), stream.Record{Event: []byte(`{"a":1}`), Input: []byte(`{"in":1}`)}, event(1))
	if err != nil || len(first.IDs) != 2 || first.Already != 0 || first.Last != first.IDs[1] || first.Foreign {
		t.Fatalf("%+v, %v", first, err)
	}
	page := mustRange(t, log, r, stream.ID{}, 10, 0)
	if string(page.Entries[0].Input) != `{"in":1}` || page.Entries[1].Input != nil || page.Entries[1].ID != first.Last {
		t.Fatalf("%+v", page.Entries)
	}
	got, err := log.Claim(t.Context(), r, stream.Claim{Producer: "b", TTL: long})
	if err != nil || got.Epoch != 2 || got.Next != 0 || !got.Last.IsZero() || got.Head != first.Last {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = log.AppendFenced(t.Context(), r, at(old, 2), event(2))
	if failed, ok := errors.AsType[*stream.AppendError](err); !ok || failed.Appended != 0 || !errors.Is(err, stream.ErrFenced) {
		t.Fatalf("the older epoch: %v", err)
	}
	if _, err := log.AppendFenced(t.Context(), r, at(got.Fence, 0), event(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Claim(t.Context(), r, stream.Claim{Producer: "c", Fresh: true, TTL: long}); !errors.Is(err, stream.ErrRunExists) {
		t.Fatalf("a claim of a new run: %v", err)
	}
	for name, c := range map[string]stream.Claim{
		"an older epoch":                 {Producer: "b", Epoch: 1, TTL: long},
		"the same epoch by another name": {Producer: "c", Epoch: 2, TTL: long},
	} {
		if _, err := log.Claim(t.Context(), r, c); !errors.Is(err, stream.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again, err := log.Claim(t.Context(), r, stream.Claim{Producer: "b", Epoch: 2, TTL: long}); err != nil || again.Next != 1 {
		t.Errorf("its own epoch: %+v, %v", again, err)
	}
	if len(mustRange(t, log, r, stream.ID{}, 10, 0).Entries) != 3 {
		t.Error("a refused append left something")
	}
}

func testDedupe(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "dedupe")
	f := claim(t, log, r)
	append3 := func(seq uint64) (stream.Appended, error) {
		return log.AppendFenced(t.Context(), r, at(f, seq), event(int(seq)), event(int(seq)+1), event(int(seq)+2))
	}
	first, err := append3(0)
	if err != nil {
		t.Fatal(err)
	}
	again, err := append3(0)
	if err != nil || again.Already != 3 || len(again.IDs) != 0 || again.Last != first.Last {
		t.Fatalf("the same again: %+v, %v", again, err)
	}
	part, err := append3(2)
	if err != nil || part.Already != 1 || len(part.IDs) != 2 {
		t.Fatalf("partly the same: %+v, %v", part, err)
	}
	_, err = append3(6)
	if gap, ok := errors.AsType[*stream.GapError](err); !ok || gap.Next != 5 {
		t.Fatalf("a gap: %v", err)
	}
	if _, err := log.AppendFenced(t.Context(), r, stream.FencedAppend{Fence: f, Seq: 7, Floor: 5, TTL: long}, event(5)); err != nil {
		t.Fatalf("numbers that were left out: %v", err)
	}
	if _, err := log.AppendFenced(t.Context(), r, stream.FencedAppend{Fence: f, Seq: 10, Floor: 8, TTL: long}); err != nil {
		t.Fatalf("the sequence alone: %v", err)
	}
	if _, err := log.Append(t.Context(), r, event(6)); err != nil {
		t.Fatal(err)
	}
	if got, err := log.AppendFenced(t.Context(), r, at(f, 10), event(7)); err != nil || !got.Foreign {
		t.Fatalf("somebody else's entry isn't told: %+v, %v", got, err)
	}
	if got, err := log.AppendFenced(t.Context(), r, at(f, 11), event(8)); err != nil || got.Foreign {
		t.Fatalf("it is told twice: %+v, %v", got, err)
	}
	entries := mustRange(t, log, r, stream.ID{}, 100, 0).Entries
	if len(entries) != 9 {
		t.Fatalf("%d entries", len(entries))
	}
	for i, e := range entries {
		if !bytes.Equal(e.Event, event(i).Event) {
			t.Fatalf("entry %d is %s", i, e.Event)
		}
	}
	// Many who repeat the same at once append it once.
	var wins atomic.Int64
	each(8, func(int) {
		got, err := log.AppendFenced(t.Context(), r, at(f, 12), event(9), event(10))
		if err != nil {
			t.Error(err)
		}
		wins.Add(int64(len(got.IDs)))
	})
	if wins.Load() != 2 {
		t.Fatalf("%d appended", wins.Load())
	}
}

func testFencedEnd(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "fenced-end")
	f := claim(t, log, r)
	end := at(f, 0)
	end.End = true
	for range 2 { // a retry is no error
		if _, err := log.AppendFenced(t.Context(), r, end, event(0), event(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := log.AppendFenced(t.Context(), r, at(f, 2), event(2)); !errors.Is(err, stream.ErrRunEnded) {
		t.Fatalf("after the end: %v", err)
	}
	late := at(f, 2)
	late.Late = true
	if _, err := log.AppendFenced(t.Context(), r, late, event(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Claim(t.Context(), r, stream.Claim{Producer: "b", Fresh: true, TTL: long}); !errors.Is(err, stream.ErrRunEnded) {
		t.Fatalf("a claim of a new run after the end: %v", err)
	}
	if _, err := log.Claim(t.Context(), r, stream.Claim{Producer: "b", TTL: long}); !errors.Is(err, stream.ErrRunEnded) {
		t.Fatalf("a claim after the end: %v", err)
	}
	if got, err := log.Claim(t.Context(), r, stream.Claim{Producer: "a", Epoch: 1, Peek: true, TTL: long}); err != nil || got.Next != 3 {
		t.Fatalf("the same claim: %+v, %v", got, err)
	}
	if ls, err := log.Leases(t.Context(), r); err != nil || ls[0].Held || !ls[0].Ended || !ls[0].Known {
		t.Fatalf("%+v, %v", ls, err)
	}
	if _, err := log.Claim(t.Context(), run(t, "nobody"), stream.Claim{Producer: "a", Epoch: 1, Peek: true, TTL: long}); !errors.Is(err, stream.ErrRunEnded) {
		t.Fatalf("a look at nothing: %v", err)
	}
}

func testLease(t *testing.T, b Backend) {
	log := b.Open(t)
	ctx := t.Context()
	r := run(t, "lease")
	lease := func() stream.Lease {
		t.Helper()
		ls, err := log.Leases(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return ls[0]
	}
	if l := lease(); l != (stream.Lease{}) {
		t.Fatalf("%+v", l)
	}
	f := claim(t, log, r)
	if _, err := log.AppendFenced(ctx, r, at(f, 0), event(0)); err != nil {
		t.Fatal(err)
	}
	head := mustRange(t, log, r, stream.ID{}, 10, 0).Entries[0].ID
	if l := lease(); !l.Held || !l.Known || l.Epoch != 1 {
		t.Fatalf("%+v", l)
	}
	if ids, err := log.Reap(ctx, r, stream.Reap{By: "hub", Epoch: 1, Head: head}, event(1).Event); err != nil || len(ids) != 0 {
		t.Fatalf("a run with a lease was ended: %v, %v", ids, err)
	}
	keep := func(f stream.Fence, ttl time.Duration) stream.Kept {
		t.Helper()
		kept, err := log.Keep(ctx, []stream.Hold{{Run: r, Fence: f, Renew: true, TTL: ttl}})
		if err != nil {
			t.Fatal(err)
		}
		return kept[0]
	}
	if keep(f, short).Lost || !keep(stream.Fence{Producer: "a", Epoch: 7}, long).Lost {
		t.Fatal("who may renew")
	}
	Eventually(t, "the lease lapses", func() bool { return !lease().Held })
	if err := log.NoteLeases(ctx, r); err != nil {
		t.Fatal(err)
	}
	lapsed := lease().LapsedMs
	if err := log.NoteLeases(ctx, r); err != nil || lapsed == 0 || lease().LapsedMs != lapsed {
		t.Fatalf("%+v, %v", lease(), err)
	}
	if keep(f, long).Lost || lease().LapsedMs != 0 {
		t.Fatal("it isn't back")
	}
	keep(f, short)
	Eventually(t, "the lease lapses again, which is noted", func() bool {
		return log.NoteLeases(ctx, r) == nil && lease().LapsedMs > 0
	})
	for name, bad := range map[string]stream.Reap{
		"too early":                 {By: "hub", Epoch: 1, Head: head, Grace: long},
		"of another epoch":          {By: "hub", Epoch: 2, Head: head},
		"with another newest entry": {By: "hub", Epoch: 1, Head: head.Next()},
		"idle for too short a time": {By: "hub", Epoch: 1, Head: head, Idle: long},
	} {
		if ids, err := log.Reap(ctx, r, bad, event(1).Event); err != nil || len(ids) != 0 {
			t.Errorf("reaped %s: %v, %v", name, ids, err)
		}
	}
	var wins atomic.Int64
	each(8, func(i int) {
		ids, err := log.Reap(ctx, r, stream.Reap{By: "hub", Epoch: 1, Head: head}, event(1).Event, event(2).Event)
		if err != nil {
			t.Error(err)
		}
		if len(ids) == 2 {
			wins.Add(1)
		}
	})
	if wins.Load() != 1 || len(mustRange(t, log, r, stream.ID{}, 10, 0).Entries) != 3 {
		t.Fatalf("ended %d times", wins.Load())
	}
	if _, err := log.AppendFenced(ctx, r, at(f, 1), event(3)); !errors.Is(err, stream.ErrFenced) {
		t.Fatalf("the producer came back: %v", err)
	}
	if !keep(f, long).Lost {
		t.Fatal("it renews")
	}
}

func testPlainLease(t *testing.T, b Backend) {
	log := b.Open(t)
	ctx := t.Context()
	r, none := run(t, "plain"), run(t, "plain-none")
	for _, id := range []stream.RunID{r, none} {
		fill(t, log, id, 0, 1)
	}
	b.SetLease(t, log, r, long)
	if err := log.NoteLeases(ctx, r, none); err != nil {
		t.Fatal(err)
	}
	ls, err := log.Leases(ctx, r, none)
	if err != nil || !ls[0].Known || !ls[0].Held || ls[0].Epoch != 0 || ls[1] != (stream.Lease{}) {
		t.Fatalf("%+v, %v", ls, err)
	}
	b.SetLease(t, log, r, short)
	Eventually(t, "the lapse is noted", func() bool {
		if err := log.NoteLeases(ctx, r, none); err != nil {
			t.Fatal(err)
		}
		ls, err = log.Leases(ctx, r, none)
		return err == nil && ls[0].LapsedMs > 0
	})
	head := mustRange(t, log, r, stream.ID{}, 10, 0).Entries[0].ID
	if ids, err := log.Reap(ctx, r, stream.Reap{By: "hub", Head: head}, event(1).Event); err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	head = mustRange(t, log, none, stream.ID{}, 10, 0).Entries[0].ID
	if ids, err := log.Reap(ctx, none, stream.Reap{By: "hub", Head: head}, event(1).Event); err != nil || len(ids) != 0 {
		t.Fatalf("a run that never had a lease: %v, %v", ids, err)
	}
	Eventually(t, "a run that is idle is ended", func() bool {
		ids, err := log.Reap(ctx, none, stream.Reap{By: "hub", Head: head, Idle: short}, event(1).Event)
		if err != nil {
			t.Fatal(err)
		}
		return len(ids) == 1
	})
}

func testSettle(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "settle")
	f := claim(t, log, r)
	fill(t, log, r, 0, 1) // by somebody else, and it is the end
	if err := log.Settle(t.Context(), r, f.Epoch); err != nil {
		t.Fatal(err)
	}
	if ls, err := log.Leases(t.Context(), r); err != nil || !ls[0].Ended || ls[0].Held {
		t.Fatalf("%+v, %v", ls, err)
	}
	if _, err := log.AppendFenced(t.Context(), r, at(f, 0), event(1)); !errors.Is(err, stream.ErrRunEnded) {
		t.Fatal(err)
	}
}

func testSignals(t *testing.T, b Backend) {
	log := b.Open(t)
	ctx := t.Context()
	r, other := run(t, "signals"), run(t, "signals-other")
	if _, err := log.RequestCancel(ctx, r, []byte(`{}`)); !errors.Is(err, stream.ErrNoRun) {
		t.Fatalf("a run that isn't there: %v", err)
	}
	fill(t, log, r, 0, 1)
	id, err := log.RequestCancel(ctx, r, []byte(`{"type":"cancel","n":1}`))
	if err != nil || id.IsZero() {
		t.Fatal(id, err)
	}
	b.AppendFields(t, log, log.Keys().Aux(r, "control"), map[string]string{"something": "else"})
	kept, err := log.Keep(ctx, []stream.Hold{{Run: other}, {Run: r}, {Run: r, After: id}})
	if err != nil || len(kept[0].Signals) != 0 || len(kept[1].Signals) != 2 || len(kept[2].Signals) != 1 {
		t.Fatalf("%+v, %v", kept, err)
	}
	if s := kept[1].Signals; s[0].ID != id || string(s[0].Control) != `{"type":"cancel","n":1}` || len(s[1].Control) != 0 {
		t.Fatalf("%+v", s)
	}
	all, err := log.Signals(ctx, other, r)
	if err != nil || !slices.Equal([]int{len(all[0]), len(all[1])}, []int{0, 2}) {
		t.Fatalf("%+v, %v", all, err)
	}
}
