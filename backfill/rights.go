package backfill

import (
	"context"
	"fmt"
	"time"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/stream"
)

// ErrForeign says that a run is of a thread that the grant doesn't name. It looks as if the run were unknown.
var ErrForeign = fmt.Errorf("%w: of another thread", ErrUnknownRun)

// admitted decides, once the current run has begun, what of it the subscriber may see: nothing where neither it nor its
// thread is named, and then it takes as long as if there were no such run; it alone where only it is named.
func (ses *Session) admitted(ctx context.Context) error {
	var thread stream.ThreadID
	ses.feed.With(func(stream.ID) { thread = ses.machine.thread })
	g := ses.request.Grant
	foreign := ses.request.Head != "" && ses.current.run == ses.request.Head && thread != ses.thread.id
	switch {
	case g == nil || g.Open():
		if foreign {
			return ErrUnknownRun
		}
		return nil
	case foreign || !ses.alone && !g.Sees(string(ses.current.run), string(thread)):
		if err := sleep(ctx, time.Until(ses.giveUp)); err != nil {
			return err
		}
		return ErrForeign
	case ses.alone || g.NamesThread(string(thread)):
		return nil
	}
	ses.leaveRun()
	ses.alone = true
	if err := ses.take(ses.service.alone); err != nil {
		return err
	}
	return ses.enter(ctx)
}

// Reach says whether a grant reaches a run, by its own name or by its thread's. It fails with ErrForeign, and with
// ErrUnknownRun where the run isn't named and has no entry.
func (s *Service) Reach(ctx context.Context, g *auth.Grant, run stream.RunID) error {
	if g.NamesRun(string(run)) {
		return nil
	}
	thread, err := s.ThreadOf(ctx, run)
	if err != nil {
		return err
	}
	if !g.NamesThread(string(thread)) {
		return ErrForeign
	}
	return nil
}
