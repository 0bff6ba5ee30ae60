package hub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/stream"
)

func TestFromHistoryToLive(t *testing.T) {
	bubble(t, "what is published between the last page and the tail comes once", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, "1", "2")
		r.log.hook(func(page int, _ stream.Page) {
			if page == 1 {
				r.publish(t, "3", "4")
			}
		})
		f := r.loaded(t)
		r.publish(t, "5")
		s, ok, err := f.JoinAfter(stream.ID{})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		r.publish(t, "6")
		if got, err := queued(t, s); err != nil || text(got) != "1 2 3 4 5 6" {
			t.Errorf("%q, %v", text(got), err)
		}
		if n := r.Figures().Entries; n != 6 {
			t.Errorf("%d entries were read of 6", n)
		}
	})
	bubble(t, "an attach before the first entry gets all entries", func(t *testing.T) {
		r := newRig(t, Config{})
		f := r.loaded(t)
		s, ok, err := f.JoinAfter(stream.ID{})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		r.publish(t, "1", "2")
		if got, err := queued(t, s); err != nil || text(got) != "1 2" {
			t.Errorf("%q, %v", text(got), err)
		}
	})
	bubble(t, "a feed that must be prepared first goes back to reading and leaves nothing out", func(t *testing.T) {
		r := newRig(t, Config{})
		prepared := 0
		r.prepare = func(context.Context) error {
			if prepared++; prepared == 1 {
				r.publish(t, "3") // while it waits
				return stream.ErrUnavailable
			}
			return nil
		}
		f := r.loaded(t)
		s, _, err := f.JoinAfter(stream.ID{})
		if err != nil {
			t.Fatal(err)
		}
		r.publish(t, "1", "2")
		time.Sleep(time.Second)
		r.publish(t, "4")
		if got, err := queued(t, s); err != nil || text(got) != "1 2 3 4" {
			t.Errorf("%q, %v", text(got), err)
		}
		if prepared != 2 {
			t.Errorf("prepared %d times", prepared)
		}
	})
	bubble(t, "what was lost while the feed was prepared is never shown with what was found out behind the loss", func(t *testing.T) {
		r := newRig(t, Config{})
		ids := r.publish(t, "1", "2", "3")
		prepared := 0
		r.prepare = func(context.Context) error {
			if prepared++; prepared == 1 {
				r.log.Lose(run, ids[0])
				time.Sleep(time.Second) // as a failover takes
			}
			return nil
		}
		f := r.loaded(t)
		f.With(func(last stream.ID) {
			if last != ids[0] || prepared != 2 {
				t.Errorf("it stands at %s of %v, prepared %d times", last, ids, prepared)
			}
		})
	})
	bubble(t, "what a machine found out is taken over under the feed's lock", func(t *testing.T) {
		r := newRig(t, Config{Linger: time.Millisecond}) // the sweep asks for the size at any time
		r.prepare = func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil }
		f := r.loaded(t)
		r.publish(t, "1")
		m := f.Machine().(*echo)
		for range 20 {
			f.With(func(stream.ID) { _ = m.prepared })
			time.Sleep(time.Millisecond)
		}
		if !m.prepared {
			t.Error("never prepared")
		}
	})
	bubble(t, "many entries of one millisecond keep their order over pages and tail", func(t *testing.T) {
		r := newRig(t, Config{RingBytes: 1 << 20})
		ids := r.publish(t, numbers(1, 2500)...)
		if ids[0].Ms != ids[2499].Ms {
			t.Fatal("the clock moved")
		}
		f := r.loaded(t)
		s, ok, err := f.JoinAfter(stream.ID{})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		r.publish(t, numbers(2501, 2600)...)
		if got, err := queued(t, s); err != nil || text(got) != strings.Join(numbers(1, 2600), " ") {
			t.Errorf("%d deliveries, %v", len(got), err)
		}
	})
	bubble(t, "a server that goes away between pages costs time, nothing else", func(t *testing.T) {
		r := newRig(t, Config{RingBytes: 1 << 20})
		r.publish(t, numbers(1, 2500)...)
		r.log.hook(func(page int, _ stream.Page) {
			if page == 1 {
				r.log.SetFault(stream.ErrUnavailable)
			}
		})
		f := r.use(t)
		time.Sleep(5 * time.Second)
		if f.Loaded() {
			t.Fatal("loaded without a server")
		}
		r.log.SetFault(nil)
		time.Sleep(3 * time.Second)
		s, ok, err := f.JoinAfter(stream.ID{})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		r.log.SetFault(stream.ErrUnavailable) // and once more in the live tail
		time.Sleep(time.Second)
		r.log.SetFault(nil)
		r.publish(t, "2501")
		time.Sleep(3 * time.Second)
		if got, err := queued(t, s); err != nil || text(got) != strings.Join(numbers(1, 2501), " ") {
			t.Errorf("%d deliveries, %v", len(got), err)
		}
	})
	bubble(t, "an entry that is withheld is counted and moves the position", func(t *testing.T) {
		r := newRig(t, Config{})
		ids := r.publish(t, "1", "bad")
		f := r.loaded(t)
		f.With(func(last stream.ID) {
			if last != ids[1] {
				t.Errorf("the feed stands at %s", last)
			}
		})
		s, _, err := f.JoinAfter(ids[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.log.AppendFields(r.log.Keys().Run(run), map[string]string{"other": "x"}); err != nil {
			t.Fatal(err)
		}
		r.publish(t, "2")
		if got, err := queued(t, s); err != nil || text(got) != "(malformed) (malformed) 2" {
			t.Errorf("%q, %v", text(got), err)
		}
		if n := r.Figures().Withheld["malformed"]; n != 2 {
			t.Errorf("%d withheld", n)
		}
	})
}

func TestEntriesThatGoMissing(t *testing.T) {
	bubble(t, "a trim beyond the position in the middle of reading ends the feed, never in silence", func(t *testing.T) {
		r := newRig(t, Config{})
		ids := r.publish(t, numbers(1, 2500)...)
		r.log.hook(func(page int, _ stream.Page) {
			if page == 1 {
				if _, err := r.log.Trim(t.Context(), run, ids[1500]); err != nil {
					t.Error(err)
				}
			}
		})
		f := r.use(t)
		if err := f.Wait(t.Context(), func() bool { return true }); !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		if _, err := f.Join(stream.ID{}, nil); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		g := r.loaded(t)
		if g == f {
			t.Fatal("the dead feed is given out")
		}
		g.With(func(last stream.ID) {
			if last != ids[2499] {
				t.Errorf("the new one stands at %s", last)
			}
		})
		r.Release(f)
		r.Release(g)
	})
	bubble(t, "a trim up to the position in the middle of reading is none of the feed's business", func(t *testing.T) {
		r := newRig(t, Config{RingBytes: 1 << 20})
		ids := r.publish(t, numbers(1, 2500)...)
		r.log.hook(func(page int, p stream.Page) {
			if page == 1 {
				if _, err := r.log.Trim(t.Context(), run, p.Entries[len(p.Entries)-1].ID); err != nil {
					t.Error(err)
				}
			}
		})
		f := r.loaded(t)
		f.With(func(last stream.ID) {
			if last != ids[2499] || len(f.ring) != 2500 {
				t.Errorf("at %s with %d deliveries", last, len(f.ring))
			}
		})
	})
	bubble(t, "a ring that begins behind a trim covers nobody who stands before it", func(t *testing.T) {
		r := newRig(t, Config{})
		ids := r.publish(t, "1", "2", "3", "4", "5")
		if _, err := r.log.Trim(t.Context(), run, ids[3]); err != nil {
			t.Fatal(err)
		}
		f := r.loaded(t)
		for i, id := range ids {
			s, ok, err := f.JoinAfter(id)
			if err != nil || ok != (i >= 3) {
				t.Errorf("after entry %d: covered is %t, %v", i+1, ok, err)
			}
			if ok {
				s.Close()
			}
		}
	})
	bubble(t, "a key of another type ends the feed before and after it is live", func(t *testing.T) {
		r := newRig(t, Config{})
		r.log.SetWrongType(run)
		f := r.use(t)
		if err := f.Wait(t.Context(), func() bool { return true }); !errors.Is(err, stream.ErrWrongType) {
			t.Fatal(err)
		}
		r.Release(f)
		r.log.Delete(run)
		r.publish(t, "1")
		f = r.loaded(t)
		s, _, err := f.JoinAfter(stream.ID{})
		if err != nil {
			t.Fatal(err)
		}
		r.log.SetWrongType(run)
		if got, err := queued(t, s); !errors.Is(err, stream.ErrWrongType) || text(got) != "1" {
			t.Errorf("%q, %v", text(got), err)
		}
		if r.Peek(run) != nil {
			t.Error("the dead feed is given out")
		}
		s.Close()
		r.Release(f)
		r.still(t)
	})
}

func TestRing(t *testing.T) {
	bubble(t, "a join is covered from the entry before the ring's first on, whichever entries the ring has lost", func(t *testing.T) {
		r := newRig(t, Config{RingBytes: 5 * (deliveryCost + 1)})
		ids := r.publish(t, strings.Split("abcdefghij", "")...)
		f := r.loaded(t)
		for i := -1; i < len(ids); i++ {
			var after stream.ID
			if i >= 0 {
				after = ids[i]
			}
			s, ok, err := f.JoinAfter(after)
			if err != nil {
				t.Fatal(err)
			}
			if want := i >= 4; ok != want { // f to j are in the ring
				t.Errorf("after entry %d: covered is %t", i, ok)
			}
			if !ok {
				continue
			}
			if got, err := queued(t, s); err != nil || strings.ReplaceAll(text(got), " ", "") != "abcdefghij"[i+1:] {
				t.Errorf("after entry %d: %q, %v", i, text(got), err)
			}
			s.Close()
		}
	})
	bubble(t, "a reader who pages towards a ring that moves on meets it without a gap or a repeat", func(t *testing.T) {
		r := newRig(t, Config{RingBytes: 10 * (deliveryCost + 4)})
		r.publish(t, numbers(1, 40)...)
		f := r.loaded(t)
		next, at := 41, stream.ID{}
		var got []string
		for {
			s, ok, err := f.JoinAfter(at)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				r.publish(t, "end")
				rest, err := queued(t, s)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, text(rest))
				break
			}
			p, err := r.log.Range(t.Context(), run, at, 25, 1<<20)
			if err != nil || p.Anchor == stream.AnchorMissing {
				t.Fatal(p.Anchor, err)
			}
			for _, e := range p.Entries {
				got = append(got, string(e.Event))
				at = e.ID
			}
			if next < 120 { // the ring wraps while the page is on its way
				r.publish(t, numbers(next, next+15)...)
				next += 16
				synctest.Wait()
			}
		}
		if want := strings.Join(numbers(1, next-1), " ") + " end"; strings.Join(got, " ") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
		}
	})
	bubble(t, "a reader who joins ahead of the feed gets nothing twice", func(t *testing.T) {
		r := newRig(t, Config{})
		hold := make(chan struct{})
		r.log.hook(func(int, stream.Page) { <-hold })
		f := r.use(t)
		ids := r.publish(t, "1", "2")
		s, ok, err := f.JoinAfter(ids[0])
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		close(hold)
		r.publish(t, "3")
		if got, err := queued(t, s); err != nil || text(got) != "2 3" {
			t.Errorf("%q, %v", text(got), err)
		}
	})
	bubble(t, "a delivery larger than the ring is kept alone", func(t *testing.T) {
		r := newRig(t, Config{RingBytes: 1000})
		ids := r.publish(t, "a", strings.Repeat("b", 5000))
		f := r.loaded(t)
		s, ok, err := f.JoinAfter(ids[0])
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if got, err := queued(t, s); err != nil || len(text(got)) != 5000 {
			t.Errorf("%d bytes, %v", len(text(got)), err)
		}
		if _, ok, _ := f.JoinAfter(stream.ID{}); ok {
			t.Error("the first entry is said to be there")
		}
	})
}
