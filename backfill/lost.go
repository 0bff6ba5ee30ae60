package backfill

import (
	"context"
	"errors"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// lostRetry is the pause between two looks at what is left of a run while Redis can't tell.
const lostRetry = 200 * time.Millisecond

// lost goes on where entries vanished from under the session, by a failover, a restart, a trim or a deletion: what was
// sent doesn't hold any more, so it says so and attaches anew to what is there. While Redis can't tell what that is it
// waits.
func (ses *Session) lost(ctx context.Context) ([]Item, error) {
	ses.step = ses.lost
	if !ses.attached && ses.at.Entry.IsZero() { // nothing was sent
		ses.leaveRun()
		ses.step = ses.opening()
		return nil, nil
	}
	reason, bounds, err := ses.whyLost(ctx, ses.current.run)
	if err == nil && ses.thread != nil {
		err = ses.service.threads.renew(ctx, ses.thread)
	}
	if errors.Is(err, stream.ErrUnavailable) {
		return nil, sleep(ctx, lostRetry)
	}
	if err != nil {
		return nil, err
	}
	if reason == "" { // others are lost, which this hub had read
		reason = resetLost
	}
	requested := ses.request.After
	if !ses.at.Entry.IsZero() {
		requested = ses.place(ses.at).String()
	}
	line := ses.resetLine(reason, requested, bounds)
	ses.service.lost()
	ses.leaveRun()
	ses.at, ses.attached, ses.lagged = stream.Cursor{}, false, false
	ses.held, ses.finished = agui.Holder{}, nil
	ses.request.After = ""
	ses.step = ses.opening()
	ses.service.countReset(reason)
	return []Item{line}, nil
}

// opening is how the session begins.
func (ses *Session) opening() func(context.Context) ([]Item, error) {
	if ses.thread != nil {
		return ses.openThread
	}
	return ses.openRun
}

// vanished goes on at the end of a run whose next one was announced and isn't there any more: with another, or with the same
// should it come back.
func (ses *Session) vanished(ctx context.Context) ([]Item, error) {
	ses.service.losses.Add(1)
	err := ses.service.threads.renew(ctx, ses.thread)
	switch {
	case errors.Is(err, stream.ErrUnavailable):
		return nil, sleep(ctx, lostRetry)
	case err != nil:
		return nil, err
	}
	ses.step = ses.over
	return nil, nil
}

// whyLost says what became of the newest entry that the subscriber has, which is of this run, and what is left of the
// run. Where that entry is still there the reason is "".
func (ses *Session) whyLost(ctx context.Context, run stream.RunID) (reason string, left stream.Bounds, err error) {
	bounds, err := ses.service.log.Bounds(ctx, run)
	if err != nil {
		return "", left, err
	}
	left = bounds[0]
	if ses.at.Entry.IsZero() || left.Last.ID.IsZero() {
		return resetLost, left, nil
	}
	page, err := ses.service.log.Range(ctx, run, ses.at.Entry, 1, 1)
	if err != nil {
		return "", left, err
	}
	switch {
	case page.Anchor == stream.AnchorHeld && page.AnchorSum != ses.at.Sum:
		return resetGeneration, left, nil
	case page.Anchor == stream.AnchorHeld:
		return "", left, nil
	case left.Last.ID.Less(ses.at.Entry):
		return resetAhead, left, nil
	case ses.at.Entry.Less(left.First.ID):
		return resetTrimmed, left, nil
	}
	return resetLost, left, nil
}

// resetLine is the control line of a reset.
func (ses *Session) resetLine(reason, requested string, left stream.Bounds) Item {
	line := controlReset{Control: ControlReset, Reason: reason}
	if requested != "" {
		line.Requested = &requested
	}
	if !left.Last.ID.IsZero() {
		cursor := func(e stream.Entry) *string {
			s := ses.place(stream.Cursor{Entry: e.ID, Sum: stream.Checksum(e.Event)}).String()
			return &s
		}
		line.Earliest, line.Latest = cursor(left.First), cursor(left.Last)
	}
	return control(ControlReset, line)
}

// prune takes the runs out of the thread whose streams are gone.
func (th *thread) prune(ctx context.Context, log Log) error {
	th.mu.Lock()
	var runs []stream.RunID
	for _, r := range th.started[max(0, len(th.started)-newestRuns):] {
		runs = append(runs, r.run)
	}
	th.mu.Unlock()
	bounds, err := log.Bounds(ctx, runs...)
	if err != nil {
		return err
	}
	for i, b := range bounds {
		if b.Last.ID.IsZero() {
			th.forget(runs[i])
		}
	}
	return nil
}

// forget takes a run out of the thread whose stream is gone. Should it come back it is met anew.
func (th *thread) forget(run stream.RunID) {
	th.mu.Lock()
	defer th.mu.Unlock()
	delete(th.known, run)
	for i, r := range th.started {
		if r.run == run {
			th.started = append(th.started[:i:i], th.started[i+1:]...)
			return
		}
	}
}

// clear forgets all.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	clear(c.byRun)
	c.bytes = 0
}
