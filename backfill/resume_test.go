package backfill

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// both is a subtest for a run's attach and for its thread's, in a bubble. at makes a run's cursor one of that attach.
func both(t *testing.T, name string, f func(t *testing.T, r *rig, req Request, at func(cursor string) string)) {
	t.Helper()
	bubble(t, name+" (run)", func(t *testing.T) {
		f(t, newRig(t, Config{}), Request{Run: "r1"}, func(c string) string { return c })
	})
	bubble(t, name+" (thread)", func(t *testing.T) {
		f(t, newRig(t, Config{}), Request{Thread: "t1"}, func(c string) string { return onThread(t, c, "r1") })
	})
}

var catchups = []Catchup{"", CatchupSnapshot, CatchupEvents, CatchupAuto, CatchupOnly}

func bySnapshot(c Catchup) bool { return c == "" || c == CatchupSnapshot }

func TestResume(t *testing.T) {
	for _, c := range catchups {
		both(t, fmt.Sprintf("with nothing missed only control lines come, catchup=%s", c), func(t *testing.T, r *rig, req Request, at func(string) string) {
			r.begin(t, "r1", "t1")
			req.After, req.Catchup = at(r.publish(t, "r1", opening("r1"), delta("r1", "a"))), c
			w := r.attach(t, req)
			if bySnapshot(c) {
				w.expect("attached:full catchup:snapshot live")
			} else {
				w.expect("attached:full catchup:events live")
			}
			r.publish(t, "r1", delta("r1", "b"))
			w.expect("+text")
		})
		both(t, fmt.Sprintf("what was missed comes, catchup=%s", c), func(t *testing.T, r *rig, req Request, at func(string) string) {
			r.begin(t, "r1", "t1")
			req.After, req.Catchup = at(r.publish(t, "r1", opening("r1"), delta("r1", "a"))), c
			r.publish(t, "r1", delta("r1", "b"), `{"type":"CUSTOM","name":"n","value":1}`, closing("r1"))
			w := r.attach(t, req)
			if bySnapshot(c) {
				w.expect("attached:full catchup:snapshot close MESSAGES STATE CUSTOM live")
			} else if got := w.all(); c != CatchupAuto && got != "attached:full catchup:events +text +CUSTOM +close live" {
				t.Error(got)
			}
			r.publish(t, "r1", `{"type":"CUSTOM","name":"n","value":2}`)
			w.expect("+CUSTOM")
		})
		both(t, fmt.Sprintf("over the end its terminal event comes once, catchup=%s", c), func(t *testing.T, r *rig, req Request, at func(string) string) {
			r.begin(t, "r1", "t1")
			req.After, req.Catchup = at(r.publish(t, "r1", opening("r1"), delta("r1", "a"))), c
			r.publish(t, "r1", delta("r1", "b"), finished("r1", "t1"), delta("r1", "late"))
			w := r.attach(t, req)
			got := w.all()
			if strings.Count(got, "FINISH") != 1 || !strings.HasSuffix(got, "live ended") || strings.Contains(got, "START") {
				t.Error(got)
			}
			if bySnapshot(c) && got != "attached:full catchup:snapshot close MESSAGES STATE FINISH live ended" {
				t.Error(got)
			}
			if req.Run != "" {
				w.ends(io.EOF)
			}
		})
		both(t, fmt.Sprintf("at the end, or behind it, the end is told and nothing sent again, catchup=%s", c), func(t *testing.T, r *rig, req Request, at func(string) string) {
			r.begin(t, "r1", "t1")
			end := r.publish(t, "r1", opening("r1"), finished("r1", "t1"))
			late := r.publish(t, "r1", delta("r1", "late"))
			for _, cursor := range []string{end, late} {
				req.After, req.Catchup = at(cursor), c
				w := r.attach(t, req)
				got := w.all()
				if got = strings.ReplaceAll(got, "snapshot", "events"); got != "attached:full catchup:events live ended" {
					t.Error(got)
				}
			}
		})
		both(t, fmt.Sprintf("a partial history goes by events, catchup=%s", c), func(t *testing.T, r *rig, req Request, at func(string) string) {
			first := r.publish(t, "r1", started("r1", "t1"))
			r.announce(t, "r1", "t1")
			req.After, req.Catchup = at(first), c
			r.publish(t, "r1", opening("r1"))
			r.publish(t, "r1", deltas("r1", 1500)...) // more than the ring holds and than catchup=events takes
			w := r.attach(t, req)
			want := "attached:partial catchup:events +open" + strings.Repeat(" +text", 1500) + " live"
			if got := w.all(); got != want {
				t.Errorf("%.100s … %s", got, got[max(0, len(got)-100):])
			}
		})
	}
	both(t, "by events only few come, else a snapshot", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", maxMissed-100)...)
		req.After, req.Catchup = at(first), CatchupEvents
		if got := r.attach(t, req).all(); !strings.HasPrefix(got, "attached:full catchup:events +open +text") {
			t.Errorf("%.300s", got)
		}
		r.publish(t, "r1", deltas("r1", 100)...)
		if got := r.attach(t, req).all(); got != "attached:full catchup:snapshot MESSAGES STATE open live" {
			t.Errorf("%.300s", got)
		}
	})
	both(t, "auto takes the smaller of the two", func(t *testing.T, r *rig, req Request, at func(string) string) {
		r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		small := r.publish(t, "r1", delta("r1", strings.Repeat("x", 1000)))
		req.Catchup = CatchupAuto
		last := r.publish(t, "r1", delta("r1", "y"))
		req.After = at(small)
		r.attach(t, req).expect("attached:full catchup:events +text live")
		r.publish(t, "r1", `{"type":"CUSTOM","name":"n","value":"`+strings.Repeat("x", 3000)+`"}`)
		req.After = at(last)
		if got := r.attach(t, req).all(); !strings.HasPrefix(got, "attached:full catchup:snapshot") {
			t.Error(got)
		}
	})
	both(t, "an entry that was withheld can be continued from", func(t *testing.T, r *rig, req Request, at func(string) string) {
		r.begin(t, "r1", "t1")
		req.After, req.Catchup = at(r.publish(t, "r1", opening("r1"), "garbage")), CatchupEvents
		r.publish(t, "r1", "more garbage", delta("r1", "a"))
		r.attach(t, req).expect("attached:full catchup:events (not_json) +text live")
	})
	both(t, "cut before live the cursor still holds", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 3000)...)
		req.After, req.Catchup = at(first), CatchupOnly
		w := r.attach(t, req)
		w.next(time.Millisecond)
		w.next(time.Millisecond)
		middle := w.leave()
		if middle == req.After {
			t.Fatal("nothing came")
		}
		req.After = middle
		w = r.attach(t, req)
		if got := w.all(); !strings.HasSuffix(got, "live") {
			t.Errorf("%.100s … %s", got, got[max(0, len(got)-100):])
		}
	})
}

func TestReset(t *testing.T) {
	type reset struct{ Reason, Requested, Earliest, Latest string }
	said := func(t *testing.T, w *reader, full bool) reset {
		t.Helper()
		got := w.all()
		var line reset
		if len(w.raw) == 0 {
			t.Fatal("nothing came")
		}
		if err := json.Unmarshal([]byte(w.raw[0]), &line); err != nil {
			t.Fatal(err)
		}
		want := "reset:" + line.Reason + " attached:full catchup:fresh START MESSAGES STATE"
		if full && !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		return line
	}
	both(t, "a cursor at the first entry that is kept continues, one before it is trimmed", func(t *testing.T, r *rig, req Request, at func(string) string) {
		var cursors []string
		cursors = append(cursors, r.begin(t, "r1", "t1"))
		for range 5 {
			cursors = append(cursors, r.publish(t, "r1", `{"type":"CUSTOM","name":"n","value":1}`))
		}
		r.attach(t, req).all() // the hub has read all
		if _, err := r.log.Trim(t.Context(), "r1", r.runs["r1"].ids[3]); err != nil {
			t.Fatal(err)
		}
		req.Catchup = CatchupEvents
		req.After = at(cursors[3])
		r.attach(t, req).expect("attached:full catchup:events +CUSTOM +CUSTOM live")
		req.After = at(cursors[2])
		got := said(t, r.attach(t, req), true)
		if want := (reset{"trimmed", req.After, at(cursors[3]), at(cursors[5])}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		if n := r.AttachFigures().Resets["trimmed"]; n != 1 {
			t.Errorf("%d resets are counted", n)
		}
	})
	both(t, "a cursor ahead of the newest entry", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		c, _ := stream.ParseCursor(first)
		c.Entry.Ms += 1000
		req.After = at(c.String())
		got := said(t, r.attach(t, req), true)
		if want := (reset{"ahead", req.After, at(first), at(first)}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	both(t, "a cursor of an entry that is no more", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		time.Sleep(time.Second)
		last := r.publish(t, "r1", opening("r1"))
		c, _ := stream.ParseCursor(first)
		c.Entry.Ms += 500
		req.After = at(c.String())
		got := said(t, r.attach(t, req), true)
		if want := (reset{"lost", req.After, at(first), at(last)}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	both(t, "a cursor of another generation", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		c, _ := stream.ParseCursor(first)
		c.Sum++
		req.After = at(c.String())
		got := said(t, r.attach(t, req), true)
		if want := (reset{"generation", req.After, at(first), at(first)}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	both(t, "a cursor that is none", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		req.After = strings.Repeat("x", 300)
		got := said(t, r.attach(t, req), true)
		if want := (reset{"malformed", req.After[:maxCursor], at(first), at(first)}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	both(t, "a cursor of before the run began anew", func(t *testing.T, r *rig, req Request, at func(string) string) {
		first := r.begin(t, "r1", "t1")
		req.After = at(r.publish(t, "r1", opening("r1"), delta("r1", "a")))
		last := r.publish(t, "r1", started("r1", "t1"), opening("r1"))
		got := said(t, r.attach(t, req), true)
		if want := (reset{"restarted", req.After, at(first), at(last)}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	both(t, "a cursor of before the run began anew, on a hub that came when the first start was trimmed", func(t *testing.T, r *rig, req Request, at func(string) string) {
		r.begin(t, "r1", "t1")
		c := r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		r.attach(t, req).all()
		if _, err := r.log.Trim(t.Context(), "r1", r.runs["r1"].ids[2]); err != nil {
			t.Fatal(err)
		}
		r.publish(t, "r1", delta("r1", "b"))
		last := r.publish(t, "r1", started("r1", "t1"), opening("r1"))
		other := newRigOn(t, r.log.Memory, Config{})
		other.runs = r.runs
		req.After = at(c)
		got := said(t, other.attach(t, req), false)
		if want := (reset{"restarted", req.After, at(c), at(last)}); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	bubble(t, "a cursor on a hub that came when the run's start was trimmed", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		c := r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		r.attach(t, Request{Run: "r1"}).all()
		if _, err := r.log.Trim(t.Context(), "r1", r.runs["r1"].ids[2]); err != nil {
			t.Fatal(err)
		}
		end := r.publish(t, "r1", delta("r1", "b"), finished("r1", "t1"))
		other := newRigOn(t, r.log.Memory, Config{})
		other.runs = r.runs
		for _, how := range catchups {
			got := said(t, other.attach(t, Request{Run: "r1", After: c, Catchup: how}), false)
			if want := (reset{"trimmed", c, c, end}); got != want {
				t.Errorf("%s: got %v, want %v", how, got, want)
			}
			mode := "events"
			if bySnapshot(how) {
				mode = "snapshot"
			}
			other.attach(t, Request{Run: "r1", After: end, Catchup: how}).expect("attached:partial catchup:" + mode + " live ended") // it lacks nothing
		}
	})
	bubble(t, "a thread's cursor of a run that isn't there any more", func(t *testing.T) {
		r := newRig(t, Config{})
		gone := onThread(t, r.begin(t, "r1", "t1"), "r1")
		r.publish(t, "r1", finished("r1", "t1"))
		time.Sleep(time.Second)
		r.log.Delete("r1")
		r.begin(t, "r2", "t1")
		w := r.attach(t, Request{Thread: "t1", After: gone})
		got := w.all()
		if !strings.HasPrefix(got, "reset:lost attached:partial catchup:fresh START") {
			t.Error(got)
		}
	})
	bubble(t, "a cursor on a thread that has no run", func(t *testing.T) {
		r := newRig(t, Config{})
		gone := onThread(t, r.begin(t, "r0", "other"), "r0")
		w := r.attach(t, Request{Thread: "t1", After: gone})
		w.expect("reset:lost attached:none")
		r.begin(t, "r1", "t1")
		w.expect("catchup:fresh START MESSAGES STATE live")
	})
	bubble(t, "a cursor of nothing of the run: no entry of it had been sent", func(t *testing.T) {
		r := newRig(t, Config{})
		before := r.publish(t, "r1", "garbage")
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Run: "r1", After: before})
		w.expect("attached:full catchup:fresh START MESSAGES STATE live")
	})
}

func TestLag(t *testing.T) {
	const queue = 2000
	slow := func(t *testing.T, r *rig, req Request) *reader {
		t.Helper()
		w := r.attach(t, req)
		w.all()
		return w
	}
	for _, req := range []Request{{Run: "r1"}, {Thread: "t1"}} {
		bubble(t, fmt.Sprintf("one that lags is brought on from its own position, once (%v)", req), func(t *testing.T) {
			r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
			r.begin(t, "r1", "t1")
			w := slow(t, r, req)
			r.publish(t, "r1", opening("r1"), delta("r1", "a"))
			w.expect("+open +text")
			r.publish(t, "r1", deltas("r1", 50)...)
			w.expect("catchup:snapshot MESSAGES STATE live")
			r.publish(t, "r1", delta("r1", "b"))
			w.expect("+text")
			r.publish(t, "r1", append(deltas("r1", 50), closing("r1"))...) // that it had lagged before is forgiven
			w.expect("catchup:snapshot close MESSAGES STATE live")
		})
		bubble(t, fmt.Sprintf("one that was brought on may lag again, though nothing came between (%v)", req), func(t *testing.T) {
			r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
			r.begin(t, "r1", "t1")
			w := slow(t, r, req)
			r.publish(t, "r1", append([]string{opening("r1")}, deltas("r1", 50)...)...)
			w.expect("catchup:snapshot MESSAGES STATE open live")
			w.all() // it waits
			r.publish(t, "r1", deltas("r1", 50)...)
			w.expect("catchup:snapshot MESSAGES STATE live")
		})
		bubble(t, fmt.Sprintf("one that lags again before it was brought on is given up (%v)", req), func(t *testing.T) {
			r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
			r.begin(t, "r1", "t1")
			w := slow(t, r, req)
			r.publish(t, "r1", append([]string{opening("r1")}, deltas("r1", 50)...)...)
			time.Sleep(time.Second)
			w.next(time.Millisecond) // the bracket
			r.publish(t, "r1", deltas("r1", 50)...)
			w.ends(hub.ErrLagged)
			if got := w.words[len(w.words)-1]; got != "live" {
				t.Errorf("%s comes behind the gap", got)
			}
			req.After = w.leave()
			w = r.attach(t, req)
			w.expect("attached:full catchup:snapshot MESSAGES STATE live")
			w.leave()
			r.settled(t)
		})
		bubble(t, fmt.Sprintf("one that lags over the end gets it (%v)", req), func(t *testing.T) {
			r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
			r.begin(t, "r1", "t1")
			w := slow(t, r, req)
			r.publish(t, "r1", append([]string{opening("r1")}, deltas("r1", 50)...)...)
			r.publish(t, "r1", finished("r1", "t1"))
			w.expect("catchup:snapshot MESSAGES STATE FINISH live ended")
		})
		bubble(t, fmt.Sprintf("one that lags while the run begins anew is reset (%v)", req), func(t *testing.T) {
			r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
			r.begin(t, "r1", "t1")
			w := slow(t, r, req)
			r.publish(t, "r1", deltas("r1", 50)...)
			r.publish(t, "r1", started("r1", "t1"), opening("r1"))
			w.expect("reset:restarted attached:full catchup:fresh START MESSAGES STATE open live")
		})
		for _, anew := range []bool{false, true} {
			bubble(t, fmt.Sprintf("with a partial history it is brought on by events; begun anew is %t (%v)", anew, req), func(t *testing.T) {
				r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue, RingBytes: 500}})
				r.publish(t, "r1", started("r1", "t1"))
				r.announce(t, "r1", "t1")
				w := slow(t, r, req)
				r.publish(t, "r1", append([]string{opening("r1")}, deltas("r1", 50)...)...)
				if anew {
					r.publish(t, "r1", started("r1", "t1"))
					w.expect("reset:restarted attached:partial catchup:fresh START MESSAGES live")
				} else {
					w.expect("catchup:events +open" + strings.Repeat(" +text", 50) + " live")
				}
			})
		}
	}
	bubble(t, "a replay whose first page ends before the reader's position sends nothing again", func(t *testing.T) {
		r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}}) // its ring reaches back to the first entry
		r.publish(t, "r1", started("r1", "t1"), opening("r1"))
		r.announce(t, "r1", "t1")
		r.publish(t, "r1", deltas("r1", historyEntries+500)...)
		w := slow(t, r, Request{Run: "r1"})
		r.publish(t, "r1", deltas("r1", 50)...)
		w.expect("catchup:events" + strings.Repeat(" +text", 50) + " live")
	})
	pasts := map[string]Request{"by snapshot": {Run: "r1"}, "by pages": {Run: "r1", FromStart: true}, "of a thread": {Thread: "t1"}}
	for name, req := range pasts {
		bubble(t, fmt.Sprintf("%s (%s)", "one that overflows while its past is sent is brought on behind it", name), func(t *testing.T) {
			r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
			r.begin(t, "r1", "t1")
			r.publish(t, "r1", append([]string{opening("r1")}, deltas("r1", 20)...)...)
			w := r.attach(t, req)
			for len(w.words) == 0 || w.words[len(w.words)-1] != "live" { // what it took of its past; the rest is on its way
				if !w.next(time.Second) {
					t.Fatal(w.words)
				}
			}
			r.publish(t, "r1", deltas("r1", 50)...)
			w.expect("catchup:snapshot MESSAGES STATE live")
			r.publish(t, "r1", delta("r1", "b"))
			w.expect("+text")
		})
	}
	bubble(t, "a slow reader costs others nothing", func(t *testing.T) {
		r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
		r.begin(t, "r1", "t1")
		w, fast := slow(t, r, Request{Run: "r1"}), slow(t, r, Request{Run: "r1"})
		r.publish(t, "r1", opening("r1"))
		for range 50 {
			r.publish(t, "r1", delta("r1", "x"))
			if got := fast.all(); !strings.HasSuffix(got, "+text") {
				t.Error(got)
			}
		}
		w.expect("catchup:snapshot MESSAGES STATE open live")
	})
	bubble(t, "one that lags before it has anything of a thread's next run gets that run's start", func(t *testing.T) {
		r := newRig(t, Config{Hub: hub.Config{QueueBytes: queue}})
		r.begin(t, "r1", "t1")
		w := slow(t, r, Request{Thread: "t1"})
		r.publish(t, "r1", finished("r1", "t1"))
		w.expect("+FINISH ended")
		time.Sleep(time.Second)
		r.publish(t, "r2", startedWithInput("r2", "t1"))
		r.announce(t, "r2", "t1")
		time.Sleep(time.Second)
		for w.ses.sub == nil { // until it watches the run
			if _, err := w.ses.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.publish(t, "r2", append([]string{opening("r2")}, deltas("r2", 50)...)...)
		w.expect("catchup:snapshot START MESSAGES STATE open live")
	})
}
