package publish

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// judge says what raw, offered next, is: the item to write, or an *InvalidError without Index, after which nothing has
// changed. Caller holds mu.
func (r *Run) judge(raw []byte) (item, error) {
	e := &r.event
	var parsed error
	if len(raw) > r.pub.cfg.MaxEvent {
		parsed = agui.ErrTooLarge
	} else {
		parsed = e.Parse(raw)
	}
	if parsed != nil {
		var probe agui.Admission // the run's own would end with what merely looks like an end
		return item{}, invalid(probe.Refuse(parsed, raw), parsed)
	}
	pass := r.pub.cfg.PassInvalid
	if bad := r.misplaced(e); bad != nil && !pass {
		return item{}, bad
	}
	v := r.adm.Admit(e)
	if !v.Send && !v.Late && !pass {
		return item{}, invalid(v, nil)
	}
	it := item{rec: stream.Record{Event: e.Raw}, late: r.adm.Ended() && !v.End}
	if e.Type == agui.RunStarted && v.Send {
		r.noteStart()
		if !r.announced && r.info.Thread != "" {
			it.started, r.announced = true, true
		}
	}
	if v.End {
		it.ended = stateOfEnd(e, v)
		if v.Reason == agui.ReasonUnclosed {
			r.unclosed = v.Detail
		}
	}
	return it, nil
}

// misplaced finds what the run's admission must not see, because it would act on it, or can't see. Caller holds mu.
func (r *Run) misplaced(e *agui.Event) *InvalidError {
	switch {
	case r.adm.Ended():
		return nil
	case e.Type == agui.RunStarted:
		var probe agui.Admission
		if !probe.Admit(e).Send {
			return nil
		}
		thread, err := stream.ParseThreadID(e.ThreadID())
		switch {
		case err != nil:
			return &InvalidError{Path: "/threadId", Reason: agui.ReasonMalformed, Detail: "/threadId: " + err.Error()}
		case r.info.Thread != "" && thread != r.info.Thread:
			return &InvalidError{
				Path: "/threadId", Reason: agui.ReasonIllegal, Detail: "/threadId: the run belongs to another thread, and stays there",
			}
		}
	case e.Type.Terminal():
		if e.Type == agui.RunFinished && !r.adm.Started() {
			return &InvalidError{Reason: agui.ReasonBeforeStart, Detail: "RUN_FINISHED before RUN_STARTED", Terminal: true}
		}
		probe := newProbe()
		if v := probe.Admit(e); v.Reason == agui.ReasonInvalidEnd {
			bad := invalid(v, nil)
			bad.Reason = agui.ReasonMalformed
			return bad
		}
	}
	return nil
}

// newProbe returns the admission of some run that has started: what it says of an event's form it says of any.
func newProbe() *agui.Admission {
	var e agui.Event
	a := &agui.Admission{}
	if e.Parse([]byte(`{"type":"RUN_STARTED","threadId":"probe","runId":"probe"}`)) == nil {
		a.Admit(&e)
	}
	return a
}

// invalid makes an error of a verdict. cause is what Parse said, nil if it took the event.
func invalid(v agui.Verdict, cause error) *InvalidError {
	bad := &InvalidError{Reason: v.Reason, Detail: v.Detail, Terminal: v.End}
	if v.Reason == agui.ReasonInvalidEnd && cause != nil {
		var probe agui.Admission
		bad.Reason = probe.Refuse(cause, nil).Reason
	}
	if path, _, found := strings.Cut(v.Detail, ": "); found && strings.HasPrefix(path, "/") {
		bad.Path = path
	}
	return bad
}

// stateOfEnd is what the registry calls the end that an event makes.
func stateOfEnd(e *agui.Event, v agui.Verdict) stream.RunState {
	if e.Type != agui.RunFinished || v.Instead != nil {
		return stream.RunError
	}
	switch e.Outcome() {
	case "interrupt":
		return stream.RunInterrupted
	case "cancelled":
		return stream.RunCancelled
	default:
		return stream.RunFinished
	}
}

// checkInput says why input can't be recorded: it must be a JSON object, and its messages must be such as the client
// takes, since the history would lack the others. The rest of a RunAgentInput is the agent's own matter.
func checkInput(input []byte, limit int) error {
	if len(input) > limit {
		return &InvalidError{Path: "/input", Reason: agui.ReasonTooLarge, Detail: "/input: larger than an event may be"}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(input, &members); err != nil || members == nil {
		return &InvalidError{Path: "/input", Reason: agui.ReasonMalformed, Detail: "/input: expected a JSON object"}
	}
	messages := members["messages"]
	if messages == nil {
		messages = json.RawMessage("[]")
	}
	start := bytes.Join([][]byte{
		[]byte(`{"type":"RUN_STARTED","threadId":"probe","runId":"probe","input":{"threadId":"probe","runId":"probe","messages":`),
		messages, []byte(`}}`),
	}, nil)
	var probe agui.Admission
	var e agui.Event
	if err := e.Parse(start); err != nil {
		return invalid(probe.Refuse(err, nil), err)
	}
	// The members that aren't judged must be text and of a bearable depth all the same.
	if err := new(agui.Event).Parse(append(append([]byte(`{"type":"","input":`), input...), '}')); err != nil {
		return invalid(probe.Refuse(err, nil), err)
	}
	if v := probe.Admit(&e); !v.Send {
		return invalid(v, nil)
	}
	return nil
}
