package backfill

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// base is what a run started from.
type base struct {
	run          stream.RunID // the parent; "" where there is none
	conversation *agui.Conversation
}

// threadLimit bounds the runs of a thread that are looked at.
const threadLimit = 1000

// history finds the parent of a run and what it left: docs/contract.md, section 1, "Parents". It also makes the run
// known to the registry where nobody announced it.
func (s *Service) history(ctx context.Context, run stream.RunID, st start) (base, error) {
	if st.thread == "" {
		return base{}, nil
	}
	runs, err := s.registry.Thread(ctx, st.thread, threadLimit)
	if err != nil {
		return base{}, err
	}
	if err := s.introduce(ctx, run, st, runs); err != nil {
		return base{}, err
	}
	return s.parentOf(ctx, run, st, runs)
}

// introduce announces a run that nobody did, and corrects the time at which the thread's index says that it started.
func (s *Service) introduce(ctx context.Context, run stream.RunID, st start, runs []stream.ThreadRun) error {
	at := slices.IndexFunc(runs, func(r stream.ThreadRun) bool { return r.Run == run })
	startMs := int64(st.id.Ms)
	if at < 0 {
		info := stream.RunInfo{Run: run, Thread: st.thread, Parent: st.parent, State: stream.RunStarted}
		if err := s.registry.Announce(ctx, info); err != nil {
			return err
		}
	} else if runs[at].StartMs == startMs {
		return nil
	}
	return s.registry.Correct(ctx, st.thread, run, startMs)
}

func (s *Service) parentOf(ctx context.Context, run stream.RunID, st start, runs []stream.ThreadRun) (base, error) {
	if st.parent != "" && st.parent != run {
		p, err := s.past(ctx, st.parent, st.id)
		if err != nil {
			return base{}, err
		}
		if p != nil && p.thread == st.thread && p.start.Less(st.id) {
			return base{p.run, p.conversation}, nil
		}
	}
	gone := false
	for _, r := range runs { // the one that started last first
		if r.Run == run || r.StartMs > int64(st.id.Ms) {
			continue
		}
		p, err := s.past(ctx, r.Run, st.id)
		if err != nil {
			return base{}, err
		}
		switch {
		case p == nil:
			gone = true
		case p.thread == st.thread && p.start.Less(st.id) && !p.end.IsZero() && p.end.Ms <= st.id.Ms:
			return base{p.run, p.conversation}, nil
		}
	}
	if gone {
		return base{conversation: &agui.Conversation{}}, nil // there was more, but it isn't there any more
	}
	return base{}, nil
}

// past folds a run as of an ID; nil where nothing is there. Pasts of ended runs are cached.
func (s *Service) past(ctx context.Context, run stream.RunID, until stream.ID) (*past, error) {
	if p := s.pasts.get(run); p != nil {
		return p, nil
	}
	m := s.newMachine(run).(*machine)
	var after stream.ID
	entries, bytes := headEntries, headBytes
	for {
		page, err := s.log.Range(ctx, run, after, entries, bytes)
		if err != nil {
			return nil, err
		}
		if len(page.Entries) == 0 {
			break
		}
		if !m.resolved {
			st, ok := findStart(page.Entries)
			if !ok || !st.id.Less(until) { // strictly, or two runs of one start would be parents of each other
				return nil, nil
			}
			m.thread, m.start = st.thread, st.id
			b, err := s.pastBase(ctx, run, st)
			if err != nil {
				return nil, err
			}
			m.run.Rebase(b.conversation)
			m.resolved = true
		}
		for _, en := range page.Entries {
			if m.end.IsZero() && en.ID.Ms > until.Ms {
				break
			}
			m.Admit(en)
		}
		after = page.Entries[len(page.Entries)-1].ID
		entries, bytes = historyEntries, historyBytes
		if !page.More {
			break
		}
	}
	if !m.resolved {
		return nil, nil
	}
	return m.past(), nil
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
func (s *Service) pastBase(ctx context.Context, run stream.RunID, st start) (base, error) {
	if st.thread == "" {
		return base{}, nil
	}
	runs, err := s.registry.Thread(ctx, st.thread, threadLimit)
	if err != nil {
		return base{}, err
	}
	return s.parentOf(ctx, run, st, runs)
}

func (m *machine) past() *past {
	return &past{run: m.id, thread: m.thread, start: m.start, end: m.end, conversation: m.run.Conversation()}
}

// remember keeps what a run left when it ended.
func (s *Service) remember(m *machine) {
	if m.thread == "" || m.end.IsZero() {
		return
	}
	s.pasts.put(m.past())
	s.logger.Debug("run ended", zap.String("run", string(m.id)), zap.String("thread", string(m.thread)))
}
