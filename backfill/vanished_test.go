package backfill

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// TestARunThatVanishes: a thread's run that was announced, had begun and was then lost as a whole keeps no subscriber of the
// thread from what comes, whether it stays away, comes back, or others come.
func TestARunThatVanishes(t *testing.T) {
	bubble(t, "before a waiting subscriber came to it is passed over", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		r.begin(t, "r2", "t1") // held, since r1 goes on
		synctest.Wait()
		r.log.Delete("r2")
		delete(r.runs, "r2")
		time.Sleep(noticed)
		r.publish(t, "r1", finished("r1", "t1"))
		w.expect("+FINISH ended")
		for range 60 {
			w.next(time.Second) // while it waits for r2
		}
		w.expect("")
		r.begin(t, "r3", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
		w.leave()
		r.settled(t)
	})
	bubble(t, "and comes back is met again", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		r.begin(t, "r2", "t1")
		synctest.Wait()
		r.log.Delete("r2")
		delete(r.runs, "r2")
		time.Sleep(noticed)
		r.publish(t, "r1", finished("r1", "t1"))
		for range 60 {
			w.next(time.Second)
		}
		r.begin(t, "r2", "t1")
		if got := w.all(); !strings.HasSuffix(got, "live") || w.run != "r2" {
			t.Error(w.run, got)
		}
	})
	bubble(t, "inside a catch-up over the end of the run before leaves the subscriber there", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		idle := r.attach(t, Request{Thread: "t1"}) // so that the hub keeps what it knows of the thread
		w.all()
		r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		w.all()
		cursor := w.leave()
		end := r.publish(t, "r1", closing("r1"), finished("r1", "t1"))
		r.begin(t, "r2", "t1")
		synctest.Wait()
		r.log.Delete("r2")
		delete(r.runs, "r2")
		time.Sleep(noticed)
		w = r.attach(t, Request{Thread: "t1", After: cursor})
		for range 60 {
			w.next(time.Second)
		}
		if got, want := strings.Join(w.words, " "), "attached:full catchup:snapshot close FINISH live ended"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if w.cursor != onThread(t, end, "r1") {
			t.Errorf("it stands at %q, not at %s", w.cursor, end)
		}
		r.begin(t, "r3", "t1")
		if got := w.all(); !strings.HasPrefix(got, "catchup:snapshot START") || w.run != "r3" {
			t.Error(w.run, got)
		}
		idle.leave()
	})
	bubble(t, "leaves a fresh attach to its thread waiting", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		idle := r.attach(t, Request{Thread: "t1"})
		idle.all()
		r.log.Delete("r1")
		delete(r.runs, "r1")
		time.Sleep(noticed)
		w := r.attach(t, Request{Thread: "t1"})
		for range 60 {
			w.next(time.Second)
		}
		w.expect("")
		if got := strings.Join(w.words, " "); got != "attached:none" || w.err != nil {
			t.Fatal(got, w.err)
		}
		r.begin(t, "r2", "t1")
		w.expect("catchup:fresh START MESSAGES STATE live")
		idle.leave()
	})
	bubble(t, "and comes back while it is looked what is left is met", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		r.log.Delete("r1")
		delete(r.runs, "r1")
		looks := 0
		r.log.hookBounds(func() {
			if looks++; looks != 2 { // the session's own, then the thread's
				return
			}
			r.begin(t, "r1", "t1") // announced, while it still stands among the thread's runs
			synctest.Wait()
		})
		time.Sleep(noticed)
		w.next(time.Millisecond)
		r.log.hookBounds(nil)
		if looks < 2 {
			t.Fatal("nobody looked")
		}
		time.Sleep(time.Second)
		if got := w.all(); !strings.Contains(got, "catchup:fresh START") || w.run != "r1" {
			t.Error(w.run, strings.Join(w.words, " "))
		}
	})
}

// A run that begins anew stands in its thread where it began last: who waits behind another gets it.
func TestARunThatBeganAnewStandsBehindOthers(t *testing.T) {
	th := &thread{known: map[stream.RunID]bool{}, changed: make(chan struct{})}
	at := func(ms uint64) stream.ID { return stream.ID{Ms: ms} }
	th.add(threadRun{run: "r1", start: at(1)})
	th.add(threadRun{run: "r2", start: at(2)})
	th.add(threadRun{run: "r1", start: at(3)})
	th.add(threadRun{run: "r1", start: at(1)}) // what somebody had read before
	if next, ok, _ := th.after(threadRun{run: "r2", start: at(2)}, false); !ok || next.run != "r1" || next.start != at(3) {
		t.Errorf("behind r2 comes %v, %v", next, ok)
	}
	if n := len(th.started); n != 2 {
		t.Errorf("%d runs", n)
	}
}
