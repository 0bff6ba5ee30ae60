package agents

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/bridge"
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

// Claims lets hubs claim threads. It implements bridge.Claims.
type Claims struct {
	Service *backfill.Service
	Log     Claimer
	TTL     time.Duration // of a claim that nobody keeps
}

// Claimer is where threads are claimed (stream.Redis).
type Claimer interface {
	ClaimThread(ctx context.Context, thread stream.ThreadID, c, over stream.ThreadClaim, ttl time.Duration) (stream.ThreadClaim, error)
	KeepThread(ctx context.Context, thread stream.ThreadID, c stream.ThreadClaim, ttl time.Duration) (bool, error)
}

func claimOf(h bridge.Holder) stream.ThreadClaim {
	return stream.ThreadClaim{Token: h.Token, Run: stream.RunID(h.Run)}
}

// Claim implements bridge.Claims.
func (c Claims) Claim(ctx context.Context, thread string, h, over bridge.Holder) (bridge.Holder, error) {
	held, err := c.Log.ClaimThread(ctx, stream.ThreadID(thread), claimOf(h), claimOf(over), c.TTL)
	return bridge.Holder{Token: held.Token, Run: string(held.Run)}, err
}

// Keep implements bridge.Claims.
func (c Claims) Keep(ctx context.Context, thread string, h bridge.Holder) (bool, error) {
	return c.Log.KeepThread(ctx, stream.ThreadID(thread), claimOf(h), c.TTL)
}

// Let implements bridge.Claims.
func (c Claims) Let(ctx context.Context, thread string, h bridge.Holder) error {
	_, err := c.Log.KeepThread(ctx, stream.ThreadID(thread), claimOf(h), 0)
	return err
}

// Look implements bridge.Claims.
func (c Claims) Look(ctx context.Context, run string) (known, over bool, err error) {
	return c.Service.Look(ctx, stream.RunID(run))
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
	session := t.Service.Watch(stream.RunID(run), nil)
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
