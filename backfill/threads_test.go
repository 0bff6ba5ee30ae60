package backfill

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/stream"
)

func TestThread(t *testing.T) {
	bubble(t, "a second run that is active at the same time is held until the first ends, then restated", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.expect("attached:full catchup:fresh START MESSAGES STATE live")
		r.begin(t, "r2", "t1")
		r.publish(t, "r2", opening("r2"), delta("r2", "a"))
		w.expect("")
		r.publish(t, "r1", opening("r1"), delta("r1", "b"), closing("r1"), finished("r1", "t1"))
		w.expect("+open +text +close +FINISH ended catchup:snapshot START MESSAGES STATE open live")
		r.publish(t, "r2", closing("r2"), finished("r2", "t1"))
		w.expect("+close +FINISH ended")
	})
	bubble(t, "a next run whose input stands in its start is watched from its first entry", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		r.publish(t, "r1", opening("r1"), closing("r1"), finished("r1", "t1"))
		w.all()
		time.Sleep(time.Second)
		r.publish(t, "r2", startedWithInput("r2", "t1"), opening("r2"))
		r.announce(t, "r2", "t1")
		w.expect("+START +open")
		r.publish(t, "r2", delta("r2", "a"))
		w.expect("+text")
	})
	bubble(t, "a next run whose input stands in the field only begins with a bracket that holds the input's messages", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		r.publish(t, "r1", opening("r1"), delta("r1", "a"), closing("r1"), finished("r1", "t1"))
		w.all()
		time.Sleep(time.Second)
		r.begin(t, "r2", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
		for _, id := range []string{"u-r1", "m-r1", "u-r2"} {
			if !strings.Contains(w.snapshot, id) {
				t.Errorf("%s is missing: %s", id, w.snapshot)
			}
		}
		r.publish(t, "r2", opening("r2"))
		w.expect("+open")
	})
	bubble(t, "a run that is announced and never starts holds nobody up", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		time.Sleep(time.Millisecond) // later than r1, of which it could be a past that is gone
		r.announce(t, "ghost", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.expect("attached:full catchup:fresh START MESSAGES STATE live")
		r.publish(t, "r1", finished("r1", "t1"))
		r.announce(t, "ghost2", "t1")
		w.expect("+FINISH ended")
		time.Sleep(time.Hour)
		r.begin(t, "r2", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
		r.publish(t, "r2", finished("r2", "t1"))
		r.begin(t, "ghost", "t1") // it starts after all
		w.expect("+FINISH ended catchup:snapshot START MESSAGES STATE live")
		w.leave()
		r.settled(t)
	})
	bubble(t, "a run that nobody announced is made known by whoever meets it", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		r.publish(t, "r1", finished("r1", "t1"))
		w.all()
		time.Sleep(time.Second)
		r.record(t, "r2", stream.Record{Event: []byte(started("r2", "t1")), Input: []byte(input("r2", "t1"))})
		w.expect("")
		r.attach(t, Request{Run: "r2"}).expect("attached:full catchup:fresh START MESSAGES STATE live")
		w.expect("catchup:snapshot START MESSAGES STATE live")
		runs, err := r.registry.Thread(t.Context(), "t1", 0)
		if err != nil || len(runs) != 2 || runs[0].Run != "r2" || runs[0].StartMs != int64(r.runs["r2"].ids[0].Ms) {
			t.Error(runs, err)
		}
	})
	bubble(t, "a run that belongs to another thread than announced isn't followed", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		r.publish(t, "r1", finished("r1", "t1"))
		w.all()
		time.Sleep(time.Second)
		r.publish(t, "r2", started("r2", "t2"))
		r.announce(t, "r2", "t1")
		w.expect("")
	})
	bubble(t, "the run that started last is followed, whatever the index says", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, "r1", started("r1", "t1"), finished("r1", "t1"))
		time.Sleep(time.Second)
		r.publish(t, "r2", started("r2", "t1"))
		r.announce(t, "r2", "t1")
		time.Sleep(time.Second)
		r.announce(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		if w.run != "r2" {
			t.Errorf("%s is followed", w.run)
		}
	})
	bubble(t, "a thread whose last run has ended restates it and waits", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"), delta("r1", "a"), closing("r1"), finished("r1", "t1"))
		w := r.attach(t, Request{Thread: "t1"})
		w.expect("attached:full catchup:fresh START MESSAGES STATE FINISH live ended")
		time.Sleep(time.Hour)
		w.expect("")
		r.begin(t, "r2", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
	})
}

func TestThreadBranch(t *testing.T) {
	child := func(run, parent string) string {
		return strings.Replace(started(run, "t1"), `"runId"`, `"parentRunId":"`+parent+`","runId"`, 1)
	}
	for _, cold := range []bool{true, false} {
		name := "a branch is followed by its head, past runs of others"
		if cold {
			name += ", on a hub that reads them now"
		}
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.begin(t, "r1", "t1")
			r.publish(t, "r1", finished("r1", "t1"))
			var w *reader
			follow := func() {
				w = r.attach(t, Request{Thread: "t1", Head: "r1"})
				w.all()
				if !cold && w.run != "r1" {
					t.Fatalf("%s is followed", w.run)
				}
			}
			if !cold {
				follow()
			}
			next := func(run, parent string) {
				time.Sleep(time.Second)
				r.record(t, run, stream.Record{Event: []byte(child(run, parent)), Input: []byte(input(run, "t1"))})
				r.announce(t, run, "t1")
				r.publish(t, run, finished(run, "t1"))
				synctest.Wait()
			}
			next("r2", "r1")
			next("r3", "r1") // another branch
			next("r4", "r2")
			if cold {
				follow()
			}
			w.all()
			if w.run != "r4" {
				t.Errorf("the branch ends at %s", w.run)
			}
			for _, raw := range w.raw {
				if strings.Contains(raw, `"runId":"r3"`) {
					t.Errorf("another branch's run: %s", raw)
				}
			}
		})
	}
	bubble(t, "a head of another thread is unknown", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		r.begin(t, "x", "t2")
		w := r.attach(t, Request{Thread: "t1", Head: "x"})
		w.ends(ErrUnknownRun)
	})
}

func TestThreadResumeOverRuns(t *testing.T) {
	for _, c := range catchups {
		bubble(t, "over the end of a run and runs missed as a whole, catchup="+string(c), func(t *testing.T) {
			r := newRig(t, Config{})
			r.begin(t, "r1", "t1")
			after := onThread(t, r.publish(t, "r1", opening("r1"), delta("r1", "a")), "r1")
			r.publish(t, "r1", closing("r1"), finished("r1", "t1"))
			time.Sleep(time.Second)
			r.begin(t, "r2", "t1")
			r.publish(t, "r2", opening("r2"), delta("r2", "b"), closing("r2"), finished("r2", "t1"))
			time.Sleep(time.Second)
			r.begin(t, "r3", "t1")
			r.publish(t, "r3", opening("r3"), delta("r3", "c"))
			w := r.attach(t, Request{Thread: "t1", After: after, Catchup: c})
			got := w.all()
			if bySnapshot(c) {
				if n := strings.Count(got, "FINISH"); n != 1 || !strings.HasPrefix(got, "attached:full catchup:snapshot close FINISH START MESSAGES") || strings.Count(got, "live") != 1 {
					t.Error(got)
				}
			}
			if w.run != "r3" {
				t.Errorf("ends at %s: %s", w.run, got)
			}
			var snap struct{ Messages []struct{ ID string } }
			if err := json.Unmarshal([]byte(w.snapshot), &snap); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, m := range snap.Messages {
				ids = append(ids, m.ID)
			}
			if want := "u-r1 m-r1 u-r2 m-r2 u-r3 m-r3"; strings.Join(ids, " ") != want {
				t.Errorf("holds %v, want %s", ids, want)
			}
			r.publish(t, "r3", delta("r3", "d"))
			w.expect("+text")
		})
		bubble(t, "at the end of a run the next one comes, catchup="+string(c), func(t *testing.T) {
			r := newRig(t, Config{})
			r.begin(t, "r1", "t1")
			after := onThread(t, r.publish(t, "r1", opening("r1"), closing("r1"), finished("r1", "t1")), "r1")
			time.Sleep(time.Second)
			r.begin(t, "r2", "t1")
			w := r.attach(t, Request{Thread: "t1", After: after, Catchup: c})
			got := w.all()
			if strings.Contains(got, "FINISH") || strings.Count(got, "START") != 1 || !strings.HasSuffix(got, "live") || w.run != "r2" {
				t.Error(got)
			}
		})
	}
}

// The rule (I10): a run whose key went and that serves another thread now isn't shown as the first one's.
func TestARunThatServesAnotherThreadNow(t *testing.T) {
	bubble(t, "isn't the conversation of the one that it was of", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		w.leave()
		held := r.attach(t, Request{Thread: "t1"}) // the thread stays known here
		held.all()
		defer held.leave()
		if err := r.log.Erase(t.Context(), "r1", "", 0); err != nil {
			t.Fatal(err)
		}
		r.publish(t, "r1", started("r1", "t2"), opening("r1"), delta("r1", "of another"))
		for range 3 {
			c, err := r.Messages(t.Context(), "t1", nil)
			if err == nil && strings.Contains(string(c.Messages), "of another") {
				t.Fatalf("%s", c.Messages)
			}
			time.Sleep(time.Second)
		}
	})
}
