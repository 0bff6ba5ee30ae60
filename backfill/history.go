package backfill

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// base is what a run started from.
type base struct {
	run          stream.RunID // the parent; "" where there is none
	end          stream.ID    // of the parent
	conversation *agui.Conversation
}

// threadLimit bounds the runs of a thread that are looked at.
const threadLimit = 1000

// history finds the parent of a run and what it left: docs/contract.md, section 1, "Parents". It also makes the run
// known to the registry where nobody announced it. A registry or a thread's index whose key is of another type doesn't
// keep a run from being shown: it has no history then, or a partial one.
func (s *Service) history(ctx context.Context, run stream.RunID, st start) (base, error) {
	if st.thread == "" {
		return base{}, nil
	}
	runs, err := s.registry.ThreadWith(ctx, st.thread, run, int64(st.id.Ms), threadLimit)
	if err == nil {
		err = s.introduce(ctx, run, st, runs)
	}
	switch {
	case errors.Is(err, stream.ErrWrongType):
		s.logger.Warn("run can't be announced", zap.String("run", string(run)), zap.Error(err))
		if runs == nil {
			return base{conversation: &agui.Conversation{}}, nil
		}
	case err != nil:
		return base{}, err
	}
	return s.newAncestry().parentOf(ctx, run, st, runs)
}

// introduce announces a run that isn't among those of its thread: nobody did.
func (s *Service) introduce(ctx context.Context, run stream.RunID, st start, runs []stream.ThreadRun) error {
	if slices.ContainsFunc(runs, func(r stream.ThreadRun) bool { return r.Run == run }) {
		return nil
	}
	info := stream.RunInfo{Run: run, Thread: st.thread, Parent: st.parent, State: stream.RunStarted}
	if err := s.registry.Announce(ctx, info); err != nil {
		return err
	}
	return s.registry.Correct(ctx, st.thread, run, int64(st.id.Ms))
}

// ancestry is one search for what a run started from. Which run another goes on from is decided by sketches, and only
// that one is folded with all that was before it: were each one that comes into question folded to find out whether it
// had ended, runs that never end would double the work one by one.
type ancestry struct {
	*Service
	sketches map[stream.RunID]*sketch
}

func (s *Service) newAncestry() *ancestry {
	return &ancestry{Service: s, sketches: map[stream.RunID]*sketch{}}
}

func (a *ancestry) parentOf(ctx context.Context, run stream.RunID, st start, runs []stream.ThreadRun) (base, error) {
	if st.parent != "" && st.parent != run {
		k, err := a.sketch(ctx, st.parent)
		if err != nil {
			return base{}, err
		}
		if k.before(st) && k.thread == st.thread {
			p, err := a.past(ctx, st.parent, st.id)
			if err != nil {
				return base{}, err
			}
			if p != nil {
				return base{p.run, p.end, p.conversation}, nil
			}
		}
	}
	gone := false
	for _, r := range runs { // the one that started last first
		if r.Run == run || r.StartMs > int64(st.id.Ms) {
			continue
		}
		k, err := a.sketch(ctx, r.Run)
		if err != nil {
			return base{}, err
		}
		if !k.before(st) {
			gone = true
			continue
		}
		if k.thread == st.thread && k.rough && !k.endedBy(st) {
			if k, err = a.exactly(ctx, r.Run); err != nil {
				return base{}, err
			}
		}
		if k.thread != st.thread || !k.endedBy(st) {
			continue
		}
		p, err := a.past(ctx, r.Run, st.id)
		if err != nil {
			return base{}, err
		}
		if p != nil {
			return base{p.run, p.end, p.conversation}, nil
		}
		gone = true // since it was looked at
	}
	if gone {
		p, err := a.left(ctx, run, st)
		if err != nil {
			return base{}, err
		}
		if p != nil {
			return base{p.run, p.end, p.conversation}, nil
		}
		return base{conversation: &agui.Conversation{}}, nil // there was more, but it isn't there any more
	}
	return base{}, nil
}

// past is what a run has left as of an ID; nil where nothing is there. It was written down, or is folded from the run's
// entries, behind a checkpoint where the first of them were trimmed. Pasts of ended runs are cached.
func (a *ancestry) past(ctx context.Context, run stream.RunID, until stream.ID) (*past, error) {
	if p := a.pasts.get(run); p != nil {
		return p, nil
	}
	if p, err := a.writtenDown(ctx, run, until); p != nil || err != nil {
		return p, err
	}
	m := a.newMachine(run).(*machine)
	begun := func(st start) (bool, error) {
		if !st.id.Less(until) { // strictly, or two runs of one start would be parents of each other
			return false, nil
		}
		m.thread, m.start = st.thread, st.id
		b, err := a.pastBase(ctx, run, st)
		if err != nil {
			return false, err
		}
		m.run.Rebase(b.conversation)
		m.resolved = true
		return true, nil
	}
	err := a.replay(ctx, run, begun, func(en stream.Entry) bool {
		if m.end.IsZero() && en.ID.Ms > until.Ms {
			return false
		}
		m.Admit(en)
		return true
	})
	if err == nil && !m.resolved {
		return a.pastTrimmed(ctx, run, until)
	}
	if err != nil || !m.resolved {
		return nil, err
	}
	return m.past(), nil
}

// writtenDown is what the thread's newest finished run has left, where it is this one, and of all entries that it has.
func (a *ancestry) writtenDown(ctx context.Context, run stream.RunID, until stream.ID) (*past, error) {
	k := a.sketches[run]
	if k == nil || k.thread == "" || !k.endedBy(start{id: until}) {
		return nil, nil
	}
	p, err := a.left(ctx, "", start{id: until, thread: k.thread})
	if err != nil || p == nil || p.run != run || p.at.Entry != k.newest.Entry || p.at.Sum != k.newest.Sum {
		return nil, err
	}
	a.pasts.put(p)
	return p, nil
}

// pastTrimmed is past for a run whose first entries were trimmed. Where a checkpoint is of a later entry than until, and
// the run went on then, it is what there is: with more than there was, and so partial.
func (a *ancestry) pastTrimmed(ctx context.Context, run stream.RunID, until stream.ID) (*past, error) {
	m, err := a.takeUp(ctx, run)
	if err != nil || m == nil || m.thread == "" || !m.start.Less(until) {
		return nil, err
	}
	early := m.end.IsZero() && m.cursor.Entry.Ms > until.Ms
	err = a.goOn(ctx, m, func(en stream.Entry) bool {
		if m.end.IsZero() && en.ID.Ms > until.Ms {
			return false
		}
		m.Admit(en)
		return true
	})
	if err != nil {
		return nil, err
	}
	p := m.past()
	if early {
		partial := *p.conversation
		partial.Full = false
		p.conversation = &partial
	}
	return p, nil
}

// errTrimmedMeanwhile says that a run was trimmed, or lost entries, while it was read for another: it may be tried again.
var errTrimmedMeanwhile = errors.New("backfill: an earlier run lost entries while it was read")

// goOn reads a run behind where it was taken up.
func (s *Service) goOn(ctx context.Context, m *machine, next func(stream.Entry) bool) error {
	for after, more := m.cursor, true; more; {
		page, err := s.log.Range(ctx, m.id, after.Entry, historyEntries, historyBytes)
		if err != nil {
			return err
		}
		if page.Anchor != stream.AnchorHeld || page.AnchorSum != after.Sum {
			return errTrimmedMeanwhile
		}
		for _, en := range page.Entries {
			if !next(en) {
				return nil
			}
			after = stream.Cursor{Entry: en.ID, Sum: stream.Checksum(en.Event)}
		}
		more = page.More && len(page.Entries) > 0
	}
	return nil
}

// replay reads a run whose start is on its first page. begun is called with the start, then next with each entry; both
// say whether to go on.
func (s *Service) replay(
	ctx context.Context, run stream.RunID, begun func(start) (bool, error), next func(stream.Entry) bool,
) error {
	var after stream.ID
	entries, bytes := headEntries, headBytes
	for {
		page, err := s.log.Range(ctx, run, after, entries, bytes)
		if err != nil || len(page.Entries) == 0 {
			return err
		}
		if after.IsZero() {
			st, ok := findStart(page.Entries)
			if !ok {
				return nil
			}
			if ok, err := begun(st); err != nil || !ok {
				return err
			}
		}
		for _, en := range page.Entries {
			if !next(en) {
				return nil
			}
		}
		if !page.More {
			return nil
		}
		after = page.Entries[len(page.Entries)-1].ID
		entries, bytes = historyEntries, historyBytes
	}
}

// Pages of past runs are read at most this large; the first one is small, since it is held while the run's own past
// is read.
const (
	headEntries    = 8
	headBytes      = 64 << 10
	historyEntries = 1000
	historyBytes   = 4 << 20
)

// pastBase is the base of an earlier run.
func (a *ancestry) pastBase(ctx context.Context, run stream.RunID, st start) (base, error) {
	if st.thread == "" {
		return base{}, nil
	}
	runs, err := a.registry.Thread(ctx, st.thread, threadLimit)
	if err != nil {
		return base{}, err
	}
	return a.parentOf(ctx, run, st, runs)
}

func (m *machine) past() *past {
	return &past{run: m.id, thread: m.thread, start: m.start, end: m.end, at: m.cursor, conversation: m.run.Conversation()}
}

// remember keeps what a run left when it ended.
func (s *Service) remember(m *machine) {
	if m.lone || m.thread == "" || m.end.IsZero() {
		return
	}
	s.pasts.put(m.past())
	s.logger.Debug("run ended", zap.String("run", string(m.id)), zap.String("thread", string(m.thread)))
}
