package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

const (
	// runsPerThread bounds a thread's history.
	runsPerThread = 5
	// maxRuns bounds the search for a run that isn't there yet.
	maxRuns = 1 << 30
	// stopTimeout is how long the end of a run may take once the agent is to stop.
	stopTimeout = 5 * time.Second
	// retryAfter is the pause after a run that could not be written.
	retryAfter = 2 * time.Second
)

// CodeStopped is the code of the RUN_ERROR of a run during which the agent was stopped.
const CodeStopped = "stopped"

// Config is the agent's pace. The zero value is ready for use; nothing may change while running.
type Config struct {
	// Rate is how many times faster than a person's pace it goes, at which a run takes about 20 s. 0 means 1.
	Rate float64
	// Pause is the time between two runs, at Rate 1. 0 means 6 s.
	Pause time.Duration
}

// Opener opens runs: *publish.Publisher.
type Opener interface {
	Open(ctx context.Context, rc publish.RunConfig) (*publish.Run, error)
}

// Agent publishes the runs demo-1, demo-2, … in the threads demo, demo-thread-2, …, five each.
type Agent struct {
	opener Opener
	cfg    Config
	logger *zap.Logger
}

// New returns an agent that publishes through opener. It fails if cfg is invalid.
func New(opener Opener, cfg Config, logger *zap.Logger) (*Agent, error) {
	if cfg.Rate < 0 || cfg.Pause < 0 {
		return nil, errors.New("demo: a pace is negative")
	}
	if cfg.Rate == 0 {
		cfg.Rate = 1
	}
	if cfg.Pause == 0 {
		cfg.Pause = 6 * time.Second
	}
	return &Agent{opener: opener, cfg: cfg, logger: logger}, nil
}

// RunID and ThreadID name run number n, from 1 on.
func RunID(n int) stream.RunID { return stream.RunID("demo-" + strconv.Itoa(n)) }

// ThreadID names the thread of run number n.
func ThreadID(n int) stream.ThreadID {
	if k := (n-1)/runsPerThread + 1; k > 1 {
		return stream.ThreadID("demo-thread-" + strconv.Itoa(k))
	}
	return "demo"
}

// Run publishes until ctx ends and returns ctx's error. The run under way ends with RUN_ERROR and the code CodeStopped
// then, which takes 5 s at most. A run that somebody cancels ends with the outcome cancelled, and the next one follows. A
// log that is away is waited for. One agent at a time may write to a log.
func (a *Agent) Run(ctx context.Context) error {
	n := 0
	for {
		pause := a.cfg.Pause
		next, err := a.next(ctx, n)
		if err == nil {
			n = next
			err = a.publish(ctx, n)
		}
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, ctx.Err()) {
				a.logger.Warn("demo run left open", zap.String("run", string(RunID(n))), zap.Error(err))
			}
			return ctx.Err()
		}
		if err != nil {
			a.logger.Warn("demo run can't be written", zap.String("run", string(RunID(max(n, 1)))), zap.Error(err))
			pause = retryAfter
		}
		if err := a.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// next returns the number of the next run, after the last one that this process has written; 0 means none yet. Where an
// earlier process has left runs it begins with a thread of its own: the last of those may have been left open.
func (a *Agent) next(ctx context.Context, last int) (int, error) {
	if last > 0 {
		return last + 1, a.mend(ctx, last)
	}
	for high := 0; high < maxRuns; high = high*2 + 1 { // first runs of threads: 0, 1, 3, 7, … threads on
		free, err := a.free(ctx, high*runsPerThread+1)
		if err != nil {
			return 0, err
		}
		if free {
			return a.firstFree(ctx, (high-1)/2, high)
		}
	}
	return 0, errors.New("demo: no free run")
}

// firstFree returns the first run of the first free thread above low, whose first run is taken (or below 0, which has
// none), up to high, which is free.
func (a *Agent) firstFree(ctx context.Context, low, high int) (int, error) {
	for high-low > 1 {
		mid := (low + high) / 2
		free, err := a.free(ctx, mid*runsPerThread+1)
		if err != nil {
			return 0, err
		}
		if free {
			high = mid
		} else {
			low = mid
		}
	}
	return high*runsPerThread + 1, nil
}

// free tells whether a run has no entries.
func (a *Agent) free(ctx context.Context, n int) (bool, error) {
	run, err := a.opener.Open(ctx, publish.RunConfig{Run: RunID(n)})
	switch {
	case errors.Is(err, publish.ErrExists), errors.Is(err, publish.ErrEnded):
		return false, nil
	case err != nil:
		return false, err
	default:
		return true, run.Release(ctx)
	}
}

// mend ends a run that this process could not end.
func (a *Agent) mend(ctx context.Context, n int) error {
	run, err := a.opener.Open(ctx, publish.RunConfig{Run: RunID(n), Continue: true})
	switch {
	case errors.Is(err, publish.ErrEnded):
		return nil
	case err != nil:
		return err
	case !run.Existed(): // deleted, or never written
		return run.Release(ctx)
	default:
		return run.Close(ctx)
	}
}

// publish writes one run.
func (a *Agent) publish(ctx context.Context, n int) error {
	s := scriptOf(n)
	run, err := a.opener.Open(ctx, publish.RunConfig{
		Run: RunID(n), Thread: ThreadID(n), Input: s.input(n), Start: true,
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	playing, stop := run.Bound(ctx)
	defer stop()
	err = a.play(playing, run, s)
	cancelled := errors.Is(context.Cause(playing), publish.ErrCancelled)
	// From here on the run must end, whatever becomes of ctx.
	stopped := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	switch {
	case stopped:
		err = run.Fail(ctx, CodeStopped, "The demo agent was stopped.")
	case cancelled:
		err = run.FinishCancelled(ctx)
	case err == nil:
		err = run.Finish(ctx, publish.End{
			Result:  json.RawMessage(`{"city":` + quoted(s.city.name) + `}`),
			Outcome: json.RawMessage(`{"type":"success"}`),
			Usage:   json.RawMessage(`[{"provider":"demo","model":"script","inputTokens":420,"outputTokens":360,"totalTokens":780}]`),
		})
	}
	return errors.Join(err, run.Close(ctx))
}

// play writes a script at its pace.
func (a *Agent) play(ctx context.Context, run *publish.Run, s script) error {
	for _, b := range s.beats {
		if err := a.wait(ctx, b.pause); err != nil {
			return err
		}
		if err := run.Append(ctx, b.event); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for d at the agent's rate, or until ctx ends.
func (a *Agent) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(time.Duration(float64(d) / a.cfg.Rate))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
