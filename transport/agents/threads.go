package agents

import (
	"context"
	"errors"
	"io"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/stream"
)

// Canceller asks runs to end, whoever publishes them.
type Canceller interface {
	Cancel(ctx context.Context, run stream.RunID, reason, by string) error
}

// Threads tells a bridge what goes on in a thread. It implements bridge.Threads.
type Threads struct {
	Service *backfill.Service
	// Canceller reaches runs that this process doesn't publish. Nil means that nothing does: they can't be superseded.
	Canceller Canceller
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

// Cancel implements bridge.Threads.
func (t Threads) Cancel(ctx context.Context, run, reason string) error {
	if t.Canceller == nil {
		return &bridge.BusyError{Run: run}
	}
	return t.Canceller.Cancel(ctx, stream.RunID(run), reason, "bridge")
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
