package backfill

import (
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// TestALossBetweenTwoRuns: I2 holds for a thread's subscriber who waits for the next run, and whose hub no longer follows
// the last one.
func TestALossBetweenTwoRuns(t *testing.T) {
	// ended is a subscriber who stands at the end of r1, of which keep are its entries up to there.
	ended := func(t *testing.T, config Config) (r *rig, w *reader, kept, end stream.ID) {
		t.Helper()
		r = newRig(t, config)
		r.begin(t, "r1", "t1")
		w = r.attach(t, Request{Thread: "t1"})
		r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		time.Sleep(time.Second)
		r.publish(t, "r1", closing("r1"), finished("r1", "t1"))
		if got := w.all(); !strings.HasSuffix(got, "FINISH live ended") {
			t.Fatal(got)
		}
		ids := r.runs["r1"].ids
		return r, w, ids[2], ids[4]
	}
	// lose loses what comes after kept, for the log and for the truth.
	lose := func(r *rig, kept stream.ID) {
		r.log.Lose("r1", kept)
		tr := r.runs["r1"]
		tr.ids, tr.end = tr.ids[:3], stream.ID{}
	}
	const restated = "reset:ahead attached:full catchup:fresh START MESSAGES STATE open live"
	for name, wait := range map[string]time.Duration{"at once": 0, "long after": time.Hour} {
		bubble(t, "is noticed, "+name, func(t *testing.T) {
			r, w, kept, _ := ended(t, Config{})
			time.Sleep(wait)
			w.expect("")
			lose(r, kept)
			time.Sleep(noticed)
			w.expect(restated)
			r.publish(t, "r1", closing("r1"), finished("r1", "t1"))
			w.expect("+close +FINISH ended")
			w.leave()
			r.settled(t)
		})
	}
	bubble(t, "is said before the next run", func(t *testing.T) {
		r, w, kept, _ := ended(t, Config{})
		time.Sleep(time.Second)
		lose(r, kept)
		r.begin(t, "r2", "t1")
		got := w.all()
		if !strings.HasPrefix(got, "reset:ahead attached:") || !strings.HasSuffix(got, " live") || w.run != "r2" {
			t.Error(w.run, got)
		}
		if strings.Count(got, "START") != 1 {
			t.Error(got)
		}
	})
	bubble(t, "is said before a run that had begun before the end", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		r.begin(t, "r2", "t1")
		r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		w.expect("+open +text")
		end := r.publish(t, "r1", finished("r1", "t1"))
		if w.next(time.Millisecond); w.words[len(w.words)-1] != "ended" {
			t.Fatal(w.words)
		}
		at, err := stream.ParseCursor(end)
		if err != nil {
			t.Fatal(err)
		}
		ids := r.runs["r1"].ids
		r.log.Lose("r1", ids[len(ids)-2])
		if got := w.all(); !strings.HasPrefix(got, "reset:ahead attached:") || w.run != "r2" {
			t.Error(at, w.run, got)
		}
	})
	bubble(t, "of the whole run is said, and the thread begins anew", func(t *testing.T) {
		r, w, _, _ := ended(t, Config{})
		r.log.Delete("r1")
		delete(r.runs, "r1")
		time.Sleep(noticed)
		w.expect("reset:lost attached:none")
		r.begin(t, "r2", "t1")
		if got := w.all(); !strings.HasPrefix(got, "catchup:fresh START") {
			t.Error(got)
		}
	})
	bubble(t, "isn't an expiry", func(t *testing.T) {
		r, w, _, _ := ended(t, Config{Retention: time.Hour})
		time.Sleep(time.Hour)
		r.log.Delete("r1")
		time.Sleep(time.Hour)
		w.expect("")
		r.begin(t, "r2", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
		w.leave()
		r.settled(t)
	})
	bubble(t, "of what came after the end only is none", func(t *testing.T) {
		r, w, _, end := ended(t, Config{})
		time.Sleep(time.Second)
		r.publish(t, "r1", `{"type":"CUSTOM","name":"late","value":1}`)
		w.expect("")
		time.Sleep(noticed)
		r.log.Lose("r1", end)
		time.Sleep(time.Minute)
		w.expect("")
		time.Sleep(time.Second)
		r.begin(t, "r2", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
	})
	bubble(t, "isn't a server that is away", func(t *testing.T) {
		r, w, kept, _ := ended(t, Config{})
		r.log.SetFault(stream.ErrUnavailable)
		time.Sleep(time.Minute)
		w.expect("")
		r.log.SetFault(nil)
		time.Sleep(noticed)
		w.expect("")
		r.log.SetFault(stream.ErrUnavailable)
		lose(r, kept)
		time.Sleep(time.Minute)
		w.expect("")
		r.log.SetFault(nil)
		time.Sleep(noticed)
		w.expect(restated)
	})
}
