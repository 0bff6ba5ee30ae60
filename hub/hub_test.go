package hub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const run = stream.RunID("r1")

// rig is a hub over a log in memory whose machines hand on what was published.
type rig struct {
	*Hub
	log *hooked
	// prepare is called by every machine before it is prepared; machines need no preparation where it is nil.
	prepare func(context.Context) error
}

// hooked is the log with a hook behind every page that was read.
type hooked struct {
	*stream.Memory
	*stream.Tail

	mu     sync.Mutex
	reads  int
	behind func(page int, p stream.Page) // called without the lock
}

func (l *hooked) Range(ctx context.Context, run stream.RunID, after stream.ID, entries, bytes int) (stream.Page, error) {
	p, err := l.Memory.Range(ctx, run, after, entries, bytes)
	l.mu.Lock()
	l.reads++
	n, behind := l.reads, l.behind
	l.mu.Unlock()
	if behind != nil && err == nil {
		behind(n, p)
	}
	return p, err
}

func (l *hooked) hook(behind func(page int, p stream.Page)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads, l.behind = 0, behind
}

func newRig(t *testing.T, config Config) *rig {
	t.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the test's own ends before its cleanups
	tail := log.NewTail(stream.TailConfig{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := tail.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("tail: %v", err)
		}
	})
	r := &rig{log: &hooked{Memory: log, Tail: tail}}
	r.Hub = New(ctx, r.log, func(stream.RunID) Machine { return &echo{prepare: r.prepare} }, config, zap.NewNop())
	t.Cleanup(func() {
		r.Close()
		cancel()
		running.Wait()
	})
	return r
}

// publish appends entries with these events and returns their ids.
func (r *rig) publish(t *testing.T, events ...string) []stream.ID {
	t.Helper()
	var recs []stream.Record
	for _, e := range events {
		recs = append(recs, stream.Record{Event: []byte(e)})
	}
	ids, err := r.log.Append(t.Context(), run, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (r *rig) use(t *testing.T) *Feed {
	t.Helper()
	f, err := r.Feed(run)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// loaded uses the run's feed once it stands at the head.
func (r *rig) loaded(t *testing.T) *Feed {
	t.Helper()
	f := r.use(t)
	if err := f.Wait(t.Context(), func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	return f
}

// echo is a machine that hands on what was published. An event "bad" is withheld.
type echo struct {
	prepare  func(context.Context) error
	prepared bool
	seen     int
}

func (m *echo) Prepared() bool { return m.prepare == nil || m.prepared }

func (m *echo) Prepare(ctx context.Context, _ []stream.Entry) (func(), error) {
	return func() { m.prepared = true }, m.prepare(ctx)
}

func (m *echo) Admit(e stream.Entry) *Delivery {
	m.seen++
	d := &Delivery{ID: e.ID, Cursor: stream.Cursor{Entry: e.ID, Sum: stream.Checksum(e.Event)}}
	if string(e.Event) == "bad" || e.NoEvent {
		d.Reason, d.Detail = "malformed", "it is bad"
		return d
	}
	d.Events = [][]byte{e.Event}
	return d
}

func (m *echo) Size() int { return m.seen }

// text is what deliveries hold, in order.
func text(ds []*Delivery) string {
	var words []string
	for _, d := range ds {
		if d.Reason != "" {
			words = append(words, "("+d.Reason+")")
		}
		for _, e := range d.Events {
			words = append(words, string(e))
		}
	}
	return strings.Join(words, " ")
}

// queued takes all that comes to a subscriber until nothing moves any more.
func queued(t *testing.T, s *Subscriber) (got []*Delivery, err error) {
	t.Helper()
	for {
		synctest.Wait()
		ds, err := s.TryNext(nil)
		if err != nil || len(ds) == 0 {
			return got, err
		}
		got = append(got, ds...)
	}
}

// numbers are the events from i to j.
func numbers(i, j int) []string {
	var out []string
	for ; i <= j; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// still checks that nothing is left that a figure counts.
func (r *rig) still(t *testing.T) {
	t.Helper()
	if f := r.Figures(); f.Subscribers != 0 || f.Waiting != 0 || f.Feeds != 0 {
		t.Errorf("%d subscribers, %d waiting feeds of %d when all have gone", f.Subscribers, f.Waiting, f.Feeds)
	}
}

func TestFeedsComeAndGo(t *testing.T) {
	bubble(t, "the last one leaves while a new one comes: the feed is kept, and read on once", func(t *testing.T) {
		r := newRig(t, Config{Linger: time.Minute})
		r.publish(t, "1")
		f := r.loaded(t)
		r.log.hook(nil)
		var going sync.WaitGroup
		for range 100 {
			going.Go(func() {
				g, err := r.Feed(run)
				if err != nil || g != f {
					t.Errorf("another feed, %v", err)
				}
				r.Release(g)
			})
		}
		r.Release(f)
		going.Wait()
		g := r.use(t)
		defer r.Release(g)
		if g != f || r.log.reads != 0 {
			t.Errorf("another feed is %t, after %d reads", g != f, r.log.reads)
		}
	})
	bubble(t, "a feed that nobody uses is dropped after the linger, not before, and the next one reads anew", func(t *testing.T) {
		r := newRig(t, Config{Linger: time.Minute})
		r.publish(t, "1")
		f := r.loaded(t)
		r.Release(f)
		time.Sleep(59 * time.Second)
		if r.Peek(run) != f {
			t.Fatal("dropped before its time")
		}
		r.Release(r.use(t)) // used again: the linger begins anew
		time.Sleep(59 * time.Second)
		if r.Peek(run) != f {
			t.Fatal("dropped although it was used")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if r.Peek(run) != nil {
			t.Fatal("kept for ever")
		}
		if _, _, err := f.JoinAfter(stream.ID{}); !errors.Is(err, ErrClosed) {
			t.Errorf("joined a dropped feed: %v", err)
		}
		r.still(t)
		g := r.loaded(t)
		if s, ok, err := g.JoinAfter(stream.ID{}); err != nil || !ok {
			t.Error(ok, err)
		} else if got, _ := queued(t, s); text(got) != "1" {
			t.Error(text(got))
		}
	})
	bubble(t, "past the budget unused feeds go at once, the one longest unused first", func(t *testing.T) {
		r := newRig(t, Config{Linger: time.Minute, Budget: 3000})
		for _, id := range []stream.RunID{"a", "b", "c"} {
			if _, err := r.log.Append(t.Context(), id, stream.Record{Event: make([]byte, 1200)}); err != nil {
				t.Fatal(err)
			}
			f, err := r.Feed(id)
			if err != nil {
				t.Fatal(err)
			}
			if id != "c" {
				time.Sleep(time.Millisecond)
				r.Release(f)
			}
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if r.Peek("a") != nil || r.Peek("b") == nil || r.Peek("c") == nil {
			t.Error(r.Peek("a"), r.Peek("b"), r.Peek("c"))
		}
	})
	bubble(t, "what is held is known, also of feeds in which nothing happened for long", func(t *testing.T) {
		r := newRig(t, Config{Linger: time.Minute})
		held := func(when string, entries int, queued bool) {
			t.Helper()
			time.Sleep(16 * time.Second)
			h := r.Figures().Held
			if h.Folds != entries || (h.Rings > 0) != (entries > 0) || (h.Queues > 0) != queued {
				t.Errorf("%s: %+v", when, h)
			}
		}
		f := r.loaded(t)
		held("nothing", 0, false)
		r.publish(t, "1", "2")
		held("two entries", 2, false)
		time.Sleep(time.Hour)
		s, _, err := f.JoinAfter(stream.ID{})
		if err != nil {
			t.Fatal(err)
		}
		held("a subscriber who has both yet to take", 2, true)
		time.Sleep(time.Hour)
		if _, err := s.TryNext(nil); err != nil {
			t.Fatal(err)
		}
		held("and took them", 2, false)
		time.Sleep(time.Hour)
		r.publish(t, "3")
		held("another entry", 3, true)
		time.Sleep(time.Hour)
		s.Close()
		held("without the subscriber", 3, false)
		r.Release(f)
	})
	bubble(t, "no more runs without an entry are waited for than allowed, and one that has some makes room", func(t *testing.T) {
		r := newRig(t, Config{MaxWaiting: 1})
		f := r.use(t)
		synctest.Wait()
		many, err := r.Feed("r2")
		if err != nil {
			t.Fatal(err)
		}
		if err := many.Wait(t.Context(), func() bool { return true }); !errors.Is(err, ErrTooManyWaiting) {
			t.Fatal(err)
		}
		r.Release(many)
		synctest.Wait()
		if r.Peek("r2") != nil {
			t.Error("the dead feed is still there")
		}
		r.publish(t, "1")
		synctest.Wait()
		g, err := r.Feed("r2")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.Figures().Waiting; n != 1 {
			t.Error(n)
		}
		r.Release(f)
		r.Release(g)
	})
	bubble(t, "I6: runs that are waited for in vain keep nobody from a run that is there", func(t *testing.T) {
		r := newRig(t, Config{MaxWaiting: 1})
		r.publish(t, "1")
		w, err := r.Feed("never")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f := r.use(t)
		if err := f.Wait(t.Context(), func() bool { return true }); err != nil {
			t.Error(err)
		}
		if n := r.Figures().Waiting; n != 1 {
			t.Error(n)
		}
		r.Release(w)
		r.Release(f)
	})
	bubble(t, "a closed hub gives no feeds and ends those who listen", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, "1")
		f := r.loaded(t)
		s, _, err := f.JoinAfter(stream.ID{})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if got, err := s.Next(t.Context(), nil); err != nil || text(got) != "1" {
			t.Errorf("what was queued is gone: %q, %v", text(got), err)
		}
		if _, err := s.Next(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := r.Feed(run); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		s.Close()
		r.still(t)
	})
	bubble(t, "closing in the middle of a backfill ends those who wait for it", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, numbers(1, 2500)...)
		reached, goOn := make(chan struct{}), make(chan struct{})
		r.log.hook(func(page int, _ stream.Page) {
			if page == 2 {
				close(reached)
				<-goOn
			}
		})
		f := r.use(t)
		waited := make(chan error)
		go func() { waited <- f.Wait(t.Context(), func() bool { return true }) }()
		<-reached
		closed := make(chan struct{})
		go func() { r.Close(); close(closed) }()
		if err := <-waited; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		close(goOn)
		<-closed
		r.still(t)
	})
}

func TestGaugesDoNotDrift(t *testing.T) {
	bubble(t, "whatever happened, all figures are back at zero when all have gone", func(t *testing.T) {
		const seed = 7
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, Config{Linger: time.Second, QueueBytes: 1000, RingBytes: 1000})
		runs := []stream.RunID{"a", "b", "c", "d"}
		type use struct {
			feed *Feed
			sub  *Subscriber
		}
		var uses []use
		for range 3000 {
			id := runs[rng.IntN(len(runs))]
			switch rng.IntN(9) {
			case 0, 1:
				if f, err := r.Feed(id); err == nil {
					uses = append(uses, use{feed: f})
				}
			case 2, 3:
				if _, err := r.log.Append(t.Context(), id, stream.Record{Event: []byte("x")}); err != nil && !errors.Is(err, stream.ErrWrongType) {
					t.Fatal(err)
				}
			case 4:
				r.log.Delete(id)
			case 5:
				if rng.IntN(10) == 0 {
					r.log.SetWrongType(id)
				}
			case 6:
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			case 7:
				if len(uses) > 0 {
					u := &uses[rng.IntN(len(uses))]
					if u.sub == nil {
						u.sub, _ = u.feed.Join(stream.ID{}, func(stream.ID, []*Delivery, bool) {})
					}
				}
			default:
				if len(uses) > 0 {
					i := rng.IntN(len(uses))
					if uses[i].sub != nil {
						uses[i].sub.Close()
						uses[i].sub.Close() // twice is once
					}
					r.Release(uses[i].feed)
					uses = slices.Delete(uses, i, i+1)
				}
			}
		}
		for _, u := range uses {
			if u.sub != nil {
				u.sub.Close()
			}
			r.Release(u.feed)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.still(t)
		if b := r.Figures().Held; b != (Held{}) {
			t.Errorf("%d bytes are held by nothing", b)
		}
	})
}

// bubble is a subtest in a bubble of time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
