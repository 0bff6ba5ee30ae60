package backfill

import (
	"context"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// replay reads a run again from its first entry, with an admission of its own.
type replay struct {
	service *Service
	id      stream.RunID
	run     *agui.Run
	cursor  stream.Cursor // of the newest entry read
	after   stream.Cursor // what comes up to it is left out
	met     bool          // after was read and is the same entry as ever
	start   stream.ID     // of the run as of when the replay began: what comes before it is left out, too
}

func newReplay(s *Service, id stream.RunID) *replay {
	return &replay{service: s, id: id, run: agui.NewRun(nil, s.config.agui())}
}

// replayOf makes a replay that judges a feed's run as the feed does.
func replayOf(s *Service, feed *hub.Feed) *replay {
	r := &replay{service: s, id: feed.Run()}
	m := feed.Machine().(*machine)
	feed.With(func(stream.ID) { r.run, r.start = agui.NewRun(m.run.Base(), s.config.agui()), m.start })
	return r
}

// page returns the next deliveries.
func (r *replay) page(ctx context.Context) (out []*hub.Delivery, more bool, err error) {
	page, err := r.service.log.Range(ctx, r.id, r.cursor.Entry, historyEntries, historyBytes)
	if err != nil {
		return nil, false, err
	}
	if page.Anchor == stream.AnchorMissing {
		return nil, false, hub.ErrLost
	}
	if r.cursor.Entry.IsZero() && len(page.Entries) > 0 {
		if begun, err := r.beginTrimmed(ctx, page.Entries[0]); begun || err != nil {
			return nil, true, err
		}
	}
	for _, en := range page.Entries {
		v := r.run.Apply(agui.Entry{At: position(en.ID), Event: en.Event, Input: en.Input, NoEvent: en.NoEvent})
		r.cursor = stream.Cursor{Entry: en.ID, Sum: stream.Checksum(en.Event)}
		if v.Restart && !r.start.Less(en.ID) {
			v.Restart = false // nothing before it was sent
		}
		r.met = r.met || (en.ID == r.after.Entry && r.cursor.Sum == r.after.Sum)
		if !r.after.Entry.Less(en.ID) {
			continue
		}
		if !r.met && !r.after.Entry.IsZero() {
			return nil, false, hub.ErrLost // it went after the cursor was looked at
		}
		if !en.ID.Less(r.start) {
			out = append(out, deliver(en.ID, r.cursor, v))
		}
	}
	if !page.More && !r.reached() {
		return nil, false, hub.ErrLost // it was there when the cursor was looked at
	}
	return out, page.More, nil
}

// reached says whether what comes next is behind the cursor that the replay continues from: until then a ring must not
// take over, which would send again what comes up to it.
func (r *replay) reached() bool { return r.met || r.after.Entry.IsZero() }

// openFromStart sends the run's own events from the first entry, adjacent deltas of one item joined, then goes live. Where
// that was trimmed it fails with ErrTrimmed.
func (ses *Session) openFromStart(ctx context.Context) ([]Item, error) {
	first, err := ses.service.log.Range(ctx, ses.current.run, stream.ID{}, 1, 1)
	if err != nil {
		return nil, err
	}
	if len(first.Entries) > 0 {
		missing, err := ses.service.incomplete(ctx, ses.current.run, first.Entries[0])
		if err != nil {
			return nil, err
		}
		if missing {
			return nil, ErrTrimmed
		}
	}
	rep := replayOf(ses.service, ses.feed)
	var full bool
	ses.feed.With(func(stream.ID) {
		full = ses.machine.run.Full()
		ses.current.start, ses.current.parent = ses.machine.start, ses.machine.parent
	})
	ses.step = func(ctx context.Context) ([]Item, error) { return ses.replayPage(ctx, rep) }
	return []Item{ses.attachedItem(full), catchup(modeEvents, "")}, nil
}

// replayPage sends one page, until the feed's ring takes over.
func (ses *Session) replayPage(ctx context.Context, rep *replay) ([]Item, error) {
	if rep.run.Ended() { // nothing that comes after is sent
		ses.at = rep.cursor
		items := ses.room.items[:0]
		items = append(items, live(ses.place(ses.at), 0), ses.end())
		ses.room.items = items
		return items, nil
	}
	if c := rep.cursor.Entry; rep.reached() && !c.IsZero() && !c.Less(rep.start) {
		sub, ok, err := ses.feed.JoinAfter(rep.cursor.Entry)
		if err != nil {
			return nil, err
		}
		if ok {
			return ses.replayEnds(rep, sub)
		}
	}
	entries, _, err := rep.page(ctx)
	if err != nil {
		return nil, err
	}
	items, last := ses.replayed(rep, entries)
	ses.room.items = items
	if last != nil && last.Restart {
		return ses.restarted(last.Cursor)
	}
	return items, nil
}

// replayEnds closes the bracket behind what the ring holds.
func (ses *Session) replayEnds(rep *replay, sub *hub.Subscriber) ([]Item, error) {
	ses.sub, ses.step, ses.at = sub, ses.follow, rep.cursor
	over := false
	items := ses.room.items[:0]
	if queue, _ := sub.TryNext(ses.room.queue); len(queue) > 0 { // its error comes again
		var last *hub.Delivery
		items, last = ses.replayed(rep, queue)
		ses.room.queue, ses.at, over = queue, last.Cursor, last.End
		if last.Restart {
			ses.room.items = items
			return ses.restarted(last.Cursor)
		}
	}
	items = append(items, live(ses.place(ses.at), 0))
	if over {
		items = append(items, ses.end())
	}
	ses.room.items = items
	return items, nil
}

// replayed makes items of deliveries up to a restart, which isn't among them, or the end. last is the last one that was
// looked at.
func (ses *Session) replayed(rep *replay, deliveries []*hub.Delivery) (items []Item, last *hub.Delivery) {
	items = ses.room.items[:0]
	for _, last = range deliveries {
		if last.Restart {
			break
		}
		items = append(items, Item{Delivery: ses.sight().delivery(last), Cursor: ses.place(last.Cursor)})
		if last.End {
			break
		}
	}
	if rep.after.Entry.IsZero() {
		items = joinDeltas(items)
	}
	return items, last
}

// joinDeltas makes one event of adjacent deltas of one item.
func joinDeltas(items []Item) []Item {
	var j agui.Joiner
	out := items[:0]
	var held Item
	flush := func() {
		if n, event := j.Take(); n > 1 {
			out = append(out, Item{Event: event, Cursor: held.Cursor})
		} else if n == 1 {
			out = append(out, held)
		}
	}
	for _, it := range items {
		plain := it.Delivery != nil && len(it.Delivery.Events) == 1 && it.Delivery.Reason == ""
		if plain && j.Add(it.Delivery.Events[0]) {
			held = it
			continue
		}
		flush()
		if plain && j.Add(it.Delivery.Events[0]) {
			held = it
			continue
		}
		out = append(out, it)
	}
	flush()
	return out
}
