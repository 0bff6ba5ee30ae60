package backfill

import (
	"context"
	"encoding/json"
	"errors"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// checkpointMeta is what a checkpoint says of a run beside its fold. MaxEvent is what the hub that wrote it admitted:
// another limit makes another fold.
type checkpointMeta struct {
	MaxEvent  int             `json:"maxEvent"`
	Thread    stream.ThreadID `json:"thread,omitempty"`
	Parent    stream.RunID    `json:"parent,omitempty"`
	Start     string          `json:"start"`
	End       string          `json:"end,omitempty"`
	Outcome   RunState        `json:"outcome,omitempty"`
	Entries   int             `json:"entries"`
	Restarted bool            `json:"restarted,omitempty"`
	Withheld  []Withheld      `json:"withheld,omitempty"`
	Reasons   map[string]int  `json:"reasons,omitempty"`
}

// meta is the run's, as a copy.
func (m *machine) meta() checkpointMeta {
	meta := checkpointMeta{
		MaxEvent: m.service.config.MaxEvent, Thread: m.thread, Parent: m.parent, Start: m.start.String(), Outcome: m.outcome,
		Entries: m.entries, Restarted: m.restarted, Withheld: append([]Withheld(nil), m.withheld.newest...),
	}
	if !m.end.IsZero() {
		meta.End = m.end.String()
	}
	for reason, n := range m.withheld.counts {
		if meta.Reasons == nil {
			meta.Reasons = map[string]int{}
		}
		meta.Reasons[reason] = n
	}
	return meta
}

func (c checkpointMeta) encode() ([]byte, error) { return json.Marshal(c) }

// Begin implements hub.Beginner: it takes the run up where a checkpoint left it. A run that is all there, and short, needs
// none, and it isn't asked for.
func (m *machine) Begin(ctx context.Context, head []stream.Entry, more bool) (at stream.Cursor, ready func()) {
	s := m.service
	if m.lone || len(head) == 0 {
		return at, nil
	}
	if _, begins := findStart(head[:1]); begins && !more {
		return at, nil
	}
	r, err := s.takeUp(ctx, m.id)
	if err != nil {
		s.logger.Debug("reading a checkpoint", zap.String("run", string(m.id)), zap.Error(err))
	}
	if r == nil {
		return at, nil
	}
	s.keeper.read.Add(1)
	return r.cursor, func() { *m = *r }
}

// restore makes a machine of a checkpoint. ours says that it was written under the rules of this hub.
func (s *Service) restore(id stream.RunID, c stream.Checkpoint) (r *machine, ours bool, err error) {
	var meta checkpointMeta
	if err := json.Unmarshal(c.Meta, &meta); err != nil {
		return nil, false, err
	}
	r, err = s.restoreFrom(id, c, meta)
	return r, meta.MaxEvent == s.config.MaxEvent, err
}

func (s *Service) restoreFrom(id stream.RunID, c stream.Checkpoint, meta checkpointMeta) (*machine, error) {
	config := &s.config
	run, err := agui.RestoreRun(c.Data, config.agui(), config.packLimit())
	if err != nil {
		return nil, err
	}
	r := &machine{
		service: s, id: id, run: run, resolved: true, outcome: meta.Outcome, restarted: meta.Restarted,
		cursor: stream.Cursor{Entry: c.At, Sum: c.Sum}, entries: meta.Entries,
		withheld: withheldList{newest: meta.Withheld, counts: meta.Reasons},
	}
	if run.At() != position(c.At) || meta.Entries != run.Entries() || len(meta.Withheld) > maxWithheld {
		return nil, errors.New("its parts don't belong together")
	}
	if r.start, err = stream.ParseID(meta.Start); err != nil {
		return nil, err
	}
	if meta.End != "" {
		if r.end, err = stream.ParseID(meta.End); err != nil {
			return nil, err
		}
	}
	if run.Ended() == r.end.IsZero() || run.Ended() != (r.outcome != "") {
		return nil, errors.New("its end is nowhere")
	}
	if meta.Thread != "" {
		if r.thread, err = stream.ParseThreadID(string(meta.Thread)); err != nil {
			return nil, err
		}
	}
	if meta.Parent != "" {
		if r.parent, err = stream.ParseRunID(string(meta.Parent)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

var _ hub.Beginner = (*machine)(nil)
