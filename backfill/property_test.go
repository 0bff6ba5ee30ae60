package backfill

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of the random schedules")
	seeds     = flag.Uint64("seeds", 60, "how many random schedules are tried")
)

// The rule (I1, I2): whatever publishers and readers do, and in whatever order, a reader gets each entry after its cursor
// once and in order or covered by a bracket, and every loss is said. The reader checks it at each item.
func TestAnyScheduleGivesEachEntryOnceOrCovered(t *testing.T) {
	for seed := range *seeds {
		bubble(t, fmt.Sprintf("-seed=%d", *firstSeed+seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*firstSeed+seed, 5))
			s := &schedule{t: t, rng: rng, rig: newRig(t, Config{Hub: hub.Config{
				QueueBytes: 600 + rng.IntN(3000), RingBytes: 600 + rng.IntN(6000), Linger: time.Duration(1+rng.IntN(100)) * time.Millisecond,
			}})}
			for range 300 {
				s.step()
			}
			s.finish()
		})
	}
}

// schedule is what publishers and readers of one thread do.
type schedule struct {
	t       *testing.T
	rng     *rand.Rand
	rig     *rig
	runs    []*publisher
	readers []*reader
	resting []Request // of readers that left, with their cursors
	away    bool      // the server is
}

// publisher is one run in the making.
type publisher struct {
	run    string
	opened bool
	over   bool
}

func (s *schedule) step() {
	switch s.rng.IntN(12) {
	case 0:
		if !s.away && len(s.runs) < 6 && s.rng.IntN(4) == 0 {
			s.start()
		}
	case 1, 2, 3, 4:
		if !s.away && len(s.runs) > 0 {
			s.publish(s.runs[s.rng.IntN(len(s.runs))])
		}
	case 5:
		if len(s.readers) < 6 && !s.away {
			s.attach()
		}
	case 6:
		if n := len(s.readers); n > 0 && s.rng.IntN(3) == 0 {
			s.leave(s.rng.IntN(n))
		}
	case 7:
		if s.rng.IntN(6) == 0 {
			if s.away = !s.away; s.away {
				s.rig.log.SetFault(stream.ErrUnavailable)
			} else {
				s.rig.log.SetFault(nil)
			}
		}
	case 8:
		time.Sleep(time.Duration(s.rng.IntN(200)) * time.Millisecond)
	case 9:
		synctest.Wait()
	default:
		if n := len(s.readers); n > 0 {
			i := s.rng.IntN(n)
			for range s.rng.IntN(4) {
				s.readers[i].next(time.Duration(s.rng.IntN(3)) * time.Millisecond)
			}
			s.look(i)
		}
	}
}

func (s *schedule) start() {
	run := fmt.Sprintf("r%d", len(s.runs))
	p := &publisher{run: run}
	time.Sleep(time.Millisecond)
	rec := stream.Record{Event: []byte(started(run, "t1"))}
	switch s.rng.IntN(4) {
	case 0: // nobody knows its input
	case 1:
		rec.Event = []byte(startedWithInput(run, "t1"))
	default:
		rec.Input = []byte(input(run, "t1"))
	}
	if s.rng.IntN(4) == 0 {
		s.rig.publish(s.t, run, "garbage")
	}
	s.rig.record(s.t, run, rec)
	s.rig.announce(s.t, run, "t1")
	s.runs = append(s.runs, p)
}

func (s *schedule) publish(p *publisher) {
	var events []string
	if !p.opened {
		events = append(events, opening(p.run))
		p.opened = true
	}
	for range s.rng.IntN(12) {
		if s.rng.IntN(10) == 0 {
			events = append(events, `{"type":"TEXT_MESSAGE_CONTENT"}`)
		}
		events = append(events, delta(p.run, fmt.Sprintf("%d;", s.rng.IntN(1000))))
	}
	switch s.rng.IntN(30) {
	case 0, 1:
		events = append(events, finished(p.run, "t1"))
		p.over = true
	case 2:
		if !p.over {
			events = append(events, started(p.run, "t1"))
			p.opened = false
		}
	default:
	}
	if len(events) > 0 {
		s.rig.publish(s.t, p.run, events...)
	}
}

func (s *schedule) attach() {
	var req Request
	switch {
	case len(s.resting) > 0 && s.rng.IntN(3) > 0:
		i := s.rng.IntN(len(s.resting))
		req = s.resting[i]
		s.resting = append(s.resting[:i:i], s.resting[i+1:]...)
	case len(s.runs) > 0 && s.rng.IntN(2) == 0:
		req.Run = stream.RunID(s.runs[s.rng.IntN(len(s.runs))].run)
	default:
		req.Thread = "t1"
	}
	req.Catchup = catchups[s.rng.IntN(len(catchups))]
	s.readers = append(s.readers, s.rig.attach(s.t, req))
}

func (s *schedule) leave(i int) {
	w := s.readers[i]
	s.resting = append(s.resting, back(w))
	s.readers = append(s.readers[:i:i], s.readers[i+1:]...)
}

// back closes a reader's session and returns what brings it back.
func back(w *reader) Request {
	req := w.ses.request
	return Request{Run: req.Run, Thread: req.Thread, After: w.leave()}
}

// look takes a reader out whose session has ended, for a reason that may be.
func (s *schedule) look(i int) {
	w := s.readers[i]
	switch {
	case w.err == nil:
	case errors.Is(w.err, stream.ErrUnavailable) && s.away:
		w.err = nil // it may be asked again
	case errors.Is(w.err, io.EOF), errors.Is(w.err, hub.ErrLagged):
		s.leave(i)
	default:
		s.t.Errorf("a session ended with %v", w.err)
		s.leave(i)
	}
}

// finish ends all runs: each reader then comes to an end, too.
func (s *schedule) finish() {
	s.rig.log.SetFault(nil)
	time.Sleep(5 * time.Second)
	for _, p := range s.runs {
		if !p.over {
			s.rig.publish(s.t, p.run, finished(p.run, "t1"))
		}
	}
	time.Sleep(5 * time.Second)
	for _, req := range s.resting {
		s.readers = append(s.readers, s.rig.attach(s.t, req))
	}
	for _, w := range s.readers {
		w.all()
		if errors.Is(w.err, hub.ErrLagged) { // it comes back
			w = s.rig.attach(s.t, back(w))
			w.all()
		}
		if w.only != "" && !errors.Is(w.err, io.EOF) {
			s.t.Errorf("a run's session ended with %v", w.err)
		}
		if w.run != "" && !w.over {
			s.t.Errorf("a reader of %q %q never got the end of %s, it is at %s", w.only, w.ses.request.Thread, w.run, w.at)
		}
		w.leave()
	}
	s.rig.settled(s.t)
}
