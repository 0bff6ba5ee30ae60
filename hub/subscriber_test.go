package hub

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/stream"
)

func TestSubscriber(t *testing.T) {
	bubble(t, "two attaches to one run get the same deliveries, read and admitted once", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, "1")
		f, g := r.loaded(t), r.loaded(t)
		a, _, errA := f.JoinAfter(stream.ID{})
		b, _, errB := g.JoinAfter(stream.ID{})
		if f != g || errA != nil || errB != nil {
			t.Fatal(f != g, errA, errB)
		}
		r.publish(t, "2")
		da, _ := queued(t, a)
		db, _ := queued(t, b)
		if text(da) != "1 2" || text(db) != "1 2" || da[1] != db[1] {
			t.Errorf("%q, %q", text(da), text(db))
		}
		a.Close()
		r.publish(t, "3")
		if db, err := queued(t, b); text(db) != "3" || err != nil {
			t.Errorf("one that left took another along: %q, %v", text(db), err)
		}
		if da, err := queued(t, a); len(da) != 0 || !errors.Is(err, ErrClosed) {
			t.Errorf("%q, %v", text(da), err)
		}
		if fig := r.Figures(); fig.Entries != 3 || fig.Subscribers != 1 {
			t.Errorf("%+v", fig)
		}
	})
	bubble(t, "a slow one loses its queue and is told so, a fast one notices nothing", func(t *testing.T) {
		r := newRig(t, Config{QueueBytes: 10 * (deliveryCost + 1)})
		f := r.loaded(t)
		slow, _, _ := f.JoinAfter(stream.ID{})
		fast, _, _ := f.JoinAfter(stream.ID{})
		var got []string
		for range 11 {
			r.publish(t, "x")
			ds, err := queued(t, fast)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text(ds))
		}
		if strings.Join(got, "") != strings.Repeat("x", 11) {
			t.Error(got)
		}
		if ds, err := slow.Next(t.Context(), nil); !errors.Is(err, ErrLagged) {
			t.Errorf("%q, %v", text(ds), err)
		}
		r.publish(t, "y")
		if ds, err := queued(t, slow); len(ds) > 0 || !errors.Is(err, ErrLagged) {
			t.Errorf("something comes behind a gap: %q, %v", text(ds), err)
		}
		if fig := r.Figures(); fig.Lagged != 1 || fig.Subscribers != 2 {
			t.Errorf("%+v", fig)
		}
	})
	bubble(t, "a queue at its limit is no lag, and one delivery always fits", func(t *testing.T) {
		r := newRig(t, Config{QueueBytes: 2 * (deliveryCost + 1)})
		f := r.loaded(t)
		s, _, _ := f.JoinAfter(stream.ID{})
		r.publish(t, "1", "2")
		if ds, err := queued(t, s); err != nil || text(ds) != "1 2" {
			t.Errorf("%q, %v", text(ds), err)
		}
		large := strings.Repeat("z", 10_000)
		r.publish(t, large)
		if ds, err := queued(t, s); err != nil || text(ds) != large {
			t.Errorf("%d bytes, %v", len(text(ds)), err)
		}
	})
	bubble(t, "waiting ends with the context and loses nothing", func(t *testing.T) {
		r := newRig(t, Config{})
		f := r.loaded(t)
		s, _, _ := f.JoinAfter(stream.ID{})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ds, err := s.Next(short, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v", text(ds), err)
		}
		r.publish(t, "1")
		if ds, err := s.Next(t.Context(), nil); err != nil || text(ds) != "1" {
			t.Errorf("%q, %v", text(ds), err)
		}
	})
	bubble(t, "joining, leaving and publishing at the same time gives everyone a suffix", func(t *testing.T) {
		r := newRig(t, Config{})
		f := r.loaded(t)
		want := strings.Join(numbers(1, 300), " ")
		var going sync.WaitGroup
		for i := range 20 {
			going.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				var seen int
				s, err := f.Join(stream.ID{}, func(_ stream.ID, missed []*Delivery, covered bool) { seen = len(missed) })
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if i%2 == 0 {
					return // leaves at once
				}
				got := numbers(1, seen)
				for len(got) < 300 {
					ds, err := s.Next(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					got = append(got, strings.Fields(text(ds))...)
				}
				if strings.Join(got, " ") != want {
					t.Errorf("joined at %d and got %v", seen, got)
				}
			})
		}
		for i := 1; i <= 300; i += 15 {
			r.publish(t, numbers(i, i+14)...)
			time.Sleep(time.Millisecond)
		}
		going.Wait()
		synctest.Wait()
		if n := r.Figures().Subscribers; n != 0 {
			t.Errorf("%d subscribers are left", n)
		}
	})
}

func TestDeliveryIsEncodedOnceForAForm(t *testing.T) {
	d := &Delivery{Events: [][]byte{[]byte("ab"), []byte("c")}, Detail: "de"}
	if d.Size() != deliveryCost+5 {
		t.Error(d.Size())
	}
	n := 0
	encode := func(*Delivery) []byte { n++; return []byte("form") }
	for range 3 {
		if string(d.Wire(1, encode)) != "form" {
			t.Error("another form")
		}
	}
	if d.Wire(2, func(*Delivery) []byte { return nil }); n != 1 {
		t.Errorf("encoded %d times", n)
	}
}

// The rule (I5): what a subscriber holds that takes nothing stays under its bound, however much passes.
func TestALaggedSubscribersMemoryIsBounded(t *testing.T) {
	bubble(t, "while 100,000 entries pass", func(t *testing.T) {
		const queue, ring, entries, batch = 64 << 10, 32 << 10, 100_000, 500
		r := newRig(t, Config{QueueBytes: queue, RingBytes: ring})
		f := r.loaded(t)
		s, ok, err := f.JoinAfter(stream.ID{})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		most := 0
		for n := 0; n < entries; n += batch {
			events := make([]string, batch)
			for i := range events {
				events[i] = strconv.Itoa(n + i)
			}
			r.publish(t, events...)
			synctest.Wait()
			most = max(most, s.queued())
			if size := f.held().Rings; size > ring {
				t.Fatalf("the ring holds %d bytes after %d entries", size, n)
			}
		}
		if most > queue || s.queued() != 0 || r.Figures().Entries != entries {
			t.Errorf("%d bytes at most, %d at last, %d entries", most, s.queued(), r.Figures().Entries)
		}
		if _, err := s.Next(t.Context(), nil); !errors.Is(err, ErrLagged) {
			t.Error(err)
		}
	})
}
