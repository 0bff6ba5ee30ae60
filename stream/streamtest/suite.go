package streamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// Log is what the suite tests: the methods that every log has.
type Log interface {
	Append(ctx context.Context, run stream.RunID, recs ...stream.Record) ([]stream.ID, error)
	Range(ctx context.Context, run stream.RunID, after stream.ID, maxEntries, maxBytes int) (stream.Page, error)
	Bounds(ctx context.Context, runs ...stream.RunID) ([]stream.Bounds, error)
	Trim(ctx context.Context, run stream.RunID, first stream.ID) (int64, error)
	NewTail(cfg stream.TailConfig) *stream.Tail
	NewRegistry(tail *stream.Tail) *stream.Registry
	Keys() stream.Keys
	Ping(ctx context.Context) error
	FencedLog
	ThreadClaimer
}

// Backend is a log under test, with what the suite must do behind its back.
type Backend struct {
	// Open returns an empty log; it is asked once per test.
	Open func(t *testing.T) Log
	// Tail is the configuration of every tail.
	Tail stream.TailConfig
	// Wakes is by which driver runs are to be woken where they are many; empty where they are read in blocks of 100.
	Wakes string
	// SetWrongType makes a run's key one of another type.
	SetWrongType func(t *testing.T, log Log, run stream.RunID)
	// AppendFields appends an entry of any fields to the stream of that key.
	AppendFields func(t *testing.T, log Log, key string, fields map[string]string)
	// SetLease sets a run's lease as a plain agent does.
	SetLease func(t *testing.T, log Log, run stream.RunID, ttl time.Duration)
	// Delete removes a key.
	Delete func(t *testing.T, log Log, run stream.RunID)
	// Outage takes the log away and calls during, and then has it back with all its data.
	Outage func(t *testing.T, log Log, during func())
}

// Run runs the contract suite of all logs.
func Run(t *testing.T, b Backend) {
	RunTails(t, b)
	each := []contract{
		{"append returns ids in order and range gives the entries back", testOrder},
		{"entries of one millisecond keep their order", testEqualMilliseconds},
		{"an anchored range says whether the entry is still there", testAnchor},
		{"a range is paged by entries without gap or repeat", testPagesByEntries},
		{"a range is paged by bytes and has at least one entry", testPagesByBytes},
		{"a run without a key is an empty page and has no bounds", testMissingKey},
		{"bounds tell first, last and length of each run", testBounds},
		{"a key of another type is an error for that run alone", testWrongType},
		{"an entry without the field event is marked", testNoEvent},
		{"an append that fails says how far it came", testAppendError},
		{"the registry lists what was announced", testRegistry},
		{"the registry skips what breaks the contract", testRegistryUntrusted},
		{"a thread's runs come newest first and can be corrected", testThread},
		{"of two producers the one with the older epoch is refused", testFenced},
		{"what is in the log already isn't appended again, and a gap is an error", testDedupe},
		{"after the end nothing but what may be late is appended", testFencedEnd},
		{"a run whose lease lapsed is ended once, and its producer fenced off", testLease},
		{"a plain agent's lease counts once it was seen", testPlainLease},
		{"an end that somebody else wrote is noted", testSettle},
		{"signals are read from where one stands", testSignals},
		{"of many who claim a thread one gets it", testThreadClaim},
		{"a run that was claimed and never begun is ended with its input", testReapUnbegun},
	}
	for _, tc := range each {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, b) })
	}
}

// contract is one sentence of the contract.
type contract struct {
	name string
	test func(*testing.T, Backend)
}

// RunTails runs the part of the suite that is about tails.
func RunTails(t *testing.T, b Backend) {
	each := []contract{
		{"a follower gets what is there and what comes, once, in order", testFollow},
		{"a follower may come before the key and before the tail runs", testFollowBeforeKey},
		{"followers and appends that race lose and repeat nothing", testFollowRace},
		{"followers of one run have positions of their own", testTwoFollowers},
		{"three hundred runs take few connections", testManyRuns},
		{"after stop no call comes", testStop},
		{"a slow sink doesn't hold up other runs", testSlowSink},
		{"a followed key of another type is told once and spoils no other run", testFollowWrongType},
		{"an outage loses and repeats nothing", testOutage},
		{"the registry is followed", testRegistryFollow},
	}
	for _, tc := range each {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, b) })
	}
}

// run makes a run id that no other test of the backend uses.
func run(t *testing.T, name string) stream.RunID {
	t.Helper()
	id, err := stream.ParseRunID(name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// event is the i-th event of a test.
func event(i int) stream.Record {
	return stream.Record{Event: fmt.Appendf(nil, `{"type":"CUSTOM","value":%d}`, i)}
}

// fill appends events numbered from..to-1, in batches of up to 50, and returns their ids.
func fill(t *testing.T, log Log, id stream.RunID, from, to int) []stream.ID {
	t.Helper()
	var ids []stream.ID
	for from < to {
		var recs []stream.Record
		for ; from < to && len(recs) < 50; from++ {
			recs = append(recs, event(from))
		}
		got, err := log.Append(t.Context(), id, recs...)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got...)
	}
	return ids
}

// checkEntries fails unless got are the events numbered from from on under ids.
func checkEntries(t *testing.T, got []stream.Entry, ids []stream.ID, from int) {
	t.Helper()
	if len(got) != len(ids) {
		t.Fatalf("%d entries, want %d", len(got), len(ids))
	}
	for i, e := range got {
		if e.ID != ids[i] || !bytes.Equal(e.Event, event(from+i).Event) {
			t.Fatalf("entry %d is %v %s, want %v %s", i, e.ID, e.Event, ids[i], event(from+i).Event)
		}
	}
}

func mustRange(t *testing.T, log Log, id stream.RunID, after stream.ID, maxEntries, maxBytes int) stream.Page {
	t.Helper()
	page, err := log.Range(t.Context(), id, after, maxEntries, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func testOrder(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "order")
	first, err := log.Append(t.Context(), r, stream.Record{Event: []byte(`{"a":1}`), Input: []byte(`{"in":1}`)})
	if err != nil || len(first) != 1 {
		t.Fatalf("%v, %v", first, err)
	}
	ids := slices.Concat(first, fill(t, log, r, 1, 120))
	if !slices.IsSortedFunc(ids, stream.ID.Compare) || len(slices.Compact(slices.Clone(ids))) != 120 {
		t.Fatal("ids don't strictly increase")
	}
	page := mustRange(t, log, r, stream.ID{}, 1000, math.MaxInt)
	if page.Anchor != stream.AnchorNone || page.More {
		t.Fatalf("anchor %v, more %v", page.Anchor, page.More)
	}
	if e := page.Entries[0]; string(e.Event) != `{"a":1}` || string(e.Input) != `{"in":1}` || e.NoEvent {
		t.Fatalf("first entry %+v", e)
	}
	if page.Entries[1].Input != nil {
		t.Fatal("an input that nobody gave")
	}
	checkEntries(t, page.Entries[1:], ids[1:], 1)
	if none, err := log.Append(t.Context(), r); err != nil || len(none) != 0 {
		t.Fatalf("append of nothing: %v, %v", none, err)
	}
}

func testEqualMilliseconds(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "equal")
	ids := fill(t, log, r, 0, 50)
	i := 0 // two neighbours of one millisecond, which an append at once can't but have
	for ids[i].Ms != ids[i+1].Ms {
		if i++; i == len(ids)-1 {
			t.Fatal("no two entries are of one millisecond")
		}
	}
	if ids[i+1].Seq != ids[i].Seq+1 {
		t.Fatalf("%v is followed by %v", ids[i], ids[i+1])
	}
	page := mustRange(t, log, r, ids[i], 1000, math.MaxInt)
	checkEntries(t, page.Entries, ids[i+1:], i+1)
	followTail(t, log, b, r, ids[i]).check(t, ids[i+1:], i+1)
}

// following is a collector of one run's entries.
type following struct{ *Collector }

// followTail runs a tail that follows r.
func followTail(t *testing.T, log Log, b Backend, r stream.RunID, after stream.ID) following {
	t.Helper()
	tail := log.NewTail(b.Tail)
	RunTail(t, tail)
	c := NewCollector()
	t.Cleanup(tail.Follow(r, after, c.Sink))
	return following{c}
}

func (f following) check(t *testing.T, ids []stream.ID, from int) {
	t.Helper()
	f.Wait(t, len(ids))
	checkEntries(t, f.Entries(), ids, from)
}

func testAnchor(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "anchor")
	ids := fill(t, log, r, 0, 60)
	held := mustRange(t, log, r, ids[9], 5, math.MaxInt)
	if held.Anchor != stream.AnchorHeld || held.AnchorEntry.ID != ids[9] || !bytes.Equal(held.AnchorEntry.Event, event(9).Event) {
		t.Fatalf("anchor %v %+v", held.Anchor, held.AnchorEntry)
	}
	checkEntries(t, held.Entries, ids[10:15], 10)
	if end := mustRange(t, log, r, ids[59], 5, 0); end.Anchor != stream.AnchorHeld || len(end.Entries) != 0 || end.More {
		t.Fatalf("at the end: %+v", end)
	}
	if n, err := log.Trim(t.Context(), r, ids[20]); err != nil || n != 20 {
		t.Fatalf("trim: %d, %v", n, err)
	}
	missing := mustRange(t, log, r, ids[9], 5, math.MaxInt)
	if missing.Anchor != stream.AnchorMissing || !missing.More {
		t.Fatalf("anchor %v, more %v", missing.Anchor, missing.More)
	}
	checkEntries(t, missing.Entries, ids[20:25], 20)
	if above := mustRange(t, log, r, ids[59].Next(), 5, 0); above.Anchor != stream.AnchorMissing || len(above.Entries) != 0 {
		t.Fatalf("above the last: %+v", above)
	}
	if gone := mustRange(t, log, run(t, "anchor-gone"), ids[0], 5, 0); gone.Anchor != stream.AnchorMissing || len(gone.Entries) != 0 {
		t.Fatalf("of a run that isn't: %+v", gone)
	}
}

func testPagesByEntries(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "pages")
	ids := fill(t, log, r, 0, 500)
	for _, size := range []int{1, 7, 16, 17, 250, 499, 500, 501, 9999} {
		var all []stream.Entry
		after := stream.ID{}
		for more := true; more; {
			page := mustRange(t, log, r, after, size, math.MaxInt)
			if len(page.Entries) > size || page.More && len(page.Entries) != size {
				t.Fatalf("page of %d has %d entries, more %v", size, len(page.Entries), page.More)
			}
			if !after.IsZero() && page.Anchor != stream.AnchorHeld {
				t.Fatalf("anchor %v", page.Anchor)
			}
			all = append(all, page.Entries...)
			after, more = all[len(all)-1].ID, page.More
		}
		checkEntries(t, all, ids, 0)
	}
}

func testPagesByBytes(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "bytes")
	var ids []stream.ID
	for i, size := range []int{10, 10, 5000, 10, 300_000, 300_000, 10, 10} {
		got, err := log.Append(t.Context(), r, stream.Record{Event: []byte(strings.Repeat("x", size)), Input: fmt.Appendf(nil, "%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got...)
	}
	var counts []int
	after := stream.ID{}
	for more := true; more; {
		page := mustRange(t, log, r, after, 1000, 6000)
		counts = append(counts, len(page.Entries))
		for _, e := range page.Entries {
			if e.ID != ids[0] {
				t.Fatalf("entry %v, want %v", e.ID, ids[0])
			}
			ids = ids[1:]
			after = e.ID
		}
		more = page.More
	}
	if want := []int{4, 1, 1, 2}; !slices.Equal(counts, want) {
		t.Fatalf("pages of %v entries, want %v", counts, want)
	}
}

func testMissingKey(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "missing")
	if page := mustRange(t, log, r, stream.ID{}, 10, 0); len(page.Entries) != 0 || page.More || page.Anchor != stream.AnchorNone {
		t.Fatalf("%+v", page)
	}
	bounds, err := log.Bounds(t.Context(), r)
	if err != nil || len(bounds) != 1 || bounds[0].Exists || bounds[0].Len != 0 || bounds[0].Run != r {
		t.Fatalf("%+v, %v", bounds, err)
	}
	if n, err := log.Trim(t.Context(), r, stream.MaxID); err != nil || n != 0 {
		t.Fatalf("trim: %d, %v", n, err)
	}
}

func testBounds(t *testing.T, b Backend) {
	log := b.Open(t)
	one, many, wrong, gone, empty := run(t, "b-one"), run(t, "b-many"), run(t, "b-wrong"), run(t, "b-gone"), run(t, "b-empty")
	oneIDs, manyIDs := fill(t, log, one, 0, 1), fill(t, log, many, 0, 75)
	b.SetWrongType(t, log, wrong)
	fill(t, log, empty, 0, 3)
	if _, err := log.Trim(t.Context(), empty, stream.MaxID); err != nil {
		t.Fatal(err)
	}
	got, err := log.Bounds(t.Context(), many, wrong, one, gone, empty)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b stream.Bounds, r stream.RunID, ids []stream.ID) {
		t.Helper()
		if !b.Exists || b.WrongType || b.Run != r || b.Len != int64(len(ids)) ||
			b.First.ID != ids[0] || b.Last.ID != ids[len(ids)-1] || !bytes.Equal(b.Last.Event, event(len(ids)-1).Event) {
			t.Fatalf("%+v", b)
		}
	}
	check(got[0], many, manyIDs)
	check(got[2], one, oneIDs)
	if !got[1].WrongType || !got[1].Exists || got[3].Exists || got[3].WrongType {
		t.Fatalf("%+v, %+v", got[1], got[3])
	}
	if e := got[4]; !e.Exists || e.Len != 0 || !e.First.ID.IsZero() || !e.Last.ID.IsZero() {
		t.Fatalf("emptied: %+v", e)
	}
}

func testWrongType(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "wrong")
	b.SetWrongType(t, log, r)
	if _, err := log.Range(t.Context(), r, stream.ID{}, 10, 0); !errors.Is(err, stream.ErrWrongType) {
		t.Fatalf("range: %v", err)
	}
	if _, err := log.Append(t.Context(), r, event(0)); !errors.Is(err, stream.ErrWrongType) {
		t.Fatalf("append: %v", err)
	}
	if _, err := log.Append(t.Context(), r, event(0), event(1)); !errors.Is(err, stream.ErrWrongType) {
		t.Fatalf("append of two: %v", err)
	}
	if _, err := log.Trim(t.Context(), r, stream.MaxID); !errors.Is(err, stream.ErrWrongType) {
		t.Fatalf("trim: %v", err)
	}
	fill(t, log, run(t, "right"), 0, 3)
}

func testNoEvent(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "noevent")
	b.AppendFields(t, log, log.Keys().Run(r), map[string]string{"evnt": "{}", "input": "{}"})
	b.AppendFields(t, log, log.Keys().Run(r), map[string]string{"event": ""})
	page := mustRange(t, log, r, stream.ID{}, 10, 0)
	if len(page.Entries) != 2 {
		t.Fatalf("%+v", page)
	}
	if e := page.Entries[0]; !e.NoEvent || e.Event != nil || string(e.Input) != "{}" {
		t.Fatalf("without the field: %+v", e)
	}
	if e := page.Entries[1]; e.NoEvent || len(e.Event) != 0 {
		t.Fatalf("with an empty field: %+v", e)
	}
}

func testAppendError(t *testing.T, b Backend) {
	log := b.Open(t)
	r := run(t, "append-error")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := log.Append(ctx, r, event(0), event(1))
	failed, ok := errors.AsType[*stream.AppendError](err)
	if !ok || failed.Appended != 0 || len(failed.IDs) != 0 || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	b.SetWrongType(t, log, r)
	_, err = log.Append(t.Context(), r, event(0), event(1))
	if failed, ok = errors.AsType[*stream.AppendError](err); !ok || failed.Appended != 0 || !errors.Is(err, stream.ErrWrongType) {
		t.Fatalf("%v", err)
	}
}

// once checks that c's entries of run r strictly increase.
func once(t *testing.T, r stream.RunID, entries []stream.Entry) {
	t.Helper()
	for i := 1; i < len(entries); i++ {
		if !entries[i-1].ID.Less(entries[i].ID) {
			t.Fatalf("run %s: %v after %v", r, entries[i].ID, entries[i-1].ID)
		}
	}
}

// each runs f for 0..n-1 at once and waits.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
