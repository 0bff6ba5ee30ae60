package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Request is what a subscriber asks for. Exactly one of Run and Thread is set.
type Request struct {
	Run    stream.RunID
	Thread stream.ThreadID
	// Head follows this run's branch of the thread.
	Head stream.RunID
	// After is the cursor to continue from, as it came; "" attaches afresh.
	After string
	// Catchup is how to bring a subscriber on who continues; "" is by snapshot.
	Catchup Catchup
	// FromStart sends the run's own events from the first entry instead of snapshots.
	FromStart bool
	// Raw adds RAW events to what a preamble repeats.
	Raw bool
	// Skips has the entries told of a run that none of them has begun, as they come, before anything else is.
	Skips bool
	// Grant is what the subscriber may see; nil where that is everything. Whether it may attach at all, and to a thread,
	// has been decided.
	Grant *auth.Grant
}

// Catchup is a way to bring a subscriber on.
type Catchup string

// The ways: docs/contract.md, section 2.
const (
	CatchupSnapshot Catchup = "snapshot" // by snapshots
	CatchupEvents   Catchup = "events"   // by the missed events while they are few, else by snapshots
	CatchupAuto     Catchup = "auto"     // by the smaller of the two
	CatchupOnly     Catchup = "only"     // by the missed events, however many (SSE)
)

// Session is one attach. Its methods are for one goroutine, but for Close.
type Session struct {
	service *Service
	request Request
	step    func(context.Context) ([]Item, error) // what Next does next
	// giveUp is when the wait for the current run, unknown yet, is over.
	giveUp time.Time

	thread  *thread // nil for a run
	release func()  // of the thread
	current threadRun
	// held is what the subscriber holds of the run before.
	held     agui.Holder
	attached bool
	told     int           // how many entries the current run had when it was told that none of them begins it
	at       stream.Cursor // of the current run: the newest entry that the subscriber has or was told is covered
	lagged   bool          // what was returned last was a catch-up after lag, which may not be written yet
	endAt    stream.ID     // of the run that has ended: its terminal event
	watched  *endWatch     // while the session waits between two runs of its thread
	finished []byte        // the RUN_FINISHED that the subscriber's pending interrupts come from, as far as is known

	// alone says that the subscriber sees the run, but nothing of its thread: then its feed is one that knows of no thread.
	alone   bool
	feed    *hub.Feed
	machine *machine
	// releaseFeed gives the feed back to its hub.
	releaseFeed func()
	sub         *hub.Subscriber
	room        Room
	waited      bool   // for the live tail since the past was handed out
	wake        func() // while Poll is called

	clock   clock
	tailing bool // what Next returns came out of the live tail
	live    bool // the live tail is all that there is to wait for
}

// Room is memory for what a call of a session returns, which is good until the next call with the same room. The zero Room is ready.
type Room struct {
	queue []*hub.Delivery
	items []Item
}

// Attach begins a session. It does no I/O but for a thread's list of runs.
func (s *Service) Attach(ctx context.Context, r Request) (*Session, error) {
	if r.Catchup == "" {
		r.Catchup = CatchupSnapshot
	}
	ses := &Session{service: s, request: r, clock: clock{began: time.Now()}}
	if r.Thread == "" {
		ses.current.run = r.Run
		ses.step = ses.openRun
		return ses, nil
	}
	th, release, err := s.threads.open(ctx, r.Thread)
	if err != nil {
		s.countFailure(err)
		return nil, err
	}
	ses.thread, ses.release = th, release
	ses.step = ses.opening()
	return ses, nil
}

// Next returns the next items, waiting for them. The slice is good until the next call. When ctx ends it returns
// ctx's error and nothing is lost: it may be called again with another. At the end of a run it returns io.EOF; else
// why the session can't go on: ErrUnknownRun, ErrTooLarge, hub.ErrLagged, hub.ErrClosed, stream.ErrWrongType,
// or stream.ErrUnavailable where the run couldn't be read for as long as one waits for it.
func (ses *Session) Next(ctx context.Context) ([]Item, error) {
	for {
		ses.tailing, ses.live = false, false
		items, err := ses.step(ctx)
		if errors.Is(err, hub.ErrLost) {
			items, err = ses.lost(ctx)
		}
		if len(items) > 0 || err != nil {
			if !ses.tailing && !errors.Is(err, ErrIdle) {
				ses.count(items, err)
			}
			return items, err
		}
	}
}

// ErrIdle says that there is nothing yet.
var ErrIdle = errors.New("backfill: nothing yet")

// Poll is Next for a caller that doesn't wait for the live tail, nor for a thread's next run. Where there is nothing yet it
// returns ErrIdle, and wake is called when there may be, from the goroutine that has it: it must not wait for anything. What
// else Next waits for, as for an answer of Redis, Poll waits for, too.
func (ses *Session) Poll(ctx context.Context, wake func()) ([]Item, error) {
	ses.wake = wake
	defer func() { ses.wake = nil }()
	return ses.Next(ctx)
}

// Tail returns the entries that are queued in the live tail, and has wake called once when there are more. It waits for
// nothing. ok is false where it isn't as simple: then nothing was taken, and Poll is to be called.
func (ses *Session) Tail(room *Room, wake func()) (items []Item, ok bool) {
	if !ses.live {
		return nil, false
	}
	if room.queue, ok = ses.sub.TakePlain(room.queue[:0], wake); !ok {
		return nil, false
	}
	items = ses.handOn(room)
	if !ses.live { // the run's end is among them, and something comes behind it
		wake()
	}
	return items, true
}

// Tailing says whether what Next returned last came out of the live tail: entries on their way for the first time.
func (ses *Session) Tailing() bool { return ses.tailing }

// MessageIDs are the ids of the messages that the session's run holds now, those that it started from included; nil
// before Next has returned something of a run.
func (ses *Session) MessageIDs() []string {
	if ses.feed == nil {
		return nil
	}
	var view *agui.View
	ses.feed.With(func(stream.ID) { view = ses.machine.run.View() })
	return view.MessageIDs()
}

// Close ends the session. It must not be called while Next runs.
func (ses *Session) Close() {
	ses.leaveRun()
	ses.unwatch()
	if ses.release != nil {
		ses.thread.leave(ses)
		ses.release()
	}
	ses.step = func(context.Context) ([]Item, error) { return nil, hub.ErrClosed }
}

func (ses *Session) sight() sight { return sightOf(ses.request.Grant) }

func (ses *Session) leaveRun() {
	if ses.sub != nil {
		ses.sub.Close()
		ses.sub = nil
	}
	if ses.feed != nil {
		ses.releaseFeed()
		ses.feed, ses.machine, ses.releaseFeed = nil, nil, nil
	}
}

// enter takes the current run's feed and waits until the run has started or, for a while, until it is known at all. It
// returns errUnbegun where entries came that don't begin it and the subscriber is to be told.
// When ctx ended it goes on where it was.
func (ses *Session) enter(ctx context.Context) error {
	if ses.feed == nil || ses.feed.Run() != ses.current.run {
		ses.leaveRun()
		ses.alone, ses.told, ses.giveUp = false, 0, time.Now().Add(ses.service.config.AttachWait)
		if err := ses.take(ses.service.hub); err != nil {
			return err
		}
	}
	wait, cancel := context.WithDeadline(ctx, ses.giveUp)
	defer cancel()
	there := false
	err := ses.feed.Wait(wait, func() bool {
		there = ses.machine.run.Started() || ses.machine.run.Ended()
		ses.clock.waited = ses.clock.waited || !there
		return there || ses.isToTell()
	})
	if err == nil && !there {
		return errUnbegun
	}
	if err == nil && ses.clock.waited && !ses.clock.began.IsZero() {
		ses.clock.began = time.Now() // what was waited for is somebody else's
	}
	switch {
	case errors.Is(err, hub.ErrLost): // of what there was before: nothing of it was sent
		ses.leaveRun()
		if err := sleep(ctx, lostRetry); err != nil {
			return err
		}
		return ses.enter(ctx)
	case err != nil && ctx.Err() != nil:
		return ctx.Err() // also where both have ended: the next call tells
	case err != nil && wait.Err() != nil:
		if !ses.feed.Loaded() {
			return fmt.Errorf("waiting for a run: %w", stream.ErrUnavailable)
		}
		return ses.unknown()
	case err != nil:
		return err
	}
	return ses.admitted(ctx)
}

// take takes the current run's feed.
func (ses *Session) take(from *hub.Hub) error {
	feed, err := from.Feed(ses.current.run)
	if err != nil {
		return err
	}
	ses.feed, ses.machine = feed, feed.Machine().(*machine)
	ses.releaseFeed = func() { from.Release(feed) }
	return nil
}

func (ses *Session) openRun(ctx context.Context) ([]Item, error) {
	err := ses.enter(ctx)
	switch {
	case errors.Is(err, errUnbegun):
		return ses.tellSkips(), nil
	case err != nil:
		return nil, err
	case ses.request.FromStart:
		return ses.openFromStart(ctx)
	case ses.request.After != "":
		return ses.resume(ctx)
	}
	return ses.restate(nil, modeFresh)
}

func (ses *Session) openThread(ctx context.Context) ([]Item, error) {
	if run, ok := ses.threadRun(ctx); ok {
		ses.current = run
	} else if head := ses.request.Head; head != "" {
		ses.current = threadRun{run: head}
	} else {
		r, ok, _ := ses.thread.newest()
		if !ok {
			ses.step = ses.awaitFirst
			ses.attached = true
			ses.clock.began = time.Time{} // there is nothing that it could be brought up to
			return append(ses.resetOfNothing(), attached("", ses.thread.id, true, ses.service.config.Name)), nil
		}
		return ses.openNewest(ctx, r)
	}
	return ses.openRun(ctx)
}

// openNewest opens the run of the thread that started last. Where it isn't there any more the session begins again.
func (ses *Session) openNewest(ctx context.Context, r threadRun) ([]Item, error) {
	ses.current = r
	items, err := ses.openRun(ctx)
	if !errors.Is(err, ErrUnknownRun) {
		return items, err
	}
	if err := ses.service.threads.renew(ctx, ses.thread); err != nil {
		return nil, err
	}
	if now, ok, _ := ses.thread.newest(); ok && now.run == r.run {
		return nil, err // it has entries, but none that begins it
	}
	return nil, nil
}

// resetOfNothing is the reset of a cursor on a thread that has no run.
func (ses *Session) resetOfNothing() []Item {
	requested := ses.request.After
	if requested == "" {
		return nil
	}
	reason := resetLost
	if c, err := stream.ParseCursor(requested); err != nil || !c.HasRun {
		reason = resetMalformed
	}
	ses.request.After = ""
	ses.service.countReset(reason)
	return []Item{ses.resetLine(reason, requested[:min(len(requested), maxCursor)], stream.Bounds{})}
}

// awaitFirst waits for a thread's first run.
func (ses *Session) awaitFirst(ctx context.Context) ([]Item, error) {
	r, ok, changed := ses.thread.newest()
	if !ok {
		_, err := ses.linger(ctx, changed, nil)
		return nil, err
	}
	return ses.openNewest(ctx, r)
}

func (ses *Session) attachedItem(full bool) Item {
	ses.attached = true
	var thread stream.ThreadID
	if ses.thread != nil {
		thread = ses.thread.id
	} else {
		ses.feed.With(func(stream.ID) { thread = ses.machine.thread })
	}
	return attached(ses.current.run, thread, full, ses.service.config.Name)
}

// place is a cursor of the current run as this session gives it.
func (ses *Session) place(c stream.Cursor) stream.Cursor {
	if ses.thread != nil && !c.Entry.IsZero() {
		c.Run, c.HasRun = stream.HashRun(ses.current.run), true
	}
	return c
}

func events(items []Item, lists ...[][]byte) []Item {
	for _, list := range lists {
		for _, e := range list {
			items = append(items, Item{Event: e})
		}
	}
	return items
}

// follow hands on what comes in the live tail.
func (ses *Session) follow(ctx context.Context) ([]Item, error) {
	if !ses.waited { // the past was written: its items are as many as it has events
		ses.room, ses.waited = Room{}, true
	}
	var err error
	ses.room.queue, err = ses.sub.TakeOrWake(ses.room.queue[:0], ses.wake)
	if len(ses.room.queue) == 0 && err == nil {
		ses.lagged = false // what it was caught up by is written
		if ses.wake != nil {
			ses.room, ses.live = Room{}, true
			return nil, ErrIdle
		}
		ses.room.queue, err = ses.sub.Next(ctx, ses.room.queue)
	}
	switch {
	case errors.Is(err, hub.ErrLagged):
		return ses.catchUpAfterLag()
	case err != nil:
		return nil, err
	}
	for i, d := range ses.room.queue {
		if d.Restart {
			ses.room.queue = ses.room.queue[:i]
			ses.room.items = ses.handOn(&ses.room)
			ses.tailing, ses.live = false, false
			return ses.restarted(d.Cursor)
		}
		if d.End {
			break
		}
	}
	return ses.handOn(&ses.room), nil
}

// handOn makes items of deliveries.
func (ses *Session) handOn(room *Room) []Item {
	ses.lagged, ses.tailing, ses.live = false, true, true
	items := room.items[:0]
	for _, d := range room.queue {
		if d.Note != nil {
			items = append(items, Item{Control: ControlStalled, Line: d.Note})
			continue
		}
		items = append(items, Item{Delivery: ses.sight().delivery(d), Cursor: ses.place(d.Cursor)})
		ses.at = d.Cursor
		if d.End {
			items = append(items, ses.end())
			break
		}
	}
	room.items = items
	return items
}

// end is the current run's end for the subscriber.
func (ses *Session) end() Item {
	ses.feed.With(func(stream.ID) {
		view := ses.sight().view(ses.machine.run.View())
		ses.held = view.Holder(position(ses.at.Entry))
		_, ses.finished = view.LastFinish()
		ses.endAt = ses.machine.end
	})
	ses.step, ses.live = ses.over, false
	return ended(ses.current.run)
}

// over comes after a run's end: a run's session ends, a thread's goes on with the next run.
func (ses *Session) over(ctx context.Context) ([]Item, error) {
	if ses.thread == nil {
		return nil, io.EOF
	}
	ses.leaveRun()
	next, ok, changed := ses.thread.after(ses.current, ses.request.Head != "")
	if ses.thread.isGone(ses.current.run) {
		return nil, ErrDeleted
	}
	if !ok {
		lost, err := ses.linger(ctx, changed, ses.watchEnd())
		if lost {
			return ses.endLost(ctx)
		}
		return nil, err
	}
	ses.unwatch()
	before := ses.current
	ses.current = next
	ses.step = func(ctx context.Context) ([]Item, error) { return ses.enterNext(ctx, before) }
	return nil, nil
}

// enterNext goes on with the current run, which started after before.
func (ses *Session) enterNext(ctx context.Context, before threadRun) ([]Item, error) {
	if err := ses.enter(ctx); err != nil {
		if errors.Is(err, ErrUnknownRun) || errors.Is(err, hub.ErrLost) {
			ses.current, ses.step = before, ses.vanished
			return nil, nil
		}
		return nil, err
	}
	if held, err := ses.holdsEnd(ctx, before); err != nil {
		return nil, err
	} else if !held {
		ses.leaveRun()
		ses.current = before
		return ses.endLost(ctx)
	}
	return ses.nextRun(before)
}

// nextRun goes on with the run after before. Where a watcher would hold the same, the subscriber simply watches it from
// its first entry; else the run is restated.
func (ses *Session) nextRun(before threadRun) ([]Item, error) {
	watch := false
	ses.feed.With(func(stream.ID) {
		m := ses.machine
		// Who doesn't see inputs gets the user's messages by a snapshot.
		watch = m.parent == before.run && !m.headless && (m.run.InputInEvent() && ses.sight() != seesVeiled || !m.run.InputKnown())
	})
	if !watch {
		return ses.restate(nil, modeSnapshot)
	}
	sub, ok, err := ses.feed.JoinAfter(stream.ID{})
	if err != nil {
		return nil, err
	}
	if !ok {
		return ses.restate(nil, modeSnapshot)
	}
	ses.sub, ses.step, ses.at = sub, ses.follow, stream.Cursor{}
	return nil, nil
}
