package backfill

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// tailed is a log with the tail that follows it.
type tailed struct {
	*stream.Redis
	*stream.Tail
}

// onRedis is a service on a real server.
func onRedis(t *testing.T, url string, config Config) (*Service, *stream.Redis, *stream.Registry) {
	t.Helper()
	log, err := stream.Connect(url, stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	tail := log.NewTail(stream.TailConfig{})
	var running sync.WaitGroup
	running.Go(func() { _ = tail.Run(ctx) })
	registry := log.NewRegistry(tail)
	config.Store = log
	s := New(ctx, tailed{log, tail}, registry, stream.ID{}, config, zap.NewNop())
	t.Cleanup(func() {
		s.Close()
		cancel()
		running.Wait()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, log, registry
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("in vain: %s", what)
		}
	}
}

var weeks = flag.Int("weeks", 3, "how many weeks of runs go by")

// held is what Redis holds of data, in bytes, without the registry, which has a bound of its own.
func held(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	dataset, err := strconv.ParseInt(info["Memory"]["used_memory_dataset"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := client.MemoryUsage(t.Context(), "agui:runs").Result()
	if err != nil {
		t.Fatal(err)
	}
	return dataset - registry
}

// longOne is a run that goes on for weeks. It is trimmed as it grows.
type longOne struct {
	log *stream.Redis
	run stream.RunID
	n   int
}

func (l *longOne) grow(t *testing.T, n int) {
	t.Helper()
	for ; n > 0; n -= 100 {
		var recs []stream.Record
		if l.n == 0 {
			recs = append(recs, stream.Record{Event: []byte(started(string(l.run), "t-long"))})
		}
		for range 100 {
			l.n++
			e := fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"P","content":{"i":%d}}`, l.n)
			recs = append(recs, stream.Record{Event: []byte(e)})
		}
		if _, err := l.log.Append(t.Context(), l.run, recs...); err != nil {
			t.Fatal(err)
		}
	}
}

// The rule: whatever becomes of runs, Redis ends up with what it had before them, in keys and in bytes: a week in a second.
func TestRunsThatEndAreAbandonedOrDeletedLeaveNothing(t *testing.T) {
	const soon = 1500 * time.Millisecond // and later than the next that is done to a run, however slow this machine
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	s, log, registry := onRedis(t, server.URL(), Config{Retention: soon, ThreadRetention: soon, MaxRunEntries: MinRunEntries})
	ctx, stop := context.WithCancel(t.Context())
	var tidying sync.WaitGroup
	tidying.Go(func() {
		_ = s.Tidy(ctx, log, TidyConfig{
			AbandonedAfter: soon, Every: 100 * time.Millisecond, Grace: time.Millisecond, ThreadRetention: time.Millisecond,
		})
	})
	defer tidying.Wait()
	defer stop()
	add := func(run string, lines ...string) {
		t.Helper()
		recs := make([]stream.Record, len(lines))
		for i, line := range lines {
			recs[i].Event = []byte(line)
		}
		if _, err := log.Append(t.Context(), stream.RunID(run), recs...); err != nil {
			t.Fatal(err)
		}
	}
	week := func(round int) {
		t.Helper()
		for i := range 30 {
			run, thread := fmt.Sprintf("r%d-%d", round, i), fmt.Sprintf("t%d-%d", round, i/3)
			info := stream.RunInfo{Run: stream.RunID(run), Thread: stream.ThreadID(thread), State: stream.RunStarted}
			if i%4 != 3 { // the others are plain agents that announce nothing
				if err := registry.Announce(t.Context(), info); err != nil {
					t.Fatal(err)
				}
			}
			add(run, started(run, thread), opening(run), delta(run, strings.Repeat("x", 2000)))
			if i%3 != 0 {
				add(run, closing(run), finished(run, thread))
				if info.State = stream.RunFinished; i%4 != 3 {
					if err := registry.Announce(t.Context(), info); err != nil {
						t.Fatal(err)
					}
				}
			}
			if i%5 == 0 {
				if err := s.Delete(t.Context(), stream.RunID(run)); err != nil {
					t.Fatal(err)
				}
			}
			if i%6 == 1 && i%5 != 0 { // somebody reads it
				if _, err := s.Run(t.Context(), stream.RunID(run), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	flat := func() int {
		t.Helper()
		eventually(t, "no key of a run or a thread is left", func() bool {
			for _, pattern := range []string{"*agui:run:*", "*agui:thread:*"} {
				if keys, err := client.Keys(t.Context(), pattern).Result(); err != nil || len(keys) > 0 {
					return false
				}
			}
			return true
		})
		keys, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, key := range keys {
			if !strings.Contains(key, ":tail:") { // a tail's wake-ups come and go
				n++
			}
		}
		return n
	}
	// through lets weeks go by, while one run goes on all the time.
	through := func(from, to int) {
		t.Helper()
		one := &longOne{log: log, run: stream.RunID(fmt.Sprintf("long-%d", from))}
		if _, err := log.Claim(t.Context(), one.run, stream.Claim{Producer: "p", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		for round := from; round <= to; round++ {
			week(round)
			one.grow(t, 3500)
			if _, err := s.Run(t.Context(), one.run, nil); err != nil { // a hub reads it
				t.Fatal(err)
			}
		}
		key := log.Keys().Run(one.run)
		eventually(t, "the long run is trimmed", func() bool { return client.XLen(t.Context(), key).Val() < int64(one.n) })
		if left := client.PTTL(t.Context(), key).Val(); left != -1 {
			t.Errorf("the long run expires in %v while it goes on", left)
		}
		add(string(one.run), finished(string(one.run), "t-long"))
	}
	through(0, 0)
	first, before := flat(), held(t, client)
	through(1, *weeks)
	last, after := flat(), held(t, client)
	if last > first+1 { // the janitor's turn comes and goes
		t.Errorf("%d keys, %d after the first week", last, first)
	}
	t.Logf("%d bytes after the first week, %d after %d weeks", before, after, 1+*weeks)
	if after > before+before/10+64<<10 {
		t.Errorf("%d bytes, %d after the first week", after, before)
	}
	events, _, err := registry.List(t.Context(), stream.ID{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	states := map[stream.RunState]int{}
	for _, e := range events {
		states[e.State]++
	}
	if states[stream.RunAbandoned] == 0 || states[stream.RunDeleted] != 6*(1+*weeks) {
		t.Errorf("%v", states)
	}
}

// The rule: a hub that has never seen a run of many entries reads few of them.
func TestAColdAttachReadsFewEntriesOfRedis(t *testing.T) {
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	warm, log, _ := onRedis(t, server.URL(), Config{})
	const n = 20_000
	recs := []stream.Record{{Event: []byte(started("r1", "t1")), Input: []byte(input("r1", "t1"))}}
	for i := range n {
		recs = append(recs, stream.Record{Event: []byte(`{"type":"STATE_SNAPSHOT","snapshot":{"i":` + strconv.Itoa(i) + `}}`)})
		if len(recs) == 500 {
			if _, err := log.Append(t.Context(), "r1", recs...); err != nil {
				t.Fatal(err)
			}
			recs = recs[:0]
		}
	}
	if _, err := warm.Run(t.Context(), "r1", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a checkpoint of the last entries", func() bool {
		c, ok, _, err := log.Checkpoint(t.Context(), "r1")
		if err != nil || !ok {
			return false
		}
		page, err := log.Range(t.Context(), "r1", c.At, 5000, 0)
		return err == nil && page.Anchor == stream.AnchorHeld && len(page.Entries) < 2000
	})
	calls := func() (n int) {
		info, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "cmdstat_xrange:calls=")
		if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	cold, _, _ := onRedis(t, server.URL(), Config{})
	before := calls()
	d, err := cold.Run(t.Context(), "r1", nil)
	if err != nil || d.Entries < n-500 || d.History != "full" {
		t.Fatalf("%+v %v", d, err)
	}
	if made := calls() - before; made > 8 {
		t.Errorf("%d reads of the stream", made)
	}
	if f := cold.KeepFigures(); f.Read != 1 {
		t.Errorf("%+v", f)
	}
}
