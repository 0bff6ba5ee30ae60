package publish

import (
	"container/list"
	"context"
	"sync"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// What one read of a run's past takes at most.
const (
	replayEntries = 5_000
	replayBytes   = 4 << 20
)

// past is what the log has of a run, judged as the hubs do.
type past struct {
	info  stream.RunInfo // thread and parent are found out later where Open wasn't told
	event agui.Event     // scratch
	adm   *agui.Admission
	end   stream.RunState // how it ended; "" while it goes on
	// startThread and startRun are the names in the last RUN_STARTED, which a RUN_FINISHED has to repeat.
	startThread, startRun string

	existed  bool      // the log had entries of the run
	headless bool      // a hub trimmed its first entries, and nothing that can be read stands for them
	seen     stream.ID // the newest entry that was judged, and its checksum
	seenSum  uint32
	judged   int // bytes
}

func newPast(run stream.RunID) past {
	return past{info: stream.RunInfo{Run: run}, adm: &agui.Admission{}}
}

// judgeEntry judges an entry as the hubs do.
func (p *past) judgeEntry(en stream.Entry, maxEvent int) {
	p.existed = true
	p.saw(en.ID, en.Event)
	var v agui.Verdict
	switch {
	case en.NoEvent:
		return
	case len(en.Event) > maxEvent:
		v = p.adm.Refuse(agui.ErrTooLarge, en.Event)
	default:
		if err := p.event.Parse(en.Event); err != nil {
			v = p.adm.Refuse(err, en.Event)
			break
		}
		if v = p.adm.Admit(&p.event); v.Send && p.event.Type == agui.RunStarted {
			p.noteStart()
		}
	}
	if v.End && p.end == "" {
		p.end = stateOfEnd(&p.event, v)
	}
}

// saw notes that an entry is part of what was judged.
func (p *past) saw(id stream.ID, event []byte) {
	p.seen, p.seenSum = id, stream.Checksum(event)
	p.judged += len(event)
}

// noteStart takes the names that p.event, a RUN_STARTED, gives. The first valid thread is the run's.
func (p *past) noteStart() {
	p.startThread, p.startRun = p.event.ThreadID(), p.event.RunID()
	if p.info.Thread == "" {
		p.info.Thread, _ = stream.ParseThreadID(p.startThread)
	}
	if p.info.Parent == "" {
		p.info.Parent, _ = stream.ParseRunID(p.event.ParentRunID())
	}
}

// replay judges what the log has behind p.seen. same is false where what was judged before isn't there any more: then
// nothing has changed. apply, where given, is called with the work on each page.
func (p *past) replay(ctx context.Context, log PastReader, maxEvent int, apply func(func())) (same bool, err error) {
	anchor, sum := p.seen, p.seenSum
	for {
		page, err := log.Range(ctx, p.info.Run, anchor, replayEntries, replayBytes)
		if err != nil {
			return false, err
		}
		if page.Anchor == stream.AnchorMissing || page.Anchor == stream.AnchorHeld && page.AnchorSum != sum {
			return false, nil
		}
		if !p.existed && len(page.Entries) > 0 {
			took, err := p.takeUp(ctx, log, page.Entries[0], maxEvent)
			if err != nil {
				return false, err
			}
			if took {
				anchor, sum = p.seen, p.seenSum
				continue
			}
		}
		work := func() {
			for _, en := range page.Entries {
				p.judgeEntry(en, maxEvent)
			}
			anchor, sum = p.seen, p.seenSum
		}
		if apply != nil {
			apply(work)
		} else {
			work()
		}
		if !page.More || len(page.Entries) == 0 {
			return true, nil
		}
	}
}

// readPast judges all that the log has of a run. A run that is trimmed or recreated meanwhile is read again, a few times.
func readPast(ctx context.Context, log PastReader, run stream.RunID, maxEvent int) (past, error) {
	for attempt := 0; ; attempt++ {
		p := newPast(run)
		same, err := p.replay(ctx, log, maxEvent, nil)
		if err != nil || same || attempt == 2 {
			return p, err
		}
	}
}

// Bounds of what is kept of runs that were released, so that the next one who opens such a run needn't read it all.
const (
	maxPasts     = 4096
	maxPastBytes = 64 << 20
	// pastOverhead is what a judged run weighs besides the ids in its events, and pastShare which part of events those are
	// at most, as a rule of thumb: deltas, which make up most of a run, leave nothing behind.
	pastOverhead = 2 << 10
	pastShare    = 8
)

// pasts keeps the pasts of released runs, the last used in front. The zero value is ready.
type pasts struct {
	mu    sync.Mutex
	bytes int
	order list.List // of *past
	byRun map[stream.RunID]*list.Element
}

func (p *past) weight() int { return pastOverhead + p.judged/pastShare }

// take returns a run's past and forgets it: it has one owner.
func (c *pasts) take(run stream.RunID) (past, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byRun[run]
	if e == nil {
		return past{}, false
	}
	return *c.remove(e), true
}

func (c *pasts) remove(e *list.Element) *past {
	p := e.Value.(*past)
	c.order.Remove(e)
	delete(c.byRun, p.info.Run)
	c.bytes -= p.weight()
	return p
}

// put keeps a past, in place of one that is there.
func (c *pasts) put(p past) {
	p.event = agui.Event{} // it refers to bytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byRun == nil {
		c.byRun = map[stream.RunID]*list.Element{}
	}
	if e := c.byRun[p.info.Run]; e != nil {
		c.remove(e)
	}
	c.byRun[p.info.Run] = c.order.PushFront(&p)
	c.bytes += p.weight()
	for c.order.Len() > maxPasts || c.bytes > maxPastBytes && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}
