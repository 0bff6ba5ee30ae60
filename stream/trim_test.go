package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// trimmable is a run of n entries on some log, and what is asked of it.
type trimmable struct {
	t      *testing.T
	log    *stream.Redis
	client redis.UniversalClient
	run    stream.RunID
	ids    []stream.ID
}

func (r *trimmable) grow(n int) {
	r.t.Helper()
	for range n {
		ids, err := r.log.Append(r.t.Context(), r.run, stream.Record{Event: fmt.Appendf(nil, `{"n":%d}`, len(r.ids))})
		if err != nil {
			r.t.Fatal(err)
		}
		r.ids = append(r.ids, ids...)
	}
}

func (r *trimmable) sum(i int) uint32 { return stream.Checksum(fmt.Appendf(nil, `{"n":%d}`, i)) }

// put writes the checkpoint of an entry down, and says which entry the run may be trimmed to, -1 for none.
func (r *trimmable) put(i, keep int) int {
	r.t.Helper()
	c := stream.Checkpoint{At: r.ids[i], Sum: r.sum(i), Entries: i + 1, Meta: fmt.Appendf(nil, `{"start":"%s"}`, r.ids[0]), Data: fmt.Appendf(nil, "at %d", i)}
	written, to, err := r.log.PutCheckpoint(r.t.Context(), r.run, c, true, keep)
	if err != nil || !written {
		r.t.Fatalf("checkpoint %d: %v %v", i, written, err)
	}
	return slices.Index(r.ids, to)
}

func (r *trimmable) trim(i int) int64 {
	r.t.Helper()
	n, err := r.log.TrimTo(r.t.Context(), r.run, r.ids[i])
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *trimmable) page(after stream.ID) stream.Page {
	r.t.Helper()
	p, err := r.log.Range(r.t.Context(), r.run, after, 100, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// trimmed is a run of 10 entries that was trimmed to the entry 3; its newest checkpoint is of the entry 6.
func trimmed(t *testing.T, log *stream.Redis, client redis.UniversalClient, run stream.RunID) *trimmable {
	t.Helper()
	r := &trimmable{t: t, log: log, client: client, run: run}
	r.grow(10)
	if at := r.put(3, 3); at != -1 {
		t.Fatalf("it may be trimmed to %d with no checkpoint behind that", at)
	}
	if at := r.put(6, 3); at != 3 {
		t.Fatalf("it may be trimmed to %d", at)
	}
	if n := r.trim(3); n != 4 {
		t.Fatalf("%d entries are gone", n)
	}
	return r
}

func (r *trimmable) stands(at int) {
	r.t.Helper()
	m, ok, unknown, err := r.log.Trimmed(r.t.Context(), r.run)
	if err != nil || unknown || ok != (at >= 0) || ok && (m.At != r.ids[at] || m.Sum != r.sum(at) || string(m.Data) != fmt.Sprintf("at %d", at)) {
		r.t.Fatalf("%+v %v %v %v", m, ok, unknown, err)
	}
}

// The rules of trims, in the order of docs/operations.md, "Trimming".
func trims(t *testing.T, log *stream.Redis, client redis.UniversalClient) {
	aux := func(run stream.RunID, name string) string { return log.Keys().Aux(run, name) }
	t.Run("the entry that was trimmed last counts as there, those before it don't", func(t *testing.T) {
		r := trimmed(t, log, client, "a")
		r.stands(3)
		if p := r.page(r.ids[3]); p.Anchor != stream.AnchorHeld || p.AnchorSum != r.sum(3) || len(p.Entries) != 6 {
			t.Errorf("%v %d", p.Anchor, len(p.Entries))
		}
		for _, gone := range []stream.ID{r.ids[2], r.ids[3].Prev(), r.ids[9].Next()} {
			if p := r.page(gone); p.Anchor != stream.AnchorMissing {
				t.Errorf("%s: %v", gone, p.Anchor)
			}
		}
		if c, ok, _, err := log.Checkpoint(t.Context(), r.run); !ok || err != nil || c.At != r.ids[6] {
			t.Error(c.At, ok, err)
		}
		if meta, err := log.Outline(t.Context(), r.run); err != nil || len(meta) == 0 {
			t.Error(meta, err)
		}
	})
	t.Run("a tail that stands there goes on, one that stands before it is told", func(t *testing.T) {
		r := trimmed(t, log, client, "b")
		tail := log.NewTail(stream.TailConfig{Verify: 50 * time.Millisecond})
		stop := streamtest.RunTail(t, tail)
		defer stop()
		at, below := streamtest.NewCollector(), streamtest.NewCollector()
		defer tail.Follow(r.run, r.ids[3], at.Sink)()
		got := at.Wait(t, 6)
		if got[0].ID != r.ids[4] || len(at.Errs()) > 0 {
			t.Errorf("%v %v", got, at.Errs())
		}
		defer tail.Follow(r.run, r.ids[2], below.Sink)()
		if errs := below.WaitErr(t, 1); !errors.Is(errs[0], stream.ErrLost) {
			t.Error(errs)
		}
	})
	t.Run("trims follow each other, each once as much stands behind", func(t *testing.T) {
		r := trimmed(t, log, client, "c")
		r.grow(10)
		for _, step := range [][2]int{{8, -1}, {9, 6}} {
			if to := r.put(step[0], 3); to != step[1] {
				t.Errorf("at %d: to %d, want %d", step[0], to, step[1])
			}
		}
		if n := r.trim(6); n != 3 {
			t.Errorf("%d entries are gone", n)
		}
		r.stands(6)
		if n := r.trim(6); n != 0 {
			t.Errorf("%d entries are gone at the second time", n)
		}
	})
	t.Run("nothing is trimmed once anything is otherwise than it was", func(t *testing.T) {
		for name, change := range map[string]func(r *trimmable) error{
			"the newer checkpoint is gone":           func(r *trimmable) error { return client.Del(t.Context(), aux(r.run, "checkpoint")).Err() },
			"the newer checkpoint is of a later hub": func(r *trimmable) error { return client.HSet(t.Context(), aux(r.run, "checkpoint"), "v", "9").Err() },
			"its entry is gone": func(r *trimmable) error {
				return client.XDel(t.Context(), log.Keys().Run(r.run), r.ids[6].String()).Err()
			},
			"the place is gone":              func(r *trimmable) error { return client.Del(t.Context(), aux(r.run, "trim")).Err() },
			"the place has another checksum": func(r *trimmable) error { return client.HSet(t.Context(), aux(r.run, "trim"), "sum", "1").Err() },
			"the stream is another one": func(r *trimmable) error {
				if err := client.Del(t.Context(), log.Keys().Run(r.run)).Err(); err != nil {
					return err
				}
				r.grow(3)
				return nil
			},
		} {
			r := &trimmable{t: t, log: log, client: client, run: stream.RunID("d " + name)}
			r.grow(10)
			r.put(3, 3)
			r.put(6, 3)
			if err := change(r); err != nil {
				t.Fatal(err)
			}
			if n := r.trim(3); n != 0 {
				t.Errorf("%s: %d entries are gone", name, n)
			}
			r.stands(-1)
		}
	})
	t.Run("where an agent trims further, or the key begins anew, the last trimmed entry is gone as well", func(t *testing.T) {
		r := trimmed(t, log, client, "e")
		if _, err := log.Trim(t.Context(), r.run, r.ids[5]); err != nil {
			t.Fatal(err)
		}
		if p := r.page(r.ids[3]); p.Anchor != stream.AnchorMissing {
			t.Error(p.Anchor)
		}
		if err := client.Del(t.Context(), log.Keys().Run(r.run)).Err(); err != nil {
			t.Fatal(err)
		}
		r.grow(3)
		if p := r.page(r.ids[3]); p.Anchor != stream.AnchorMissing {
			t.Error(p.Anchor)
		}
	})
	t.Run("what a later version wrote stands for something that isn't known", func(t *testing.T) {
		r := trimmed(t, log, client, "f")
		if err := client.HSet(t.Context(), aux(r.run, "trimmed"), "v", "9").Err(); err != nil {
			t.Fatal(err)
		}
		if _, ok, unknown, err := log.Trimmed(t.Context(), r.run); ok || !unknown || err != nil {
			t.Error(ok, unknown, err)
		}
		if p := r.page(r.ids[3]); p.Anchor != stream.AnchorMissing {
			t.Error(p.Anchor)
		}
	})
	t.Run("a producer that goes on doesn't take a hub's trim for another producer", func(t *testing.T) {
		r := &trimmable{t: t, log: log, client: client, run: "g"}
		r.grow(10)
		got, err := log.Claim(t.Context(), r.run, stream.Claim{Producer: "p", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		r.put(3, 3)
		r.put(6, 3)
		r.trim(3)
		a, err := log.AppendFenced(t.Context(), r.run, stream.FencedAppend{Fence: got.Fence, TTL: time.Minute}, stream.Record{Event: []byte("{}")})
		if err != nil || a.Foreign {
			t.Error(a.Foreign, err)
		}
	})
	t.Run("all that stands for what was trimmed expires with the run, and stays while it goes on", func(t *testing.T) {
		r := trimmed(t, log, client, "h")
		r.put(8, 9) // the one before is where the next trim would go
		keys := []string{log.Keys().Run(r.run), aux(r.run, "checkpoint"), aux(r.run, "trim"), aux(r.run, "trimmed")}
		expire := func(want bool) {
			t.Helper()
			for _, key := range keys {
				if left := client.PTTL(t.Context(), key).Val(); want != (left > 59*time.Minute) || !want && left != -1 {
					t.Errorf("%s: %v", key, left)
				}
			}
		}
		expire(false)
		for i, revive := range []func(){
			func() {
				if done, err := log.Revive(t.Context(), r.run); !done || err != nil {
					t.Error(done, err)
				}
			},
			func() { r.put(9, 9) },
		} {
			expires := []func(context.Context, stream.RunID, time.Duration) (bool, error){log.Abandon, log.Expire}[i]
			if set, err := expires(t.Context(), r.run, time.Hour); !set || err != nil {
				t.Fatal(set, err)
			}
			expire(true)
			revive()
			expire(false)
		}
		if set, err := log.Expire(t.Context(), r.run, time.Hour); !set || err != nil {
			t.Fatal(set, err)
		}
		if done, err := log.Revive(t.Context(), r.run); done || err != nil {
			t.Error("it has ended", done, err)
		}
		expire(true)
		if err := log.Erase(t.Context(), r.run, "", time.Hour); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Exists(t.Context(), keys[0]).Result(); n != 0 || err != nil {
			t.Error(n, err)
		}
		r.stands(-1)
	})
	t.Run("what is written after a run was erased is erased, a new run isn't", func(t *testing.T) {
		r := &trimmable{t: t, log: log, client: client, run: "i"}
		late := func(want bool) {
			t.Helper()
			r.grow(2)
			first := r.page(stream.ID{}).Entries[0].ID
			if done, err := log.EraseLate(t.Context(), r.run, first); done != want || err != nil {
				t.Errorf("%v %v", done, err)
			}
			if there := len(r.page(stream.ID{}).Entries) > 0; there == want {
				t.Error("it is there:", there)
			}
		}
		late(false) // it wasn't erased
		erase := func() {
			t.Helper()
			if err := log.Erase(t.Context(), r.run, "t1", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		erase()
		late(true)
		late(true)
		if left := client.PTTL(t.Context(), aux(r.run, "deleted")).Val(); left < 59*time.Minute || left > time.Hour {
			t.Error(left)
		}
		if _, err := log.Claim(t.Context(), r.run, stream.Claim{Producer: "p", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		late(false) // it has a producer
		erase()
		r.grow(1)
		if done, err := log.EraseLate(t.Context(), r.run, r.ids[0]); done || err != nil {
			t.Error("it begins otherwise", done, err)
		}
	})
}

func TestTrims(t *testing.T) {
	overServers(t, func(t *testing.T, log *stream.Redis, addr string) { trims(t, log, streamtest.Client(t, addr)) })
}

func TestTrimsOnAClusterOfThree(t *testing.T) {
	url, client := streamtest.StartCluster(t)
	trims(t, connect(t, url), client)
}
