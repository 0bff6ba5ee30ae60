package streamtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// ThreadClaimer claims threads, as every log does.
type ThreadClaimer interface {
	ClaimThread(ctx context.Context, thread stream.ThreadID, c, over stream.ThreadClaim, ttl time.Duration) (stream.ThreadClaim, error)
	KeepThread(ctx context.Context, thread stream.ThreadID, c stream.ThreadClaim, ttl time.Duration) (bool, error)
}

func testThreadClaim(t *testing.T, b Backend) {
	log := b.Open(t)
	ctx := t.Context()
	thread, err := stream.ParseThreadID("claimed:" + string(run(t, "thread")))
	if err != nil {
		t.Fatal(err)
	}
	by := func(i int) stream.ThreadClaim {
		return stream.ThreadClaim{Token: fmt.Sprint("token", i), Run: stream.RunID(fmt.Sprint("r:", i))}
	}
	claim := func(c, over stream.ThreadClaim, ttl time.Duration) stream.ThreadClaim {
		t.Helper()
		held, err := log.ClaimThread(ctx, thread, c, over, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	keep := func(c stream.ThreadClaim, ttl time.Duration) bool {
		t.Helper()
		held, err := log.KeepThread(ctx, thread, c, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	nobody := stream.ThreadClaim{}
	var winner atomic.Int64
	var wins atomic.Int64
	each(16, func(i int) {
		held, err := log.ClaimThread(ctx, thread, by(i), nobody, long)
		if err != nil {
			t.Error(err)
		}
		if held == nobody {
			winner.Store(int64(i))
			wins.Add(1)
		}
	})
	first := by(int(winner.Load()))
	if wins.Load() != 1 {
		t.Fatalf("%d hold the thread", wins.Load())
	}
	if held := claim(first, nobody, long); held != nobody {
		t.Fatalf("again by the same: %v", held)
	}
	again := stream.ThreadClaim{Token: "other", Run: first.Run}
	if held := claim(again, nobody, long); held != first {
		t.Fatalf("another attempt at the same run: %v", held)
	}
	// What is over doesn't count, and of those who know that one gets the thread.
	wins.Store(0)
	each(16, func(i int) {
		held, err := log.ClaimThread(ctx, thread, by(100+i), first, long)
		if err != nil {
			t.Error(err)
		}
		if held == nobody {
			winner.Store(int64(100 + i))
			wins.Add(1)
		}
	})
	second := by(int(winner.Load()))
	if wins.Load() != 1 || keep(first, long) || !keep(second, long) {
		t.Fatalf("%d hold the thread", wins.Load())
	}
	if keep(first, 0) || claim(first, nobody, long) != second {
		t.Fatal("it was let go of by one who doesn't hold it")
	}
	if !keep(second, 0) || claim(first, nobody, short) != nobody {
		t.Fatal("it wasn't let go of")
	}
	Eventually(t, "the claim lapses", func() bool { return claim(second, nobody, long) == nobody })
}

// testReapUnbegun ends a run that its producer claimed and never began: with what it was to start from.
func testReapUnbegun(t *testing.T, b Backend) {
	log := b.Open(t)
	ctx := t.Context()
	r := run(t, "unbegun")
	if _, err := log.Claim(ctx, r, stream.Claim{Producer: "a", TTL: short, Input: []byte(`{"in":1}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := log.RequestCancel(ctx, r, []byte(`{}`)); err != nil {
		t.Fatalf("it can't be cancelled: %v", err)
	}
	Eventually(t, "the lapse is noted", func() bool {
		ls, err := log.Leases(ctx, r)
		return err == nil && log.NoteLeases(ctx, r) == nil && ls[0].LapsedMs > 0
	})
	if ids, err := log.Reap(ctx, r, stream.Reap{By: "hub", Epoch: 1}, event(0).Event, event(1).Event); err != nil || len(ids) != 2 {
		t.Fatalf("%v, %v", ids, err)
	}
	entries := mustRange(t, log, r, stream.ID{}, 10, 0).Entries
	if len(entries) != 2 || string(entries[0].Input) != `{"in":1}` || entries[1].Input != nil {
		t.Fatalf("%+v", entries)
	}
	// One that has begun left its input with its first entry.
	begun := run(t, "begun")
	got, err := log.Claim(ctx, begun, stream.Claim{Producer: "a", TTL: long, Input: []byte(`{"in":2}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.AppendFenced(ctx, begun, at(got.Fence, 0), stream.Record{Event: event(0).Event, Input: []byte(`{"in":2}`)}); err != nil {
		t.Fatal(err)
	}
	if ids, err := log.Reap(ctx, begun, stream.Reap{By: "hub", Epoch: 1}, event(1).Event); err != nil || len(ids) != 0 {
		t.Fatalf("as if it hadn't begun: %v, %v", ids, err)
	}
}
