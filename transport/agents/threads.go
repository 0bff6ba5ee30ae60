package agents

import (
	"context"
	"errors"
	"io"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

// Threads tells a bridge what goes on in a thread, whoever publishes there. It implements bridge.Threads.
type Threads struct {
	Service *backfill.Service
	Name    string // of this hub, for the agent of a run that is superseded
}

// Active implements bridge.Threads.
func (t Threads) Active(ctx context.Context, thread string) ([]string, error) {
	runs, err := t.Service.Active(ctx, stream.ThreadID(thread))
	names := make([]string, len(runs))
	for i, run := range runs {
		names[i] = string(run)
	}
	return names, err
}

// Pending implements bridge.Threads.
func (t Threads) Pending(ctx context.Context, thread, parent string) ([]string, error) {
	return t.Service.Pending(ctx, stream.ThreadID(thread), stream.RunID(parent))
}

// Cancel implements bridge.Threads. A run that has ended meanwhile needs none.
func (t Threads) Cancel(ctx context.Context, run, reason string) error {
	err := t.Service.Cancel(ctx, stream.RunID(run), reason, t.Name)
	if errors.Is(err, stream.ErrRunEnded) || errors.Is(err, backfill.ErrUnknownRun) {
		return nil
	}
	return err
}

// Wait implements bridge.Threads.
func (t Threads) Wait(ctx context.Context, run string) error {
	session := t.Service.Watch(stream.RunID(run))
	defer session.Close()
	for {
		_, err := session.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
