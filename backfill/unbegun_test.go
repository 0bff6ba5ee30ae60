package backfill

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/auth"
)

// TestARunThatNothingBegins: whoever attaches to a run whose RUN_STARTED is withheld is told what is there, and not as if
// nobody had published.
func TestARunThatNothingBegins(t *testing.T) {
	const noRunID = `{"type":"RUN_STARTED","threadId":"t1"}`
	bubble(t, "each entry is told once, as it comes, and the end of the wait says that there are some", func(t *testing.T) {
		r := newRig(t, Config{AttachWait: 10 * time.Second})
		w := r.attach(t, Request{Run: "r1", Skips: true})
		w.expect("")
		first := r.publish(t, "r1", noRunID)
		w.expect("skipped")
		if want := `{"control":"skipped","id":"` + first + `","reason":"malformed"}`; w.raw[0] != want {
			t.Errorf("got %s, want %s", w.raw[0], want)
		}
		r.publish(t, "r1", `{"type":"TEXT_MESSAGE_START"`, opening("r1"))
		w.expect("skipped skipped")
		late := r.attach(t, Request{Run: "r1", Skips: true})
		late.expect("skipped skipped skipped")
		if got := strings.Join(late.raw, " "); got != strings.Join(w.raw, " ") || !strings.Contains(got, "not_json") || !strings.Contains(got, "before_start") {
			t.Error(got)
		}
		time.Sleep(10 * time.Second)
		w.ends(ErrNotBegun)
		late.ends(ErrNotBegun)
		if n := r.AttachFigures().Failures["unknown_run"]; n != 2 {
			t.Errorf("%d attaches failed", n)
		}
	})
	bubble(t, "a RUN_STARTED that comes after all begins it, in its own thread, and nobody holds a place before it", func(t *testing.T) {
		r := newRig(t, Config{})
		w := r.attach(t, Request{Run: "r1", Skips: true})
		r.publish(t, "r1", `{"type":"RUN_STARTED","runId":"r1"}`)
		w.expect("skipped")
		wrong := w.raw[0]
		r.begin(t, "r1", "t1")
		w.expect("attached:full catchup:fresh START MESSAGES STATE live")
		if !strings.Contains(strings.Join(w.raw, " "), `"thread":"t1"`) {
			t.Error(w.raw)
		}
		r.publish(t, "r1", opening("r1"))
		w.expect("+open")
		r.attach(t, Request{Thread: "t1"}).expect("attached:full catchup:fresh START MESSAGES STATE open live")
		cursor := wrong[strings.Index(wrong, `"id":"`)+6 : strings.Index(wrong, `","reason`)]
		for _, how := range []Catchup{CatchupSnapshot, CatchupEvents} {
			if got := r.attach(t, Request{Run: "r1", After: cursor, Catchup: how}).all(); !strings.Contains(got, "START MESSAGES STATE open live") {
				t.Errorf("from the entry before the start comes %s", got)
			}
		}
	})
	bubble(t, "what ends such a run is told as ever, and the run is its thread's", func(t *testing.T) {
		r := newRig(t, Config{})
		w := r.attach(t, Request{Run: "r1", Skips: true})
		r.publish(t, "r1", noRunID)
		w.expect("skipped")
		r.publish(t, "r1", finished("r1", "t1"))
		if got := w.all(); !strings.HasPrefix(got, "attached:") || !strings.HasSuffix(got, "ERROR live ended") {
			t.Error(got)
		}
		r.attach(t, Request{Thread: "t1"}).expect("attached:partial catchup:fresh ERROR live ended")
	})
	bubble(t, "its thread goes on without it until it begins", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r0", "t1")
		r.publish(t, "r0", finished("r0", "t1"))
		time.Sleep(time.Second)
		r.publish(t, "r1", noRunID)
		r.announce(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1", Skips: true})
		w.expect("attached:full catchup:fresh START MESSAGES STATE FINISH live ended")
		time.Sleep(time.Hour)
		r.begin(t, "r1", "t1")
		w.expect("catchup:snapshot START MESSAGES STATE live")
	})
	bubble(t, "wires that can't say it wait, and are told at the end", func(t *testing.T) {
		r := newRig(t, Config{AttachWait: 10 * time.Second})
		r.publish(t, "r1", noRunID)
		w := r.attach(t, Request{Run: "r1"})
		w.expect("")
		time.Sleep(10 * time.Second)
		w.ends(ErrNotBegun)
	})
	bubble(t, "who may see neither the run nor its thread learns nothing", func(t *testing.T) {
		r := newRig(t, Config{AttachWait: 10 * time.Second})
		r.publish(t, "r1", noRunID)
		for thread, want := range map[string]error{"t1": ErrNotBegun, "t2": ErrUnknownRun} {
			w := r.attach(t, Request{Run: "r1", Skips: true, Grant: &auth.Grant{Rights: auth.Rights{Threads: []string{thread}}}})
			got := w.all()
			time.Sleep(10 * time.Second)
			w.ends(want)
			if told := got != ""; told != errors.Is(w.err, ErrNotBegun) || told != (thread == "t1") {
				t.Errorf("of %s somebody is told %q, and then %v", thread, got, w.err)
			}
		}
	})
	bubble(t, "of many entries the newest are told, as many as look-ups list", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, "r1", deltas("r1", 3*maxWithheld)...)
		w := r.attach(t, Request{Run: "r1", Skips: true})
		if n := strings.Count(w.all(), "skipped"); n != maxWithheld {
			t.Errorf("%d lines", n)
		}
	})
}
