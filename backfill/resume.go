package backfill

import (
	"context"
	"errors"

	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Reasons of a reset: docs/contract.md, section 3.
const (
	resetTrimmed    = "trimmed"
	resetLost       = "lost"
	resetGeneration = "generation"
	resetAhead      = "ahead"
	resetRestarted  = "restarted"
	resetMalformed  = "malformed"
)

// Bounds of a catch-up by events: docs/contract.md, section 2.
const (
	maxMissed      = 1000
	maxMissedBytes = 256 << 10
)

// threadRun is the run of the thread that the request's cursor belongs to, where there is one.
func (ses *Session) threadRun(ctx context.Context) (threadRun, bool) {
	c, err := stream.ParseCursor(ses.request.After)
	if err != nil || !c.HasRun {
		return threadRun{}, false
	}
	if r, ok := ses.thread.byHash(c.Run); ok {
		return r, ses.there(ctx, r.run)
	}
	runs, err := ses.service.registry.Thread(ctx, ses.thread.id, threadLimit)
	if err != nil {
		return threadRun{}, false
	}
	for _, r := range runs {
		if stream.HashRun(r.Run) == c.Run {
			return threadRun{run: r.Run}, ses.there(ctx, r.Run)
		}
	}
	return threadRun{}, false
}

// there says whether a run of the thread, which had begun, still has entries, as far as can be told: one that has expired
// isn't waited for.
func (ses *Session) there(ctx context.Context, run stream.RunID) bool {
	bounds, err := ses.service.log.Bounds(ctx, run)
	return err != nil || !bounds[0].Last.ID.IsZero()
}

// resume continues from the request's cursor, or resets where that can't be done.
func (ses *Session) resume(ctx context.Context) ([]Item, error) {
	c, err := stream.ParseCursor(ses.request.After)
	switch {
	case err != nil, ses.thread != nil && !c.HasRun:
		return ses.reset(ctx, resetMalformed)
	case c.HasRun && c.Run != stream.HashRun(ses.current.run):
		return ses.reset(ctx, resetLost) // of a run that isn't there any more
	}
	reason, err := ses.verify(ctx, c)
	if err != nil {
		return nil, err
	}
	if reason != "" {
		return ses.reset(ctx, reason)
	}
	// Another hub may have been ahead of this one.
	var here stream.ID
	err = ses.feed.Wait(ctx, func() bool { here = ses.machine.cursor.Entry; return !here.Less(c.Entry) })
	if err != nil {
		return nil, err
	}
	before, restarted, unbegun := false, false, false
	ses.feed.With(func(stream.ID) {
		m := ses.machine
		before, restarted = c.Entry.Less(m.start), m.restarted
		unbegun = m.start.IsZero() && (m.end.IsZero() || c.Entry.Less(m.end))
	})
	switch {
	case unbegun:
		return ses.withoutStart(ctx, c)
	case before && restarted:
		return ses.reset(ctx, resetRestarted)
	case before:
		return ses.beforeStart(ctx)
	}
	return ses.continueFrom(ctx, c, ses.request.Catchup)
}

// beforeStart attaches one whose cursor lies before the run's start, as this hub knows it. Where an agent trimmed what was
// before, the start may be one with which the run began anew, and the subscriber holds what another hub had made of that.
func (ses *Session) beforeStart(ctx context.Context) ([]Item, error) {
	switch missing, err := ses.incomplete(ctx); {
	case err != nil:
		return nil, err
	case missing:
		return ses.reset(ctx, resetRestarted)
	}
	return ses.restate(nil, modeFresh) // nothing of the run had been sent
}

// withoutStart attaches one whose cursor is of a run that, as this hub knows it, hasn't begun. Where an agent trimmed the
// start, nothing behind the cursor can be sent here, and the subscriber may hold what another hub had made of the run.
func (ses *Session) withoutStart(ctx context.Context, c stream.Cursor) ([]Item, error) {
	missing, err := ses.incomplete(ctx)
	switch {
	case err != nil:
		return nil, err
	case missing:
		return ses.reset(ctx, resetTrimmed)
	}
	return ses.continueFrom(ctx, c, ses.request.Catchup)
}

// incomplete says whether entries are missing before the current run's first one.
func (ses *Session) incomplete(ctx context.Context) (bool, error) {
	first, err := ses.service.log.Range(ctx, ses.current.run, stream.ID{}, 1, 1)
	if err != nil || len(first.Entries) == 0 {
		return false, err
	}
	return ses.service.incomplete(ctx, ses.current.run, first.Entries[0])
}

// verify says why a cursor can't be continued, "" where it can: its entry must still be there and be the same.
func (ses *Session) verify(ctx context.Context, c stream.Cursor) (reason string, err error) {
	known := false
	ses.feed.With(func(stream.ID) { known = ses.machine.cursor.Entry == c.Entry && ses.machine.cursor.Sum == c.Sum })
	if known {
		return "", nil
	}
	page, err := ses.service.log.Range(ctx, ses.current.run, c.Entry, 1, 1)
	if err != nil {
		return "", err
	}
	if page.Anchor == stream.AnchorHeld {
		if page.AnchorSum != c.Sum {
			return resetGeneration, nil
		}
		return "", nil
	}
	bounds, err := ses.service.log.Bounds(ctx, ses.current.run)
	if err != nil {
		return "", err
	}
	switch b := bounds[0]; {
	case b.Last.ID.Less(c.Entry):
		return resetAhead, nil
	case c.Entry.Less(b.First.ID):
		return resetTrimmed, nil
	}
	return resetLost, nil
}

// reset says that the cursor can't be continued and attaches afresh.
func (ses *Session) reset(ctx context.Context, reason string) ([]Item, error) {
	requested := ses.request.After
	if len(requested) > maxCursor {
		requested = requested[:maxCursor]
	}
	var left stream.Bounds
	if bounds, err := ses.service.log.Bounds(ctx, ses.current.run); err == nil {
		left = bounds[0]
	}
	line := ses.resetLine(reason, requested, left)
	items, err := ses.restate([]Item{line}, modeFresh)
	if err != nil {
		return nil, err // it is said when this is tried again
	}
	ses.service.countReset(reason)
	ses.request.After = ""
	return items, nil
}

// maxCursor is the longest cursor that there is, in bytes.
const maxCursor = 200

// continueFrom brings the subscriber on from c in the current run.
func (ses *Session) continueFrom(ctx context.Context, c stream.Cursor, how Catchup) ([]Item, error) {
	j, err := ses.join(c.Entry)
	if err != nil {
		return nil, err
	}
	items := ses.room.items[:0]
	if c.Entry.Less(ses.current.start) { // since it was looked at
		ses.room.items = items
		return ses.restarted(j.cursor)
	}
	next, later := threadRun{}, false
	if ses.thread != nil && j.view.Ended {
		next, later, _ = ses.thread.after(ses.current, ses.request.Head != "")
	}
	byEvents := byEvents(how, j)
	if !ses.attached {
		items = append(items, ses.attachedItem(j.view.Full))
	}
	from := ses.place(c).String()
	atEnd := j.view.Ended && !c.Entry.Less(j.end) // what comes after the end is never sent
	if (atEnd || j.cursor.Entry == c.Entry) && (!later || byEvents) {
		mode := modeSnapshot
		if how != CatchupSnapshot {
			mode = modeEvents
		}
		items = append(items, catchup(mode, from), live(ses.place(j.cursor), 0))
		return ses.goLive(items, j), nil
	}
	if byEvents {
		if !j.covered {
			return ses.replayFrom(append(items, catchup(modeEvents, from)), c), nil
		}
		return ses.missed(append(items, catchup(modeEvents, from)), j), nil
	}
	if later {
		return ses.overRuns(ctx, append(items, catchup(modeSnapshot, from)), j, c, next)
	}
	p, ok := j.view.CatchUp(position(c.Entry))
	if !ok {
		return ses.replayFrom(append(items, catchup(modeEvents, from)), c), nil
	}
	items = events(append(items, catchup(modeSnapshot, from)), p.Closings)
	return ses.closeBracket(items, p, j), nil
}

// byEvents decides whether the missed events themselves are sent. Where the history isn't known a snapshot could drop
// what the client added itself, so there they are as long as they exist.
func byEvents(how Catchup, j joined) bool {
	if how == CatchupOnly || !j.view.Full {
		return true
	}
	if how != CatchupEvents && how != CatchupAuto || !j.covered || len(j.missed) > maxMissed {
		return false
	}
	size := 0
	for _, d := range j.missed {
		for _, e := range d.Events {
			size += len(e)
		}
	}
	if how == CatchupAuto {
		return size <= j.view.Size()
	}
	return size <= maxMissedBytes
}

// missed sends the missed events out of the ring.
func (ses *Session) missed(items []Item, j joined) []Item {
	for _, d := range j.missed {
		items = append(items, Item{Delivery: ses.sight().delivery(d), Cursor: ses.place(d.Cursor)})
		if d.End {
			break
		}
	}
	return ses.goLive(append(items, live(ses.place(j.cursor), 0)), j)
}

// replayFrom sends the events after c by pages of the stream, until the ring takes over. The bracket is open.
func (ses *Session) replayFrom(items []Item, c stream.Cursor) []Item {
	ses.sub.Close()
	ses.sub = nil
	rep := replayOf(ses.service, ses.feed)
	rep.after = c
	ses.step = func(ctx context.Context) ([]Item, error) { return ses.replayPage(ctx, rep) }
	return items
}

// overRuns goes over the end of a run that the subscriber had in part to the thread's newest: what was open is closed,
// the run's terminal event is sent if it was missed, and the newest run's restatement holds all the rest.
func (ses *Session) overRuns(ctx context.Context, items []Item, j joined, c stream.Cursor, next threadRun) ([]Item, error) {
	closings, ok := j.view.ClosingsSince(position(c.Entry))
	if !ok {
		return ses.replayFrom(append(items[:len(items)-1], catchup(modeEvents, ses.place(c).String())), c), nil
	}
	if c.Entry.Less(j.end) {
		items = events(items, closings, j.view.Preamble().Terminal)
	}
	ses.held = j.view.Holder(position(c.Entry))
	_, ses.finished = j.view.LastFinish()
	for {
		after, ok, _ := ses.thread.after(next, ses.request.Head != "")
		if !ok {
			break
		}
		// Runs in between are in the snapshot. What they dropped isn't known here.
		next, ses.held.Unsure = after, true
	}
	before := ses.current
	ses.current = next
	ses.step = func(ctx context.Context) ([]Item, error) { return ses.enterOver(ctx, items, before, j) }
	return ses.enterOver(ctx, items, before, j)
}

// enterOver restates the current run inside the bracket that items have opened. j is where the run before stands, which has
// ended.
func (ses *Session) enterOver(ctx context.Context, items []Item, before threadRun, j joined) ([]Item, error) {
	if err := ses.enter(ctx); err != nil {
		if !errors.Is(err, ErrUnknownRun) && !errors.Is(err, hub.ErrLost) {
			return nil, err
		}
		// It isn't there any more: the bracket ends with the run before.
		ses.current, ses.at, ses.endAt = before, j.cursor, j.end
		ses.step = ses.vanished
		return append(items, live(ses.place(j.cursor), 0), ended(before.run)), nil
	}
	ses.feed.With(func(stream.ID) {
		if ses.machine.parent != before.run {
			ses.held.Unsure = true
		}
	})
	return ses.restate(items, modeSnapshot)
}

// catchUpAfterLag brings a subscriber on whose queue was dropped: once, and again only after that was taken.
func (ses *Session) catchUpAfterLag() ([]Item, error) {
	if ses.lagged {
		return nil, hub.ErrLagged
	}
	ses.lagged = true
	j, err := ses.join(ses.at.Entry)
	if err != nil {
		return nil, err
	}
	items := ses.room.items[:0]
	switch {
	case ses.restartedSince():
		ses.room.items = items
		return ses.restarted(j.cursor)
	case ses.at.Entry.Less(ses.current.start):
		return ses.restate(nil, modeSnapshot) // nothing of the run was sent
	}
	from := ses.place(ses.at).String()
	p, ok := j.view.CatchUp(position(ses.at.Entry))
	if !j.view.Full || !ok {
		return ses.replayFrom(append(items, catchup(modeEvents, from)), ses.at), nil
	}
	items = events(append(items, catchup(modeSnapshot, from)), p.Closings)
	return ses.closeBracket(items, p, j), nil
}

// restartedSince says whether the run began anew after what the subscriber has.
func (ses *Session) restartedSince() (restarted bool) {
	ses.feed.With(func(stream.ID) { restarted = ses.machine.restarted && ses.at.Entry.Less(ses.machine.start) })
	return restarted
}
