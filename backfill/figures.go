package backfill

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/stream"
)

// stats are a service's running figures; read them with AttachFigures.
type stats struct {
	seconds                            map[string]*metrics.Histogram // of attaches, by mode; static
	failures, brackets, resets, states metrics.Tally
}

// begin makes the series that there will be.
func (s *stats) begin() {
	s.seconds = map[string]*metrics.Histogram{}
	for _, mode := range []string{modeFresh, modeSnapshot, modeEvents} {
		s.seconds[mode] = metrics.NewHistogram()
		s.brackets.Expect(mode)
	}
	s.failures.Expect("other")
	for _, f := range failureNames {
		s.failures.Expect(f.name)
	}
	s.resets.Expect(resetTrimmed, resetLost, resetGeneration, resetAhead, resetRestarted, resetMalformed)
	for _, state := range []stream.RunState{
		stream.RunStarted, stream.RunFinished, stream.RunError, stream.RunCancelled, stream.RunInterrupted, stream.RunAbandoned, stream.RunDeleted,
	} {
		s.states.Expect(string(state))
	}
}

// AttachFigures tells how subscribers were brought up to the present, since start.
func (s *Service) AttachFigures() metrics.Attach {
	return metrics.Attach{
		Seconds: s.stats.seconds, Failures: s.stats.failures.Read(), Brackets: s.stats.brackets.Read(),
		Resets: s.stats.resets.Read(), Runs: s.stats.states.Read(),
	}
}

// CachedBytes is what the conversations of ended runs weigh that are kept for the next runs of their threads.
func (s *Service) CachedBytes() int {
	s.pasts.mu.Lock()
	defer s.pasts.mu.Unlock()
	return s.pasts.bytes
}

// clock measures one attach of a session. It is owned by the goroutine that calls Next.
type clock struct {
	began  time.Time // zero once the attach has ended
	waited bool      // for a run without an entry
	mode   string    // of the bracket that is open
}

// count notes brackets among the items of a session, and how the attach ended.
func (ses *Session) count(items []Item, err error) {
	stats := &ses.service.stats
	for i := range items {
		switch it := &items[i]; it.Control {
		case ControlCatchup:
			ses.clock.mode = it.mode
			stats.brackets.Add(it.mode)
		case ControlLive:
			if !ses.clock.began.IsZero() {
				stats.seconds[ses.clock.mode].Observe(time.Since(ses.clock.began))
				ses.clock.began = time.Time{}
			}
		}
	}
	if err != nil && !ses.clock.began.IsZero() {
		ses.service.countFailure(err)
	}
}

// failureNames are the reasons of attaches that failed, as labels of metrics.
var failureNames = []struct {
	is   error
	name string
}{
	{ErrUnknownRun, "unknown_run"},
	{ErrTooLarge, "too_large"},
	{ErrGone, "gone"},
	{hub.ErrTooManyWaiting, "too_many_waiting"},
	{hub.ErrLagged, "slow"},
	{hub.ErrLost, "lost"},
	{hub.ErrClosed, "draining"},
	{stream.ErrClosed, "draining"},
	{stream.ErrWrongType, "wrong_type"},
	{stream.ErrUnavailable, "unavailable"},
	{stream.ErrDenied, "denied"},
	{stream.ErrFull, "full"},
}

// countFailure counts an attach that ended before it was live; an end of the caller's is none.
func (s *Service) countFailure(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	for _, f := range failureNames {
		if errors.Is(err, f.is) {
			s.stats.failures.Add(f.name)
			return
		}
	}
	s.stats.failures.Add("other")
}
