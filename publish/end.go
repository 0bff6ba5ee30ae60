package publish

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aguihub/aguihub/agui"
)

// End is what a RUN_FINISHED says. The zero value is a plain success. Nil fields are left out; all are JSON.
type End struct {
	Result  json.RawMessage // any value
	Outcome json.RawMessage // an object with a type: success, interrupt or cancelled
	Usage   json.RawMessage // an array of usage objects
}

// outcomeCancelled is the outcome of a run that ended because it was asked to.
var outcomeCancelled = json.RawMessage(`{"type":"cancelled"}`)

// FinishCancelled is Finish with the outcome cancelled.
func (r *Run) FinishCancelled(ctx context.Context) error {
	return r.Finish(ctx, End{Outcome: outcomeCancelled})
}

// CodeUnfinished is the code of the RUN_ERROR that Close writes for a run that was left open.
const CodeUnfinished = "unfinished"

// runFinished, runError and runStarted are the events that this package writes itself.
type runFinished struct {
	Type     string          `json:"type"`
	ThreadID string          `json:"threadId"`
	RunID    string          `json:"runId"`
	Result   json.RawMessage `json:"result,omitempty"`
	Outcome  json.RawMessage `json:"outcome,omitempty"`
	Usage    json.RawMessage `json:"usage,omitempty"`
}

type runError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

type runStarted struct {
	Type        string `json:"type"`
	ThreadID    string `json:"threadId"`
	RunID       string `json:"runId"`
	ParentRunID string `json:"parentRunId,omitempty"`
}

// start writes RUN_STARTED.
func (r *Run) start(ctx context.Context) error {
	event, err := Event(runStarted{
		Type: agui.RunStarted.String(), ThreadID: string(r.info.Thread), RunID: string(r.info.Run), ParentRunID: string(r.info.Parent),
	})
	if err != nil {
		return err
	}
	if err := r.Append(ctx, event); err != nil {
		return err
	}
	return r.Flush(ctx)
}

// Finish closes whatever is open, in an order that is legal, writes RUN_FINISHED, tells the registry, and returns when
// all of it is done. Errors: ErrEnded, ErrNotStarted, *InvalidError for a malformed end, after which the run is still
// open, and those of Flush.
func (r *Run) Finish(ctx context.Context, end End) error {
	r.mu.Lock()
	err := r.finishable()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := r.claim(ctx, 1); err != nil {
		return err
	}
	r.mu.Lock()
	if err = r.finishable(); err == nil {
		err = r.pushEnd(runFinished{
			Type: agui.RunFinished.String(), ThreadID: r.startThread, RunID: r.startRun,
			Result: end.Result, Outcome: end.Outcome, Usage: end.Usage,
		})
		r.setTimer(ctx)
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.Flush(ctx)
}

// finishable says why the run can't be finished. Caller holds mu.
func (r *Run) finishable() error {
	err := r.usable()
	switch {
	case err != nil:
		return err
	case r.adm.Ended():
		return ErrEnded
	case !r.adm.Started():
		return ErrNotStarted
	default:
		return nil
	}
}

// Fail is Finish with RUN_ERROR: message is for people, code for programs, and may be empty. It may come first of all.
func (r *Run) Fail(ctx context.Context, code, message string) error {
	if err := r.claim(ctx, 1); err != nil {
		return err
	}
	r.mu.Lock()
	err := r.fail(ctx, code, message)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.Flush(ctx)
}

// fail buffers what ends the run. Caller holds mu.
func (r *Run) fail(ctx context.Context, code, message string) error {
	if err := r.usable(); err != nil {
		return err
	}
	if r.adm.Ended() {
		return ErrEnded
	}
	defer r.setTimer(ctx)
	return r.pushEnd(runError{Type: agui.RunError.String(), Message: message, Code: code})
}

// pushEnd buffers the closings of what is open and a terminal event. Caller holds mu.
func (r *Run) pushEnd(event any) error {
	raw, err := Event(event)
	if err != nil {
		return err
	}
	var e agui.Event
	if err := e.Parse(raw); err != nil {
		return err
	}
	probe := newProbe()
	verdict := probe.Admit(&e)
	if verdict.Reason == agui.ReasonInvalidEnd {
		bad := invalid(verdict, nil)
		bad.Reason = agui.ReasonMalformed
		return bad
	}
	for _, closing := range sealAdmission(r.adm, &e) {
		r.push(item{rec: recordOf(closing)})
	}
	r.push(item{rec: recordOf(e.Raw), ended: stateOfEnd(&e, verdict)})
	return nil
}

// sealAdmission ends a run's admission with a terminal event and returns what closes the open items.
func sealAdmission(adm *agui.Admission, e *agui.Event) [][]byte {
	if e.Type == agui.RunError && adm.Started() {
		// A client needs no closings before a RUN_ERROR, but those who read the log by themselves are better off with
		// them, and only a RUN_FINISHED makes the admission tell them.
		var end agui.Event
		if err := end.Parse([]byte(`{"type":"RUN_FINISHED","threadId":"","runId":""}`)); err == nil {
			return adm.Admit(&end).Closings
		}
	}
	return adm.Admit(e).Closings
}

// Close ends the Run: a run that hasn't ended gets RUN_ERROR with the code CodeUnfinished, since leaving it open would
// have clients wait for more. It is meant to be deferred: after Finish or Fail it does nothing but write what is
// buffered, and it may be called more than once. Errors are those of Flush.
func (r *Run) Close(ctx context.Context) error {
	err := r.claimToEnd(ctx)
	if err == nil {
		r.mu.Lock()
		err = r.fail(ctx, CodeUnfinished, "The agent left before the run was finished.")
		r.mu.Unlock()
	}
	if err != nil && !errors.Is(err, ErrEnded) && !errors.Is(err, ErrReleased) {
		return errors.Join(err, r.Release(ctx))
	}
	return r.Release(ctx)
}

// Release lets go of the run without ending it: it writes what is buffered and waits until nothing of this Run is
// under way any more. Somebody else may go on with the run; unless somebody does before the lease lapses, hubs take the
// producer for lost and end the run. It may be called more than once. Errors are those of Flush.
func (r *Run) Release(ctx context.Context) error {
	r.mu.Lock()
	r.released = true
	r.mu.Unlock()
	err := r.Flush(ctx)
	if err == nil {
		err = r.settleSequence(ctx)
	}
	r.renewOnce(ctx)
	r.mu.Lock()
	if len(r.pending) == 0 {
		r.stopTimer()
	}
	r.mu.Unlock()
	r.timers.Wait()
	r.cancel(ErrReleased)
	r.pub.keeper.remove(r)
	r.keepPast()
	return err
}
