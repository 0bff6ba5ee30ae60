package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Summary is a run in a list.
type Summary struct {
	Run     stream.RunID    `json:"run"`
	Thread  stream.ThreadID `json:"thread,omitempty"`
	Parent  stream.RunID    `json:"parent,omitempty"`
	State   RunState        `json:"state"`
	Started int64           `json:"startedAtMs,omitempty"` // milliseconds since 1970
	Newest  int64           `json:"newestAtMs,omitempty"`  // of the newest entry
	Entries int64           `json:"entries"`
	// StalledSince is when it was noticed that the producer's lease had lapsed, in milliseconds by the clock of Redis; 0
	// where the run isn't stalled, or nobody has noted it yet.
	StalledSince int64 `json:"stalledSinceMs,omitempty"`
}

// Detail is all that is known of a run.
type Detail struct {
	Summary
	History  string         `json:"history"`    // full or partial
	Input    bool           `json:"inputKnown"` // this run's own; history is of its path
	Cursor   string         `json:"cursor"`     // of the newest entry
	Withheld []Withheld     `json:"withheld"`
	Reasons  map[string]int `json:"withheldByReason"`
}

// Conversation is what a thread has come to.
type Conversation struct {
	Messages  json.RawMessage `json:"messages"`
	State     json.RawMessage `json:"state"` // null while it isn't known
	Cursor    string          `json:"cursor"`
	ActiveRun *stream.RunID   `json:"activeRun"` // null where none is active
}

// peek waits until a run's feed stands at its head and calls see under its lock. It returns ErrUnknownRun where the
// run has no entry.
func (s *Service) peek(ctx context.Context, run stream.RunID, see func(m *machine)) error {
	bounds, err := s.log.Bounds(ctx, run)
	switch {
	case err != nil:
		return err
	case bounds[0].WrongType:
		return stream.ErrWrongType
	case bounds[0].Last.ID.IsZero():
		return ErrUnknownRun
	}
	feed, err := s.hub.Feed(run)
	if err != nil {
		return err
	}
	defer s.hub.Release(feed)
	m := feed.Machine().(*machine)
	if err := feed.Wait(ctx, func() bool { return m.entries > 0 }); err != nil {
		return err
	}
	feed.With(func(stream.ID) { see(m) })
	return nil
}

// Run tells of a run what a grant may see (nil: all). It fails with ErrUnknownRun where the run has no entry, and with stream.ErrWrongType.
func (s *Service) Run(ctx context.Context, run stream.RunID, g *auth.Grant) (Detail, error) {
	var d Detail
	err := s.peek(ctx, run, func(m *machine) {
		d = Detail{Summary: m.summary(), History: "partial", Cursor: m.cursor.String(), Reasons: map[string]int{}}
		if m.run.Full() {
			d.History = "full"
		}
		d.Input = m.run.InputKnown()
		d.Withheld = append([]Withheld{}, m.withheld.newest...)
		maps.Copy(d.Reasons, m.withheld.counts)
	})
	if err != nil {
		return d, err
	}
	if sightOf(g) == seesVeiled {
		for i := range d.Withheld {
			d.Withheld[i].Detail = "" // it may quote what is withheld
		}
	}
	return d, s.besideStates(ctx, []*Summary{&d.Summary})
}

func (m *machine) summary() Summary {
	return Summary{
		Run: m.id, Thread: m.thread, Parent: m.parent, State: m.state(), Started: int64(m.start.Ms),
		Newest: int64(m.cursor.Entry.Ms), Entries: int64(m.entries),
	}
}

// ThreadPlace is a place in a thread's list of runs: behind a run that started at that time. The zero value is before
// the first.
type ThreadPlace struct {
	StartMs int64
	Run     stream.RunID
}

// Thread lists a thread's runs behind a place, the one that started last first, at most limit. next is zero where there
// are no more; a page may be short, since runs without an entry are left out. A thread that nobody knows has none. Only
// the newest 10,000 are listed.
func (s *Service) Thread(ctx context.Context, thread stream.ThreadID, after ThreadPlace, limit int) (page []Summary, next ThreadPlace, err error) {
	runs, err := s.registry.Thread(ctx, thread, 0)
	if err != nil {
		return nil, next, err
	}
	if after != (ThreadPlace{}) {
		runs = slices.DeleteFunc(runs, func(r stream.ThreadRun) bool { return !after.before(r) })
	}
	if len(runs) > limit {
		runs = runs[:limit]
		next = ThreadPlace{runs[limit-1].StartMs, runs[limit-1].Run}
	}
	if len(runs) == 0 {
		return nil, next, nil
	}
	ids := make([]stream.RunID, len(runs))
	for i, r := range runs {
		ids[i] = r.Run
	}
	page, err = s.summaries(ctx, ids)
	return page, next, err
}

// before says whether a run comes behind the place: the newest first, and of one millisecond the greatest id first, as
// Redis orders them.
func (p ThreadPlace) before(r stream.ThreadRun) bool {
	return r.StartMs < p.StartMs || r.StartMs == p.StartMs && r.Run < p.Run
}

// summaries outlines runs from the first and the last entry of each; those without an entry are left out.
func (s *Service) summaries(ctx context.Context, ids []stream.RunID) ([]Summary, error) {
	bounds, err := s.log.Bounds(ctx, ids...)
	if err != nil {
		return nil, err
	}
	var out []Summary
	for i, b := range bounds {
		if b.WrongType || b.Last.ID.IsZero() {
			continue
		}
		sum := Summary{
			Run: ids[i], State: StateRunning, Entries: b.Len, Started: int64(b.First.ID.Ms), Newest: int64(b.Last.ID.Ms),
		}
		if st, ok := findStart([]stream.Entry{b.First}); ok {
			sum.Thread, sum.Parent = st.thread, st.parent
		} else if st, ok, err := s.outline(ctx, ids[i]); err != nil {
			return nil, err
		} else if ok {
			sum.Thread, sum.Parent, sum.Started, sum.Entries = st.thread, st.parent, int64(st.id.Ms), max(b.Len, b.Added)
		}
		var e agui.Event
		if !b.Last.NoEvent && e.Parse(b.Last.Event) == nil && e.Type.Terminal() {
			sum.State = stateOfEnd(&e)
		} else if f := s.hub.Peek(ids[i]); f != nil {
			f.With(func(stream.ID) { sum.State = f.Machine().(*machine).state() })
		}
		out = append(out, sum)
	}
	running := make([]*Summary, len(out))
	for i := range out {
		running[i] = &out[i]
	}
	return out, s.besideStates(ctx, running)
}

// Lister lists the registry (stream.Registry).
type Lister interface {
	List(ctx context.Context, before stream.ID, limit int) ([]stream.RunEvent, stream.ID, error)
}

// Runs lists the runs that the registry names, the newest first, from before on (zero: from the newest). next is zero
// where there are no more; a page may be short.
func (s *Service) Runs(ctx context.Context, list Lister, before stream.ID, limit int) (runs []Summary, next stream.ID, err error) {
	events, next, err := list.List(ctx, before, limit)
	if err != nil || len(events) == 0 {
		return nil, next, err
	}
	var ids []stream.RunID
	seen := map[stream.RunID]bool{}
	for _, e := range events {
		if !seen[e.Run] && e.State == stream.RunStarted {
			seen[e.Run] = true
			ids = append(ids, e.Run)
		}
	}
	runs, err = s.summaries(ctx, ids)
	return runs, next, err
}

// Messages tells what a thread has come to, as a grant may see it (nil: all), by the run that started last. ErrUnknownRun means that it has no run.
func (s *Service) Messages(ctx context.Context, thread stream.ThreadID, g *auth.Grant) (Conversation, error) {
	th, release, err := s.threads.open(ctx, thread)
	if err != nil {
		return Conversation{}, err
	}
	defer release()
	r, ok, _ := th.newest()
	if !ok {
		return Conversation{}, ErrUnknownRun
	}
	var c Conversation
	var view *agui.View
	err = s.peek(ctx, r.run, func(m *machine) {
		if m.thread != thread { // its key was deleted, and its id serves another thread now
			return
		}
		view = m.run.View()
		cursor := m.cursor
		cursor.Run, cursor.HasRun = stream.HashRun(r.run), true
		c.Cursor = cursor.String()
	})
	if err != nil {
		return Conversation{}, err
	}
	if view == nil {
		th.forget(r.run)
		return Conversation{}, ErrUnknownRun
	}
	if !view.Ended {
		c.ActiveRun = &r.run
	}
	if view.Size() > s.config.MaxConversation {
		return Conversation{}, ErrTooLarge
	}
	view = sightOf(g).view(view)
	c.Messages, c.State = view.Messages(), view.State()
	return c, nil
}

// ErrGone says that a position isn't one of the run's: its entry was trimmed or lost, the run was recreated, or it is
// ahead of the newest entry.
var ErrGone = errors.New("backfill: no such position in the run")

// Events calls yield for the run's entries after a position (zero: from the first), as a session from the start would
// give them, up to the head. It fails with ErrUnknownRun, stream.ErrWrongType, with ErrTrimmed or ErrGone before the first
// yield, and with the error of yield.
func (s *Service) Events(ctx context.Context, run stream.RunID, after stream.Cursor, g *auth.Grant, yield func(Item) error) error {
	bounds, err := s.log.Bounds(ctx, run)
	switch {
	case err != nil:
		return err
	case bounds[0].WrongType:
		return stream.ErrWrongType
	case bounds[0].Last.ID.IsZero():
		return ErrUnknownRun
	}
	rep := newReplay(s, run)
	rep.after = after
	for {
		entries, more, err := rep.page(ctx)
		if errors.Is(err, hub.ErrLost) && !rep.met && !after.Entry.IsZero() {
			return ErrGone
		}
		if err != nil {
			return err
		}
		for _, d := range entries {
			if err := yield(Item{Delivery: sightOf(g).delivery(d), Cursor: d.Cursor}); err != nil {
				return err
			}
		}
		if !more {
			if !rep.met && !after.Entry.IsZero() {
				return ErrGone
			}
			return nil
		}
	}
}
