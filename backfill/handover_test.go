package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Ways to come to a run's live tail through its past.
var ways = map[string]func(first string) Request{
	"fresh":      func(string) Request { return Request{Run: "r1"} },
	"from start": func(string) Request { return Request{Run: "r1", FromStart: true} },
	"snapshot":   func(first string) Request { return Request{Run: "r1", After: first} },
	"events":     func(first string) Request { return Request{Run: "r1", After: first, Catchup: CatchupEvents} },
	"auto":       func(first string) Request { return Request{Run: "r1", After: first, Catchup: CatchupAuto} },
	"only":       func(first string) Request { return Request{Run: "r1", After: first, Catchup: CatchupOnly} },
	"thread":     func(string) Request { return Request{Thread: "t1"} },
}

// everyWay is a subtest for each way, in a bubble. The hub is cold or follows the run already, with a ring that holds
// little.
func everyWay(t *testing.T, name string, f func(t *testing.T, r *rig, attach func(first string) *reader)) {
	t.Helper()
	for way, request := range ways {
		for _, ring := range []int{0, 2000} {
			bubble(t, fmt.Sprintf("%s (%s, ring of %d bytes)", name, way, ring), func(t *testing.T) {
				r := newRig(t, Config{Hub: hub.Config{RingBytes: ring}})
				f(t, r, func(first string) *reader { return r.attach(t, request(first)) })
			})
		}
	}
}

func TestHandover(t *testing.T) {
	everyWay(t, "what is published between history and live comes once", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 50)...)
		r.log.hook(func(page int, _ stream.Page) {
			if page < 6 {
				r.publish(t, "r1", deltas("r1", 20)...)
			}
		})
		w := attach(first)
		w.all()
		r.publish(t, "r1", deltas("r1", 3)...)
		if got := w.all(); !strings.HasSuffix(got, "+text +text +text") {
			t.Error(got)
		}
		if last := w.truth("r1").ids; w.at != last[len(last)-1] {
			t.Errorf("the reader stands at %s of %s", w.at, last[len(last)-1])
		}
	})
	everyWay(t, "the entry at the boundary of two pages comes once", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 2*historyEntries-3)...)
		w := attach(first)
		w.all()
		r.publish(t, "r1", delta("r1", "x"))
		w.expect("+text")
	})
	everyWay(t, "a terminal event during the handover is told once and ends the session", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		var once sync.Once
		r.log.hook(func(_ int, p stream.Page) {
			if len(p.Entries) > 1 {
				once.Do(func() { r.publish(t, "r1", closing("r1"), finished("r1", "t1")) })
			}
		})
		w := attach(first)
		got := w.all()
		if strings.Count(got, "FINISH") != 1 || !strings.HasSuffix(got, "ended") || strings.Count(got, "ended") != 1 {
			t.Error(got)
		}
		if w.only != "" && !errors.Is(w.err, io.EOF) {
			t.Error(w.err)
		}
	})
	everyWay(t, "a server that goes away between pages costs time, nothing else", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 2500)...)
		w := attach(first)
		away := 0
		r.log.hook(func(page int, _ stream.Page) {
			if page == 1 || page == 3 {
				r.log.SetFault(stream.ErrUnavailable)
				away++
				go func() { // the bubble ends after it
					time.Sleep(5 * time.Second)
					r.log.SetFault(nil)
				}()
			}
		})
		for range 5 {
			w.all()
			if w.err != nil && !errors.Is(w.err, stream.ErrUnavailable) {
				t.Fatal(w.err)
			}
			time.Sleep(10 * time.Second)
		}
		r.publish(t, "r1", closing("r1"), finished("r1", "t1"))
		time.Sleep(10 * time.Second)
		if got := w.all(); !strings.HasSuffix(got, "+close +FINISH ended") || away == 0 {
			t.Error(got, away)
		}
	})
	everyWay(t, "a trim in the middle of the past is said or does no harm", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 2500)...)
		r.log.hook(func(page int, _ stream.Page) {
			if page == 2 {
				ids := r.runs["r1"].ids
				if _, err := r.log.Trim(t.Context(), "r1", ids[len(ids)-2]); err != nil {
					t.Error(err)
				}
			}
		})
		w := attach(first)
		for range 3 { // without its start nobody can tell whether there is a run
			w.all()
			time.Sleep(time.Minute)
		}
		w.all()
		if w.err != nil && !errors.Is(w.err, ErrUnknownRun) {
			t.Error(w.err)
		}
		if ids := r.runs["r1"].ids; w.err == nil && w.at != ids[len(ids)-1] {
			t.Errorf("neither told nor brought on from %s: %.500s", w.at, strings.Join(w.words, " "))
		}
	})
	everyWay(t, "closing the service in the middle of the past ends the session", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 2500)...)
		var closing sync.WaitGroup
		r.log.hook(func(page int, _ stream.Page) {
			if page == 2 {
				closing.Go(r.Close)
				synctest.Wait()
			}
		})
		w := attach(first)
		w.ends(hub.ErrClosed)
		closing.Wait()
	})
	everyWay(t, "closing the session in the middle of the past leaves nothing behind", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 2500)...)
		w := attach(first)
		w.next(time.Millisecond)
		w.leave()
		r.settled(t)
	})
	everyWay(t, "an entry that is withheld is said and passed", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"), "garbage", delta("r1", "a"))
		w := attach(first)
		w.all()
		r.publish(t, "r1", `{"type":"TEXT_MESSAGE_CONTENT"}`, delta("r1", "b"))
		w.expect("(malformed) +text")
		if err := w.err; err != nil {
			t.Error(err)
		}
	})
	everyWay(t, "of appends that were tried again the start restarts, the opening and the end are withheld", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		w := attach(first)
		w.all()
		r.publish(t, "r1", opening("r1"), opening("r1"), delta("r1", "a"), closing("r1"), closing("r1"))
		w.expect("+open (illegal) +text +close (illegal)")
		r.publish(t, "r1", finished("r1", "t1"), finished("r1", "t1"))
		w.expect("+FINISH ended")
	})
	everyWay(t, "a run that begins anew is a reset and then fresh", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"), delta("r1", "a"))
		w := attach(first)
		w.all()
		r.publish(t, "r1", delta("r1", "b"), started("r1", "t1"), opening("r1"), delta("r1", "c"))
		got := w.all()
		if !strings.HasPrefix(got, "+text reset:restarted attached:full catchup:fresh START MESSAGES") || strings.Count(got, "live") != 1 {
			t.Error(got)
		}
	})
	everyWay(t, "a run that begins anew in the middle of the past is no second start", func(t *testing.T, r *rig, attach func(string) *reader) {
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		r.publish(t, "r1", deltas("r1", 2500)...)
		r.log.hook(func(page int, _ stream.Page) {
			if page == 2 {
				r.publish(t, "r1", started("r1", "t1"), opening("r1"), delta("r1", "x"))
			}
		})
		w := attach(first)
		w.all()
		r.publish(t, "r1", delta("r1", "y"))
		w.all()
		starts := 0
		for _, word := range w.words {
			switch {
			case strings.Contains(word, "START"):
				starts++
			case strings.HasPrefix(word, "reset"):
				starts = 0
			}
		}
		if starts > 1 || w.at != w.truth("r1").ids[len(w.truth("r1").ids)-1] {
			t.Errorf("%d starts: %.1000s", starts, strings.Join(w.words, " "))
		}
	})
}

func TestAttachBeforeTheFirstEntry(t *testing.T) {
	for name, req := range map[string]Request{
		"fresh": {Run: "r1"}, "from start": {Run: "r1", FromStart: true}, "thread": {Thread: "t1"},
	} {
		bubble(t, "the run is waited for ("+name+")", func(t *testing.T) {
			r := newRig(t, Config{})
			w := r.attach(t, req)
			w.all()
			time.Sleep(20 * time.Second)
			r.begin(t, "r1", "t1")
			r.publish(t, "r1", opening("r1"), delta("r1", "a"), closing("r1"), finished("r1", "t1"))
			if got := w.all(); !strings.HasSuffix(got, "ended") || strings.Count(got, "FINISH") != 1 {
				t.Error(got)
			}
		})
	}
	bubble(t, "a run that doesn't come is unknown after the wait, a thread is waited for without end", func(t *testing.T) {
		r := newRig(t, Config{AttachWait: 5 * time.Second})
		w := r.attach(t, Request{Run: "r1"})
		w.expect("")
		th := r.attach(t, Request{Thread: "t1"})
		th.expect("attached:none")
		time.Sleep(time.Hour)
		w.ends(ErrUnknownRun)
		w.leave()
		if th.expect(""); th.err != nil {
			t.Error(th.err)
		}
		th.leave()
		r.settled(t)
	})
	bubble(t, "a run that can't be read for as long as one waits is no unknown run", func(t *testing.T) {
		r := newRig(t, Config{AttachWait: 5 * time.Second})
		r.begin(t, "r1", "t1")
		r.log.SetFault(stream.ErrUnavailable)
		w := r.attach(t, Request{Run: "r1"})
		w.all()
		time.Sleep(time.Minute)
		w.ends(stream.ErrUnavailable)
		r.log.SetFault(nil)
	})
	bubble(t, "what stands before the start is withheld, and the attach waits on", func(t *testing.T) {
		r := newRig(t, Config{})
		r.publish(t, "r1", delta("r1", "lost"))
		w := r.attach(t, Request{Run: "r1"})
		w.expect("")
		r.begin(t, "r1", "t1")
		w.expect("attached:full catchup:fresh START MESSAGES STATE live")
	})
	bubble(t, "a key of another type is an error of its own", func(t *testing.T) {
		r := newRig(t, Config{})
		r.log.SetWrongType("r1")
		w := r.attach(t, Request{Run: "r1"})
		w.ends(stream.ErrWrongType)
	})
}

func TestManyReaders(t *testing.T) {
	bubble(t, "two attaches to one run on one client get the same, each by itself", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		a, b := r.attach(t, Request{Run: "r1"}), r.attach(t, Request{Run: "r1"})
		a.expect("attached:full catchup:fresh START MESSAGES STATE live")
		b.expect("attached:full catchup:fresh START MESSAGES STATE live")
		reads := r.log.reads
		r.publish(t, "r1", opening("r1"))
		a.expect("+open")
		a.leave()
		r.publish(t, "r1", delta("r1", "x"))
		b.expect("+open +text")
		if r.log.reads != reads {
			t.Errorf("%d reads of pages in the live tail", r.log.reads-reads)
		}
	})
	bubble(t, "comings and goings drift no gauge and disturb nobody who stays", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		stays := r.attach(t, Request{Run: "r1"})
		stays.all()
		var going sync.WaitGroup
		for i := range 50 {
			going.Go(func() {
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				req := []Request{{Run: "r1"}, {Thread: "t1"}, {Run: "r1", FromStart: true}, {Run: "never"}, {Thread: "never"}}[i%5]
				ses, err := r.Attach(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				defer ses.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*time.Millisecond)
				defer cancel()
				for err == nil {
					_, err = ses.Next(ctx)
				}
				if ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		for range 40 {
			r.publish(t, "r1", delta("r1", "x"))
			time.Sleep(time.Millisecond)
			stays.all()
		}
		going.Wait()
		if n := r.Figures().Subscribers; n != 1 {
			t.Errorf("%d subscribers, one stays", n)
		}
		stays.leave()
		r.settled(t)
	})
	bubble(t, "what a closed session returns", func(t *testing.T) {
		r := newRig(t, Config{})
		r.begin(t, "r1", "t1")
		w := r.attach(t, Request{Thread: "t1"})
		w.all()
		if got := fmt.Sprint(w.ses.MessageIDs()); got != "[u-r1]" {
			t.Error(got)
		}
		w.ses.Close()
		w.ends(hub.ErrClosed)
		if w.ses.MessageIDs() != nil {
			t.Error("messages of no run")
		}
	})
}

func TestLongPast(t *testing.T) {
	bubble(t, "a backlog of 100,000 entries goes through a queue of 1 MiB", func(t *testing.T) {
		r := newRig(t, Config{})
		first := r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		for range 100 {
			r.publish(t, "r1", deltas("r1", 1000)...)
		}
		w := r.attach(t, Request{Run: "r1", After: first, Catchup: CatchupOnly})
		w.mute = true
		for page := 0; w.next(time.Millisecond); page++ {
			if page%10 == 0 && page < 100 { // live entries come all the while
				r.publish(t, "r1", delta("r1", "live"))
			}
		}
		ids := r.runs["r1"].ids
		if w.at != ids[len(ids)-1] || w.err != nil || r.Figures().Lagged != 0 {
			t.Errorf("at %s of %s, %v, lagged %d", w.at, ids[len(ids)-1], w.err, r.Figures().Lagged)
		}
		w = r.attach(t, Request{Run: "r1"})
		w.expect("attached:full catchup:fresh START MESSAGES STATE open live")
	})
	bubble(t, "a conversation over its bound is refused", func(t *testing.T) {
		r := newRig(t, Config{MaxConversation: 1000})
		r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"), delta("r1", strings.Repeat("x", 1000)))
		w := r.attach(t, Request{Run: "r1"})
		w.ends(ErrTooLarge)
		w.leave()
		r.settled(t)
	})
}
