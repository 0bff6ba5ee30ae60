package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// ErrTrimmed says that a run's first entries were asked for, and were trimmed.
var ErrTrimmed = errors.New("backfill: the run's first entries were trimmed")

// minKeep is how many of a run's newest entries a trim leaves at least: docs/contract.md, section 1, "Retention".
const minKeep = 1000

// MinRunEntries is the least that Config.MaxRunEntries may be: a trim takes half of a run away, and leaves minKeep.
const MinRunEntries = 2 * minKeep

// keepEntries is how many entries a trim leaves; 0 where nothing is trimmed.
func (c *Config) keepEntries() int {
	if c.MaxRunEntries <= 0 {
		return 0
	}
	return max(c.MaxRunEntries/2, minKeep)
}

// takeUp restores a run from what was written down of it: from its newest checkpoint, or from the one that its last trim
// went to. It is nil where neither is there, is of entries that are, and can be used: then the run is to be read from its
// first entry.
func (s *Service) takeUp(ctx context.Context, run stream.RunID) (*machine, error) {
	store := s.config.Store
	if store == nil {
		return nil, nil
	}
	var newest stream.Checkpoint
	var foreign *machine
	if !s.config.NoCheckpoints {
		c, ok, unknown, err := store.Checkpoint(ctx, run)
		if err != nil {
			return nil, err
		}
		m, ours, err := s.restored(ctx, run, c, ok, unknown)
		if err != nil || m != nil && ours {
			return m, err
		}
		newest, foreign = c, m
	}
	t, ok, unknown, err := store.Trimmed(ctx, run)
	if err != nil || !ok && !unknown {
		return nil, err
	}
	if foreign != nil && newest.At != t.At { // written under other rules: better than nothing
		return foreign, nil
	}
	m, _, err := s.restored(ctx, run, t.Checkpoint, ok, unknown)
	return m, err
}

// restored makes a machine of a checkpoint that was read; nil where it can't be used. ours says that it was written under
// the rules of this hub.
func (s *Service) restored(ctx context.Context, run stream.RunID, c stream.Checkpoint, ok, unknown bool) (m *machine, ours bool, err error) {
	if ok {
		page, err := s.log.Range(ctx, run, c.At, 1, 1)
		if err != nil {
			return nil, false, err
		}
		if page.Anchor != stream.AnchorHeld || page.AnchorSum != c.Sum {
			return nil, false, nil // of another generation of the key, or trimmed by somebody
		}
		m, ours, err = s.restore(run, c)
		if err == nil {
			return m, ours, nil
		}
		unknown = true
		s.logger.Warn("a checkpoint can't be used", zap.String("run", string(run)), zap.Error(err))
	} else if unknown {
		s.logger.Warn("a checkpoint of an unknown version can't be used", zap.String("run", string(run)))
	}
	if unknown {
		s.keeper.damaged.Add(1)
	}
	return nil, false, nil
}

// outline is where a run began, as its checkpoints say; false where there are none.
func (s *Service) outline(ctx context.Context, run stream.RunID) (st start, ok bool, err error) {
	if s.config.Store == nil {
		return st, false, nil
	}
	raw, err := s.config.Store.Outline(ctx, run)
	if err != nil || raw == nil {
		return st, false, err
	}
	var meta checkpointMeta
	if json.Unmarshal(raw, &meta) != nil {
		return st, false, nil //nolint:nilerr // damage is a miss
	}
	st.thread, _ = stream.ParseThreadID(string(meta.Thread))
	st.parent, _ = stream.ParseRunID(string(meta.Parent))
	st.id, err = stream.ParseID(meta.Start)
	st.begins = true
	return st, err == nil && !st.id.IsZero(), nil
}

// startOf is where a run began: as its first entries say or, where these were trimmed, its checkpoints.
func (s *Service) startOf(ctx context.Context, run stream.RunID, first []stream.Entry) (st start, ok bool, err error) {
	if st, ok := findStart(first); ok {
		return st, true, nil
	}
	st, ok, err = s.outline(ctx, run)
	return st, ok, err
}

// trimmed says whether a hub has trimmed a run whose first entry is this one.
func (s *Service) trimmed(ctx context.Context, run stream.RunID, first stream.Entry) (bool, error) {
	if _, begins := findStart([]stream.Entry{first}); begins || s.config.Store == nil {
		return false, nil
	}
	_, ok, unknown, err := s.config.Store.Trimmed(ctx, run)
	return ok || unknown, err
}

// incomplete says whether entries are missing before a run's first one, whoever removed them.
func (s *Service) incomplete(ctx context.Context, run stream.RunID, first stream.Entry) (bool, error) {
	if missing, err := s.trimmed(ctx, run, first); missing || err != nil {
		return missing, err
	}
	if _, begins := findStart([]stream.Entry{first}); begins {
		return false, nil
	}
	bounds, err := s.log.Bounds(ctx, run)
	return err == nil && bounds[0].Added > bounds[0].Len, err
}

// prepareHeadless looks at a run whose first entry doesn't begin it. Where hubs trimmed entries before it and nothing that
// can be used stands for them, the run goes on as one of which nothing before is known. Where the run was deleted it is
// what its agent still had on its way, and goes the same way.
func (m *machine) prepareHeadless(ctx context.Context, next []stream.Entry) (ready func(), err error) {
	s := m.service
	missing, err := s.trimmed(ctx, m.id, next[0])
	if err != nil {
		return nil, err
	}
	if !missing {
		if _, begins := findStart(next); begins || s.config.Store == nil {
			return nil, nil
		}
		return nil, s.eraseLate(ctx, m.id, next[0].ID)
	}
	if !m.lone { // what stands for them holds the thread's messages, too
		r, err := s.takeUp(ctx, m.id)
		if err != nil {
			return nil, err
		}
		if r != nil {
			return nil, fmt.Errorf("%w: they were trimmed while it was taken up", hub.ErrLost) // and again, from there
		}
	}
	st, ok, err := s.outline(ctx, m.id)
	if err != nil {
		return nil, err
	}
	before := next[0].ID.Prev()
	if !ok {
		st = start{id: before}
	}
	var base base
	if !m.lone {
		if base, err = s.history(ctx, m.id, st); err != nil {
			return nil, err
		}
	}
	if base.conversation == nil {
		base.conversation = &agui.Conversation{}
	}
	s.keeper.headless.Add(1)
	s.logger.Warn("a run was trimmed and no checkpoint of it can be used: it is shown from its first entry that is left", zap.String("run", string(m.id)))
	return func() {
		m.thread, m.parent, m.start = st.thread, base.run, st.id
		m.run.Rebase(base.conversation)
		m.run.BeginWithoutStart(quote(string(st.thread)), quote(string(m.id)), position(before))
		m.resolved, m.headless = true, true
	}, nil
}

// quote makes a JSON string of a name.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("backfill: a name: " + err.Error()) // strings always encode
	}
	return b
}

// eraseLate removes what was written to a run's key after the run was deleted; then it returns hub.ErrLost.
func (s *Service) eraseLate(ctx context.Context, run stream.RunID, first stream.ID) error {
	erased, err := s.config.Store.EraseLate(ctx, run, first)
	if err != nil || !erased {
		return err
	}
	s.logger.Info("what came late for a deleted run was removed", zap.String("run", string(run)))
	return fmt.Errorf("%w: the run was deleted", hub.ErrLost)
}

// beginTrimmed has a replay of a run whose first entry is gone begin where the last trim went to. It fails with
// ErrTrimmed where the replay is to begin at the run's first entry, and with hub.ErrLost where the entry that it is to go
// on from was trimmed, too, or nothing is known of it.
func (r *replay) beginTrimmed(ctx context.Context, first stream.Entry) (begun bool, err error) {
	missing, err := r.service.incomplete(ctx, r.id, first)
	if err != nil || !missing {
		return false, err
	}
	if r.after.Entry.IsZero() {
		return false, ErrTrimmed
	}
	if r.service.config.Store == nil {
		return false, hub.ErrLost
	}
	t, ok, unknown, err := r.service.config.Store.Trimmed(ctx, r.id)
	if err != nil {
		return false, err
	}
	m, _, err := r.service.restored(ctx, r.id, t.Checkpoint, ok, unknown)
	if err != nil {
		return false, err
	}
	if m == nil || r.after.Entry.Less(m.cursor.Entry) {
		return false, hub.ErrLost
	}
	r.run, r.cursor = m.run, m.cursor
	r.met = r.after.Entry == m.cursor.Entry && r.after.Sum == m.cursor.Sum
	return true, nil
}
