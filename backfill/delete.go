package backfill

import (
	"context"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// lateWrites is for how long after a run's deletion what is written to its key and doesn't begin a run is removed, too:
// longer than any write is on its way; never longer than runs are kept.
const lateWrites = time.Hour

// maxErased bounds the runs of a thread that one deletion takes.
const maxErased = 10_000

// Delete removes a run with all that is kept of it, here and in every hub: docs/contract.md, section 6. It may be
// repeated, and a run that nobody knows is no error. Without a Store it fails with ErrNoStore.
func (s *Service) Delete(ctx context.Context, run stream.RunID) error {
	if s.config.Store == nil {
		return ErrNoStore
	}
	thread, err := s.ThreadOf(ctx, run)
	if err != nil {
		return err
	}
	return s.erase(ctx, run, thread)
}

// DeleteThread removes all runs of a thread, as Delete does with one.
func (s *Service) DeleteThread(ctx context.Context, thread stream.ThreadID) error {
	if s.config.Store == nil {
		return ErrNoStore
	}
	runs, err := s.registry.Thread(ctx, thread, maxErased)
	if err != nil {
		return err
	}
	for _, r := range runs {
		of, err := s.ThreadOf(ctx, r.Run)
		if err != nil {
			return err
		}
		if of != "" && of != thread {
			continue // whoever wrote the index was wrong: the run is another thread's
		}
		if err := s.erase(ctx, r.Run, thread); err != nil {
			return err
		}
	}
	return s.config.Store.EraseThread(ctx, thread)
}

// ThreadOf is the thread that a run's first entries name; "" where there are none.
func (s *Service) ThreadOf(ctx context.Context, run stream.RunID) (stream.ThreadID, error) {
	if f := s.hub.Peek(run); f != nil {
		var thread stream.ThreadID
		f.With(func(stream.ID) { thread = f.Machine().(*machine).thread })
		if thread != "" {
			return thread, nil
		}
	}
	bounds, err := s.log.Bounds(ctx, run)
	if err != nil || bounds[0].WrongType || bounds[0].First.ID.IsZero() {
		return "", err
	}
	page, err := s.log.Range(ctx, run, stream.ID{}, headEntries, headBytes)
	if err != nil {
		return "", err
	}
	st, _, err := s.startOf(ctx, run, page.Entries)
	return st.thread, err
}

// erase removes a run's keys and tells every hub, this one at once.
func (s *Service) erase(ctx context.Context, run stream.RunID, thread stream.ThreadID) error {
	s.keeper.forget(run)
	if err := s.config.Store.Erase(ctx, run, thread, min(lateWrites, s.config.Retention)); err != nil {
		return err
	}
	info := stream.RunInfo{Run: run, Thread: thread, State: stream.RunDeleted}
	if err := s.registry.Announce(ctx, info); err != nil {
		return err
	}
	s.threads.deleted(info)
	return nil
}

// deleted drops all that is held of a run that somebody deleted. What is appended to its key later is another run.
func (t *threads) deleted(info stream.RunInfo) {
	t.service.losses.Add(1)
	s := t.service
	s.pasts.drop(info.Run)
	s.keeper.forget(info.Run)
	s.hub.Drop(info.Run, ErrDeleted)
	s.alone.Drop(info.Run, ErrDeleted)
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, th := range t.byID {
		if info.Thread == "" || id == info.Thread {
			th.delete(info.Run)
		}
	}
}

// delete takes a run out of the thread and wakes the sessions that stand at its end.
func (th *thread) delete(run stream.RunID) {
	th.forget(run)
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.gone == nil {
		th.gone = map[stream.RunID]bool{}
	}
	if len(th.gone) < maxErased {
		th.gone[run] = true
	}
	th.change()
}

func (th *thread) isGone(run stream.RunID) bool {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.gone[run]
}
