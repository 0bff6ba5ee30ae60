package bridge

import (
	"context"
	"errors"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
)

// runStarted is the RUN_STARTED of a run whose agent sent none: without it nobody would know the thread of the run, nor
// get to see what the user had asked.
type runStarted struct {
	Type        string `json:"type"`
	ThreadID    string `json:"threadId"`
	RunID       string `json:"runId"`
	ParentRunID string `json:"parentRunId,omitempty"`
}

// unwritten goes with CodeUnwritten.
const unwritten = "The hub could not write the agent's events."

// finish ends the run where the agent didn't, and says how it ended.
func (c *call) finish(ctx context.Context, err error) string {
	how := EndAgent
	if !c.writer.Ended() {
		how = endOf(err)
	}
	werr := c.close(ctx, c.writer, how, err)
	if released := c.writer.Release(ctx); werr == nil {
		werr = released
	}
	switch {
	case errors.Is(werr, publish.ErrFenced): // it is another one's to end now
	case asWriteError(werr):
		c.mend(ctx, how, err)
	case werr != nil:
		c.bridge.logger.Warn("run's end can't be announced", zap.String("run", c.run.ID()), zap.Error(werr))
	}
	return how
}

// endOf names an end: that of a failure, or else a cancel.
func endOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return EndCancelled
}

// close writes what is missing of the run: a start, what closes what is open, an end.
func (c *call) close(ctx context.Context, w *publish.Run, how string, err error) error {
	if w.Ended() {
		return w.Flush(ctx)
	}
	if err := c.start(ctx, w); err != nil {
		return err
	}
	if how == EndCancelled {
		return w.FinishCancelled(ctx)
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{code: CodeUnwritten, message: unwritten}
	}
	return w.Fail(ctx, f.code, f.message)
}

// start writes RUN_STARTED where the run has none.
func (c *call) start(ctx context.Context, w *publish.Run) error {
	if w.Started() {
		return nil
	}
	event, err := publish.Event(runStarted{
		Type: agui.RunStarted.String(), ThreadID: c.asked.ThreadID, RunID: c.asked.RunID, ParentRunID: c.asked.ParentRunID,
	})
	if err != nil {
		return err
	}
	c.started = true
	return w.Append(ctx, event)
}

const (
	mendEvery = time.Second
	mendFor   = time.Minute
)

// mend ends a run whose log failed once the log takes something again: what is written is read anew, and goes on from
// there. Where that takes too long, or the hub stops, the run is left to whoever finds it without a producer.
func (c *call) mend(ctx context.Context, how string, cause error) { //nolint:contextcheck // it also heeds the context of the run, which is another one
	ctx, cancel := context.WithTimeout(ctx, mendFor)
	defer cancel()
	life := c.run.ctx()
	stop := context.AfterFunc(life, func() { //nolint:contextcheck // the run's own, which the writing outlives
		if errors.Is(context.Cause(life), errStopped) {
			cancel()
		}
	})
	defer stop()
	log := c.bridge.logger.With(zap.String("run", c.run.ID()))
	timer := time.NewTimer(mendEvery)
	defer timer.Stop()
	for {
		err := c.tryMend(ctx, how, cause)
		if err == nil {
			return
		}
		select {
		case <-timer.C:
			timer.Reset(mendEvery)
		case <-ctx.Done():
			log.Warn("run is left without an end", zap.Error(err))
			return
		}
	}
}

func (c *call) tryMend(ctx context.Context, how string, cause error) error {
	w, err := c.bridge.opener.Open(ctx, publish.RunConfig{Run: c.writer.ID(), Continue: true})
	if errors.Is(err, publish.ErrEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	if !w.Existed() {
		if err := w.SetInput(c.input); err != nil {
			return errors.Join(err, w.Release(ctx))
		}
	}
	if how == EndAgent {
		how = CodeUnwritten
	}
	err = c.close(ctx, w, how, cause)
	return errors.Join(err, w.Release(ctx))
}

// withoutURL leaves an agent's URL, whose query may hold a secret, out of an error's text.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
