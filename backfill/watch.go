package backfill

import (
	"context"
	"errors"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Watch begins a session that gives a run's own events from its first entry on, each as it was published, and then goes
// on live: for whoever started the run, and holds what came before it. Next waits for the run as after Attach; where the
// reader is slow it goes back to the log. grant is as in Request.
func (s *Service) Watch(run stream.RunID, grant *auth.Grant) *Session {
	ses := &Session{service: s, request: Request{Run: run, Grant: grant}}
	ses.current.run = run
	w := &watch{Session: ses}
	ses.step = w.open
	return ses
}

// watch is a session that never gets anything but the run's entries.
type watch struct {
	*Session
	replay *replay
	last   stream.ID // of the entry that was given last
}

func (w *watch) open(ctx context.Context) ([]Item, error) {
	if err := w.enter(ctx); err != nil {
		return nil, err
	}
	w.replay = replayOf(w.service, w.feed)
	w.step = w.page
	return nil, nil
}

// page gives one page of the past, until the feed's ring takes over.
func (w *watch) page(ctx context.Context) ([]Item, error) {
	if !w.replay.cursor.Entry.Less(w.last) {
		sub, ok, err := w.feed.JoinAfter(w.replay.cursor.Entry)
		if err != nil {
			return nil, err
		}
		if ok {
			if w.sub = sub; w.replay.run.Ended() {
				w.step = w.over
			} else {
				w.step = w.follow
			}
			return nil, nil
		}
	}
	entries, _, err := w.replay.page(ctx)
	if err != nil {
		return nil, err
	}
	items := w.room.items[:0]
	for _, d := range entries {
		if w.last.Less(d.ID) {
			items = append(items, Item{Delivery: w.sight().delivery(d), Cursor: w.place(d.Cursor)})
			w.last = d.ID
		}
	}
	w.room.items = items
	return items, nil
}

// follow hands on what comes, and goes back to the log when the reader lags.
func (w *watch) follow(ctx context.Context) ([]Item, error) {
	items, err := w.Session.follow(ctx)
	if errors.Is(err, hub.ErrLagged) {
		w.sub.Close()
		w.sub, w.step = nil, w.page
		return nil, nil
	}
	for _, it := range items {
		if it.Delivery != nil {
			w.last = it.Delivery.ID
		}
	}
	return items, err
}
