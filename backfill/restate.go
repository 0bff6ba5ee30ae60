package backfill

import (
	"bytes"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Modes of a bracket: docs/contract.md, section 3.
const (
	modeFresh    = "fresh"
	modeSnapshot = "snapshot"
	modeEvents   = "events"
)

// joined is where a session joined its run's feed.
type joined struct {
	view    *agui.View
	cursor  stream.Cursor   // of the newest entry
	missed  []*hub.Delivery // after the entry that was asked about
	covered bool            // missed is all of it
	end     stream.ID       // of the run; zero while it goes on
}

// join joins the current run's feed. after is the entry that the subscriber has.
func (ses *Session) join(after stream.ID) (j joined, err error) {
	sub, err := ses.feed.Join(after, func(_ stream.ID, missed []*hub.Delivery, covered bool) {
		m := ses.machine
		j = joined{view: m.run.View(), cursor: m.cursor, missed: missed, covered: covered, end: m.end}
		ses.current.start, ses.current.parent = m.start, m.parent
	})
	if err != nil {
		return joined{}, err
	}
	if ses.sub != nil {
		ses.sub.Close()
	}
	ses.sub = sub
	j.view = ses.sight().view(j.view)
	if j.view.Size() > ses.service.config.MaxConversation {
		return joined{}, ErrTooLarge
	}
	return j, nil
}

// restate joins the current run where it stands: the bracket with what is past, then the live tail. before are items
// that come ahead of it; where they have opened a bracket already this one goes on with it.
func (ses *Session) restate(before []Item, mode string) ([]Item, error) {
	j, err := ses.join(stream.ID{})
	if err != nil {
		return nil, err
	}
	items := before
	if before == nil {
		items = ses.room.items[:0]
	}
	if !ses.attached {
		items = append(items, ses.attachedItem(j.view.Full))
	}
	if !inBracket(before) {
		items = append(items, catchup(mode, ""))
	}
	p := j.view.Preamble()
	if mode != modeFresh {
		p = j.view.PreambleFor(ses.held)
		items = ses.lastFinish(items, j.view)
	} else if ses.thread != nil {
		items = events(items, p.Pending)
	}
	return ses.closeBracket(events(items, p.Start), p, j), nil
}

// inBracket says whether the items have opened a bracket.
func inBracket(items []Item) bool {
	open := false
	for _, it := range items {
		switch it.Control {
		case ControlCatchup:
			open = true
		case ControlLive:
			open = false
		}
	}
	return open
}

// lastFinish restates the newest RUN_FINISHED of the path where it is one that the subscriber missed and either had
// interrupts: a client's pending interrupts change at RUN_FINISHED only.
func (ses *Session) lastFinish(items []Item, view *agui.View) []Item {
	start, finish := view.LastFinishBefore()
	if finish == nil || bytes.Equal(finish, ses.finished) {
		return items
	}
	if !agui.Interrupts(finish) && !agui.Interrupts(ses.finished) {
		return items
	}
	return append(items, Item{Event: start}, Item{Event: finish})
}

// closeBracket adds the past and ends the bracket; what comes next is the live tail, or what follows the run's end.
func (ses *Session) closeBracket(items []Item, p *agui.Preamble, j joined) []Item {
	passing, omitted := p.Passing, p.Omitted
	if ses.request.Raw {
		passing, omitted = p.PassingRaw, p.OmittedRaw
	}
	from := len(items)
	items = events(items, p.Past, passing, p.Lanes, p.Terminal)
	for i := from; i < len(items); i++ {
		if r := j.view.Restated(items[i].Event); r != nil {
			items[i].Event, items[i].Restated = r.Event, r
		}
	}
	return ses.goLive(append(items, live(ses.place(j.cursor), omitted)), j)
}

// goLive goes on from where the session joined.
func (ses *Session) goLive(items []Item, j joined) []Item {
	ses.at, ses.step = j.cursor, ses.follow
	if j.view.Ended {
		items = append(items, ses.end())
	}
	ses.room.items, ses.waited = items, false
	return items
}

// restarted begins anew, behind what is in ses.room.items: the run did, at or before newest.
func (ses *Session) restarted(newest stream.Cursor) ([]Item, error) {
	latest := ses.place(newest).String()
	ses.attached, ses.held = false, agui.Holder{}
	before := ses.room.items
	before = append(before, control(ControlReset, controlReset{
		Control: ControlReset, Reason: resetRestarted, Latest: &latest,
	}))
	ses.room.items = nil
	ses.service.countReset(resetRestarted)
	return ses.restate(before, modeFresh)
}
