package backfill

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// machine is a run in the making: it implements hub.Machine with the fold and the admission of package agui.
type machine struct {
	service *Service
	id      stream.RunID
	// lone is a machine that knows of no thread, and keeps nothing.
	lone bool

	run      *agui.Run
	resolved bool // the run's start was seen and what it started from is known

	// set by Prepare and Admit
	thread    stream.ThreadID // "" while unknown
	parent    stream.RunID
	parentEnd stream.ID // of its terminal event, which was there when this run was taken up; zero where that isn't known
	start     stream.ID // of its RUN_STARTED, or of the RUN_ERROR that it began with
	end       stream.ID // of its terminal event; zero while it runs
	outcome   RunState
	cursor    stream.Cursor // of the newest entry
	entries   int
	restarted bool // it began anew at least once
	withheld  withheldList

	headless bool // its first entries are gone, and nothing stands for them

	since growth // the last checkpoint
}

func (s *Service) newMachine(id stream.RunID) hub.Machine {
	return &machine{service: s, id: id, run: agui.NewRun(nil, s.config.agui())}
}

func (s *Service) newLoneMachine(id stream.RunID) hub.Machine {
	return &machine{service: s, id: id, lone: true, run: agui.NewRun(nil, s.config.agui())}
}

// Prepared implements hub.Machine.
func (m *machine) Prepared() bool { return m.resolved }

// Prepare implements hub.Machine: where the run's start is among the next entries it finds out what came before it.
func (m *machine) Prepare(ctx context.Context, next []stream.Entry) (ready func(), err error) {
	if _, begins := findStart(next[:1]); m.entries == 0 && !begins {
		if ready, err = m.prepareHeadless(ctx, next); ready != nil || err != nil {
			return ready, err
		}
	}
	st, ok := findStart(next)
	if !ok || !st.begins && !m.start.IsZero() {
		return nil, nil
	}
	var base base
	if !m.lone {
		if base, err = m.service.history(ctx, m.id, st); err != nil {
			return nil, err
		}
	}
	return func() {
		m.thread, m.parent, m.parentEnd, m.start = st.thread, base.run, base.end, st.id
		m.run.Rebase(base.conversation)
		m.resolved = st.begins
	}, nil
}

// start is what a run's first RUN_STARTED says.
type start struct {
	id     stream.ID
	thread stream.ThreadID // "" where it names none that can be used
	parent stream.RunID    // what parentRunId says
	begins bool            // it isn't withheld; else it tells where the run belongs as long as nothing better does
}

// findStart finds the entry that begins the run; where there is none, the first that was to.
func findStart(entries []stream.Entry) (first start, found bool) {
	var e agui.Event
	for _, en := range entries {
		if en.NoEvent || e.Parse(en.Event) != nil {
			continue
		}
		switch e.Type {
		case agui.RunStarted:
			st := start{id: en.ID}
			st.thread, _ = stream.ParseThreadID(e.ThreadID())
			st.parent, _ = stream.ParseRunID(e.ParentRunID())
			if st.begins = e.Valid(); st.begins {
				return st, true
			}
			if !found {
				first, found = st, true
			}
		case agui.RunError:
			if !found {
				return start{id: en.ID, begins: true}, true
			}
			return first, true
		default:
		}
	}
	return first, found
}

// Admit implements hub.Machine.
func (m *machine) Admit(en stream.Entry) *hub.Delivery {
	v := m.run.Apply(agui.Entry{At: position(en.ID), Event: en.Event, Input: en.Input, NoEvent: en.NoEvent})
	m.entries++
	if !m.lone && m.end.IsZero() && m.pausedBefore(en.ID) {
		m.service.keeper.goesOn(m.id)
	}
	m.cursor = stream.Cursor{Entry: en.ID, Sum: stream.Checksum(en.Event)}
	if v.Restart {
		m.start, m.end, m.outcome, m.restarted = en.ID, stream.ID{}, "", true
	}
	if v.End {
		m.end, m.outcome = en.ID, outcomeOf(v)
		m.resolved = m.resolved || !m.start.IsZero() // nothing begins it any more
	}
	if v.End || v.Late {
		m.service.remember(m)
	}
	d := deliver(en.ID, m.cursor, v)
	if v.Reason != "" {
		first := m.withheld.add(Withheld{ID: m.cursor.String(), Reason: string(v.Reason), Detail: v.Detail})
		m.logWithheld(en.ID, v, first)
	}
	if m.lone {
		return d
	}
	m.service.keeper.grown(m, len(en.Event)+len(en.Input), v)
	return d
}

// longPause is after what time without an entry it is looked whether a run that goes on was abandoned meanwhile.
const longPause = time.Minute

// pausedBefore says whether an entry comes after a long pause.
func (m *machine) pausedBefore(id stream.ID) bool {
	return !m.cursor.Entry.IsZero() && id.Ms-m.cursor.Entry.Ms >= uint64(longPause.Milliseconds())
}

// position is an entry's place in its run, as package agui orders entries.
func position(id stream.ID) agui.Position { return agui.Position{Hi: id.Ms, Lo: id.Seq} }

// logWithheld tells of the first entry of each reason of a run, and of the others at debug: an agent that does one thing
// wrong does it often.
func (m *machine) logWithheld(id stream.ID, v agui.Verdict, first bool) {
	level := zap.DebugLevel
	if first {
		level = zap.WarnLevel
	}
	m.service.logger.Log(level, "entry withheld", zap.String("run", string(m.id)), zap.Stringer("entry", id),
		zap.String("reason", string(v.Reason))) // the detail, which may quote content, stands in the look-up
}

// deliver makes of a verdict what subscribers get.
func deliver(id stream.ID, cursor stream.Cursor, v agui.Verdict) *hub.Delivery {
	d := &hub.Delivery{
		ID: id, Cursor: cursor, Reason: string(v.Reason), Detail: v.Detail, End: v.End, Restart: v.Restart,
	}
	switch {
	case v.Instead != nil:
		d.Events = append(append(d.Events, v.Closings...), v.Instead)
	case v.Send && len(v.Closings) == 0:
		d.Events = [][]byte{v.Event}
	case v.Send:
		d.Events = append(append(d.Events, v.Closings...), v.Event)
	}
	if v.Private || v.PrivateClosings != nil {
		d.Private = make([]bool, len(d.Events))
		copy(d.Private, v.PrivateClosings)
		if len(d.Private) > 0 && v.Private {
			d.Private[len(d.Private)-1] = true
		}
	}
	return d
}

func outcomeOf(v agui.Verdict) RunState {
	if v.Instead != nil {
		return StateError
	}
	var e agui.Event
	if e.Parse(v.Event) != nil {
		return StateError
	}
	return stateOfEnd(&e)
}

// stateOfEnd is the state that a terminal event leaves.
func stateOfEnd(e *agui.Event) RunState {
	if e.Type == agui.RunError {
		return StateError
	}
	switch e.Outcome() {
	case "interrupt":
		return StateInterrupted
	case "cancelled":
		return StateCancelled
	default:
		return StateFinished
	}
}

// Size implements hub.Machine.
func (m *machine) Size() int { return m.run.Size() + m.withheld.size() }

// RunState is what a run is, as its stream tells.
type RunState string

// The states of a run: docs/contract.md, section 4.
const (
	StateRunning     RunState = "running"
	StateFinished    RunState = "finished"
	StateError       RunState = "error"
	StateCancelled   RunState = "cancelled"
	StateInterrupted RunState = "interrupted"
)

func (m *machine) state() RunState {
	if m.outcome != "" {
		return m.outcome
	}
	return StateRunning
}

// Withheld is one entry that subscribers didn't get as it was published.
type Withheld struct {
	ID     string `json:"id"` // cursor
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// maxWithheld bounds the list of withheld entries of a run; the counts go on.
const maxWithheld = 100

type withheldList struct {
	newest []Withheld
	counts map[string]int
}

// add reports whether x is the first of its reason.
func (w *withheldList) add(x Withheld) (first bool) {
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	w.counts[x.Reason]++
	first = w.counts[x.Reason] == 1
	if len(w.newest) == maxWithheld {
		w.newest = append(w.newest[:0], w.newest[1:]...)
	}
	w.newest = append(w.newest, x)
	return first
}

func (w *withheldList) size() int { return len(w.newest) * 400 }
