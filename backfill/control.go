package backfill

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aguihub/aguihub/stream"
)

// Beside is what a Service asks and writes beside the streams of runs (stream.Redis).
type Beside interface {
	Signals(ctx context.Context, runs ...stream.RunID) ([][]stream.Signal, error)
	Leases(ctx context.Context, runs ...stream.RunID) ([]stream.Lease, error)
	RequestCancel(ctx context.Context, run stream.RunID, control []byte) (stream.ID, error)
}

// The states of a run that its own stream doesn't tell.
const (
	StateCancelRequested RunState = "cancel_requested" // somebody asked it to end, and it hasn't yet
	StateStalled         RunState = "stalled"          // its producer's lease has lapsed
)

// Current is the run that the session is at, "" before a thread's first. It is for the goroutine that calls Next.
func (ses *Session) Current() stream.RunID { return ses.current.run }

// Stalled tells those who watch a run through this hub that its producer's lease has lapsed since then, in milliseconds
// since 1970. Each of them hears it once, until the run has a new entry, however often it is called.
func (s *Service) Stalled(run stream.RunID, sinceMs int64) {
	s.alone.Note(run, control(ControlStalled, controlStalled{ControlStalled, sinceMs}).Line)
	s.hub.Note(run, control(ControlStalled, controlStalled{ControlStalled, sinceMs}).Line)
}

// cancelSignal is a cancel as it stands in a run's control stream.
type cancelSignal struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// Cancel asks a run to end, for a reason and on behalf of somebody, both in words. Whether and when it does is the
// agent's matter. It fails with ErrUnknownRun where the run has no entry and nobody has claimed it, and with
// stream.ErrRunEnded.
func (s *Service) Cancel(ctx context.Context, run stream.RunID, reason, by string) error {
	var state RunState
	switch err := s.peek(ctx, run, func(m *machine) { state = m.state() }); {
	case errors.Is(err, ErrUnknownRun): // somebody may have claimed it, and take his time: the log knows
	case err != nil:
		return err
	case state != StateRunning:
		return stream.ErrRunEnded
	}
	control, err := json.Marshal(cancelSignal{Type: "cancel", Reason: reason, By: by})
	if err != nil {
		return err
	}
	if _, err = s.log.RequestCancel(ctx, run, control); errors.Is(err, stream.ErrNoRun) {
		return ErrUnknownRun
	}
	return err
}

// besideStates finds out which of the runs that go on are stalled or asked to end. Where Redis refuses the hub the keys
// the runs just go on.
func (s *Service) besideStates(ctx context.Context, runs []*Summary) error {
	var open []*Summary
	var ids []stream.RunID
	for _, r := range runs {
		if r.State == StateRunning {
			open, ids = append(open, r), append(ids, r.Run)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	leases, err := s.log.Leases(ctx, ids...)
	var signals [][]stream.Signal
	if err == nil {
		signals, err = s.log.Signals(ctx, ids...)
	}
	if errors.Is(err, stream.ErrDenied) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, r := range open {
		switch l := leases[i]; {
		case l.Known && !l.Held && !l.Ended:
			r.State, r.StalledSince = StateStalled, l.LapsedMs
		case asked(signals[i]):
			r.State = StateCancelRequested
		}
	}
	return nil
}

// asked says whether one of the signals is a cancel.
func asked(signals []stream.Signal) bool {
	for _, s := range signals {
		var c cancelSignal
		if json.Unmarshal(s.Control, &c) == nil && c.Type == "cancel" {
			return true
		}
	}
	return false
}
