package backfill

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aguihub/aguihub/stream"
)

// recentRuns bounds the runs of a thread that are looked at to tell what goes on there: the newest.
const recentRuns = 32

// Active lists the runs of a thread that have begun and not ended, among the newest 32, the one that started last first.
func (s *Service) Active(ctx context.Context, thread stream.ThreadID) ([]stream.RunID, error) {
	runs, err := s.registry.Thread(ctx, thread, recentRuns)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	ids := make([]stream.RunID, len(runs))
	for i, r := range runs {
		ids[i] = r.Run
	}
	page, err := s.summaries(ctx, ids)
	if err != nil {
		return nil, err
	}
	var active []stream.RunID
	for _, sum := range page {
		if sum.State.ended() {
			continue
		}
		// A summary knows the first and the last entry only, and something may stand behind the end.
		goesOn, err := s.goesOn(ctx, sum.Run, thread)
		if err != nil {
			return nil, err
		}
		if goesOn {
			active = append(active, sum.Run)
		}
	}
	return active, nil
}

// goesOn says whether a run of the thread has no end as of the newest entry that there is now.
func (s *Service) goesOn(ctx context.Context, run stream.RunID, thread stream.ThreadID) (bool, error) {
	over := false
	err := s.atHead(ctx, run, func(m *machine) { over = m.run.Ended() || (m.thread != "" && m.thread != thread) })
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, stream.ErrWrongType) {
		return false, nil
	}
	return !over, err
}

// atHead calls see, under the feed's lock, when the run's machine stands at the newest entry that there is now, or has ended
// before. It returns ErrUnknownRun where the run has no entry.
func (s *Service) atHead(ctx context.Context, run stream.RunID, see func(m *machine)) error {
	bounds, err := s.log.Bounds(ctx, run)
	switch {
	case err != nil:
		return err
	case bounds[0].WrongType:
		return stream.ErrWrongType
	case bounds[0].Last.ID.IsZero():
		return ErrUnknownRun
	}
	feed, err := s.hub.Feed(run)
	if err != nil {
		return err
	}
	defer s.hub.Release(feed)
	m := feed.Machine().(*machine)
	return feed.Wait(ctx, func() bool {
		if !m.run.Ended() && m.cursor.Entry.Less(bounds[0].Last.ID) {
			return false
		}
		see(m)
		return true
	})
}

// Look says whether a run is known, by an entry or by who has claimed it, as Cancel needs it, and whether it has an end, as of
// the newest entry that there is now.
func (s *Service) Look(ctx context.Context, run stream.RunID) (known, over bool, err error) {
	err = s.atHead(ctx, run, func(m *machine) { over = m.run.Ended() })
	if !errors.Is(err, ErrUnknownRun) {
		return err == nil, over, err
	}
	leases, err := s.log.Leases(ctx, run)
	if err != nil {
		return false, false, err
	}
	return leases[0].Known, false, nil
}

// ended says whether a state is one that a run stays in.
func (s RunState) ended() bool {
	switch s {
	case StateFinished, StateError, StateCancelled, StateInterrupted:
		return true
	default:
		return false
	}
}

// Pending lists the interrupts that a run of the thread would find open if it went on from parent or, where that is
// empty or isn't a run of the thread, from the run that started last.
func (s *Service) Pending(ctx context.Context, thread stream.ThreadID, parent stream.RunID) ([]string, error) {
	if parent != "" {
		ids, found, err := s.pendingAfter(ctx, thread, parent)
		if found || err != nil {
			return ids, err
		}
	}
	runs, err := s.registry.Thread(ctx, thread, recentRuns)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		ids, found, err := s.pendingAfter(ctx, thread, r.Run)
		if found || err != nil {
			return ids, err
		}
	}
	return nil, nil
}

// pendingAfter reads what a run left open; found is false where it isn't a run of the thread, or is there no more.
func (s *Service) pendingAfter(ctx context.Context, thread stream.ThreadID, run stream.RunID) (ids []string, found bool, err error) {
	var end []byte
	err = s.peek(ctx, run, func(m *machine) {
		if found = m.thread == thread && m.run.Started(); found {
			end = m.run.Conversation().PendingEnd
		}
	})
	switch {
	case errors.Is(err, ErrUnknownRun), errors.Is(err, stream.ErrWrongType):
		return nil, false, nil
	case err != nil || end == nil:
		return nil, found, err
	}
	var finished struct {
		Outcome struct {
			Interrupts []struct {
				ID string `json:"id"`
			} `json:"interrupts"`
		} `json:"outcome"`
	}
	if err := json.Unmarshal(end, &finished); err != nil {
		return nil, true, nil //nolint:nilerr // it was admitted, so it can be read; if not, nothing can be asked of anybody
	}
	for _, i := range finished.Outcome.Interrupts {
		ids = append(ids, i.ID)
	}
	return ids, true, nil
}
