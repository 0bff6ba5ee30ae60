package backfill

import (
	"context"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// sketch is what of a run decides whether another goes on from it. It takes no fold, and so nothing of what was before
// the run.
type sketch struct {
	thread stream.ThreadID
	start  stream.ID // zero where the run isn't there or hasn't started
	end    stream.ID // of its terminal event; zero while it runs
	// newest is the run's newest entry; zero where it isn't known.
	newest stream.Cursor
	// rough says that end is of the newest entry, a terminal event, before which there may be another one.
	rough bool
}

// before says whether the run started before st.
func (k *sketch) before(st start) bool { return !k.start.IsZero() && k.start.Less(st.id) }

// endedBy says whether the run had ended when st was written.
func (k *sketch) endedBy(st start) bool { return !k.end.IsZero() && k.end.Ms <= st.id.Ms }

// sketch looks at a run, once.
func (a *ancestry) sketch(ctx context.Context, run stream.RunID) (*sketch, error) {
	if k := a.sketches[run]; k != nil {
		return k, nil
	}
	k, err := a.draw(ctx, run)
	if err != nil {
		return nil, err
	}
	a.sketches[run] = k
	return k, nil
}

// exactly looks at a run again, with nothing rough about it.
func (a *ancestry) exactly(ctx context.Context, run stream.RunID) (*sketch, error) {
	k, err := a.read(ctx, run)
	if err != nil {
		return nil, err
	}
	if rough := a.sketches[run]; rough != nil {
		k.newest = rough.newest
	}
	a.sketches[run] = k
	return k, nil
}

// draw sketches a run from its first and its newest entry, where these are what they should be.
func (a *ancestry) draw(ctx context.Context, run stream.RunID) (*sketch, error) {
	if p := a.pasts.get(run); p != nil {
		lost, err := a.lostEnd(ctx, p)
		if err != nil {
			return nil, err
		}
		if !lost {
			return &sketch{thread: p.thread, start: p.start, end: p.end}, nil
		}
		a.lost()
	}
	bounds, err := a.log.Bounds(ctx, run)
	if err != nil {
		return nil, err
	}
	first, last := bounds[0].First, bounds[0].Last
	if first.ID.IsZero() { // or of another type: it isn't there
		return &sketch{}, nil
	}
	newest := stream.Cursor{Entry: last.ID, Sum: stream.Checksum(last.Event)}
	if first.ID.Less(last.ID) && a.isEnd(last) {
		if st, ok, err := a.startOf(ctx, run, []stream.Entry{first}); ok || err != nil {
			return &sketch{thread: st.thread, start: st.id, end: last.ID, newest: newest, rough: true}, err
		}
	}
	k, err := a.read(ctx, run)
	if err != nil {
		return nil, err
	}
	k.newest = newest
	return k, nil
}

// lostEnd says whether a cached run has lost its end since, by a failover or a restart. One that is gone as a whole has
// expired: what it left holds.
func (s *Service) lostEnd(ctx context.Context, p *past) (bool, error) {
	page, err := s.log.Range(ctx, p.run, p.end, 1, 1)
	if err != nil || page.Anchor != stream.AnchorMissing {
		return false, err
	}
	bounds, err := s.log.Bounds(ctx, p.run)
	return err == nil && !bounds[0].Last.ID.IsZero(), err
}

// isEnd says whether an entry behind a run's start ends the run, if none before it has.
func (s *Service) isEnd(en stream.Entry) bool {
	var e agui.Event
	return len(en.Event) <= s.config.MaxEvent && e.Parse(en.Event) == nil && (e.Type == agui.RunFinished || e.Type == agui.RunError)
}

// read sketches a run by reading it up to its end.
func (a *ancestry) read(ctx context.Context, run stream.RunID) (*sketch, error) {
	k, r := &sketch{}, agui.NewRun(nil, a.config.agui())
	begun := func(st start) (bool, error) {
		k.thread, k.start = st.thread, st.id
		return true, nil
	}
	err := a.replay(ctx, run, begun, func(en stream.Entry) bool {
		if r.Apply(agui.Entry{At: position(en.ID), Event: en.Event, Input: en.Input, NoEvent: en.NoEvent}).End {
			k.end = en.ID
		}
		return k.end.IsZero()
	})
	if err == nil && k.start.IsZero() {
		return a.readTrimmed(ctx, run)
	}
	return k, err
}

// readTrimmed is read for a run whose first entries were trimmed.
func (a *ancestry) readTrimmed(ctx context.Context, run stream.RunID) (*sketch, error) {
	m, err := a.takeUp(ctx, run)
	if err != nil || m == nil {
		return &sketch{}, err
	}
	k := &sketch{thread: m.thread, start: m.start, end: m.end}
	if !k.end.IsZero() {
		return k, nil
	}
	err = a.goOn(ctx, m, func(en stream.Entry) bool {
		if m.run.Apply(agui.Entry{At: position(en.ID), Event: en.Event, Input: en.Input, NoEvent: en.NoEvent}).End {
			k.end = en.ID
		}
		return k.end.IsZero()
	})
	return k, err
}
