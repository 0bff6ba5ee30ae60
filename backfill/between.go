package backfill

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// endWatch tells a session that waits between two runs when the entry that it stands at is gone. It holds nothing of the
// run, whose feed the session has let go.
type endWatch struct {
	lost chan struct{} // closed when it is
	stop func()

	mu   sync.Mutex
	wake func() // called then, for a session that doesn't wait itself
}

// tell says that the entry is gone.
func (w *endWatch) tell() {
	close(w.lost)
	w.mu.Lock()
	wake := w.wake
	w.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// watchEnd returns what is closed when the newest entry that the subscriber has is gone; nil where it has none.
func (ses *Session) watchEnd() <-chan struct{} {
	if ses.at.Entry.IsZero() {
		return nil
	}
	if ses.watched == nil {
		w := &endWatch{lost: make(chan struct{})}
		w.stop = ses.service.log.Follow(ses.current.run, ses.at.Entry, func(b stream.Batch) {
			if errors.Is(b.Err, stream.ErrLost) { // which is told once
				w.tell()
			}
		})
		ses.watched = w
	}
	return ses.watched.lost
}

// linger waits until the session's thread changes, or until the entry that it stands at is lost.
func (ses *Session) linger(ctx context.Context, changed, gone <-chan struct{}) (lost bool, err error) {
	if ses.wake == nil {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-changed:
			return false, nil
		case <-gone:
			return true, nil
		}
	}
	if w := ses.watched; w != nil {
		w.mu.Lock()
		w.wake = ses.wake
		w.mu.Unlock()
	}
	select {
	case <-gone:
		return true, nil
	default:
	}
	if !ses.thread.onChange(ses, changed, ses.wake) {
		return false, nil
	}
	ses.room = Room{}
	return false, ErrIdle
}

func (ses *Session) unwatch() {
	if ses.watched != nil {
		ses.watched.stop()
		ses.watched = nil
	}
}

// endLost goes on where something was lost of the run that ended last. A run that has expired has lost nothing.
func (ses *Session) endLost(ctx context.Context) ([]Item, error) {
	ses.unwatch()
	ses.step = ses.endLost
	reason, left, err := ses.whyLost(ctx, ses.current.run)
	switch {
	case errors.Is(err, stream.ErrUnavailable):
		return nil, sleep(ctx, lostRetry)
	case err != nil:
		return nil, err
	case reason == "": // only what came behind, of which the subscriber has nothing
		ses.step = ses.over
		return nil, nil
	case !left.Last.ID.IsZero():
		return ses.lost(ctx)
	}
	switch {
	case ses.thread.isGone(ses.current.run):
		return nil, ErrDeleted
	case !ses.hasExpired():
		return ses.lost(ctx)
	}
	ses.at, ses.step = stream.Cursor{}, ses.over
	return nil, nil
}

// expirySlack is how far the clocks of Redis and a hub may be apart before an expiry is taken for a loss.
const expirySlack = 10 * time.Second

// hasExpired says whether a run that isn't there any more, and ended where the session stands, has been kept for as long
// as it should.
func (ses *Session) hasExpired() bool {
	end := time.UnixMilli(int64(ses.endAt.Ms)) //nolint:gosec // of this age
	return time.Since(end)+expirySlack >= ses.service.config.Retention
}

// holdsEnd says whether the run before the current one is still there as the subscriber has it. Where the current one
// goes on from it that was looked at already, once for all.
func (ses *Session) holdsEnd(ctx context.Context, before threadRun) (bool, error) {
	if ses.at.Entry.IsZero() {
		return true, nil
	}
	looked := false
	ses.feed.With(func(stream.ID) {
		m := ses.machine
		looked = m.parent == before.run && m.parentEnd == ses.endAt
	})
	if looked {
		return true, nil
	}
	reason, left, err := ses.whyLost(ctx, before.run)
	return reason == "" || left.Last.ID.IsZero() && ses.hasExpired(), err
}
