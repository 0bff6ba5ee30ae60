package agui

import (
	"bytes"
	"errors"
)

// Conversation is what a run's fold begins with and what it leaves for the next run of its thread. It is immutable.
type Conversation struct {
	Messages   [][]byte // whole JSON objects
	State      []byte   // JSON; meaningful where StateKnown
	StateKnown bool
	// Full says whether the inputs of all runs of the path are known.
	Full bool
	// Pending and PendingEnd are the RUN_STARTED (compact) and RUN_FINISHED of the run whose interrupts are still open;
	// nil where none are.
	Pending, PendingEnd []byte
	// LastStart and LastFinish are those of the newest run of the path that ended with RUN_FINISHED; nil where none did.
	LastStart, LastFinish []byte
}

// Run is one run as of one entry: what was admitted, what is open, and the fold. Nobody may use it at the same time as
// its owner; Views of it are immutable and free.
type Run struct {
	config RunConfig
	base   *Conversation

	event Event
	adm   Admission
	fold  *fold

	input    []byte // recorded with an entry before or at RUN_STARTED
	known    bool   // the input is known, whole
	inEvent  bool   // it stands in RUN_STARTED
	terminal []byte
	entries  int
	at       Position
	view     *View // of the current entry, made at need
}

// RunConfig says what a Run may take.
type RunConfig struct {
	// MaxEvent is the largest event in bytes that is admitted; 0 is 8 MiB.
	MaxEvent int
	// PassInvalid admits whatever is valid JSON (--invalid=pass).
	PassInvalid bool
}

// DefaultMaxEvent is the size limit of an event: docs/contract.md, section 1.
const DefaultMaxEvent = 8 << 20

// NewRun is a run before its first entry. base is what its thread's conversation was when it started; nil where there
// is no earlier run.
func NewRun(base *Conversation, config RunConfig) *Run {
	if config.MaxEvent <= 0 {
		config.MaxEvent = DefaultMaxEvent
	}
	return &Run{config: config, base: base, fold: newFold(base)}
}

// Rebase sets what the run starts from, where that was found out only after entries before its start were applied. It
// has no effect once the run has started.
func (r *Run) Rebase(base *Conversation) {
	if !r.adm.Started() {
		r.base, r.fold, r.view = base, newFold(base), nil
	}
}

// Entry is one entry of a run's stream as the fold needs it.
type Entry struct {
	At      Position
	Event   []byte // immutable from here on
	Input   []byte // the field input, nil where absent
	NoEvent bool   // there was no field event
}

// Apply takes the next entry. The Verdict's slices are immutable; Verdict.Event is the event as it may be sent.
func (r *Run) Apply(en Entry) Verdict {
	r.view = nil
	r.entries++
	r.at, r.adm.at = en.At, en.At
	if en.Input != nil && r.input == nil && !r.adm.Started() && checkValue(en.Input) == nil {
		r.input = bytes.TrimSpace(en.Input)
	}
	v := r.admit(en)
	if v.Restart {
		r.fold = newFold(r.base)
		r.terminal = nil
	}
	r.fold.at = en.At
	if v.Fold {
		r.take()
		if refusal, out := outgrown(r.fold.refused); out {
			v, r.fold.refused = refusal, nil
		}
	}
	r.markPrivate(&v)
	if v.End {
		r.end(v)
	}
	return v
}

// markPrivate notes what of a verdict a veil hides. It comes behind the fold, which knows the roles of messages.
func (r *Run) markPrivate(v *Verdict) {
	if v.Fold {
		switch ef := r.adm.effect(); ef.typ {
		case TextMessageStart, TextMessageContent, TextMessageEnd:
			v.Private = r.isPrivate(ef.id)
		default:
		}
	}
	for i, c := range v.Closings {
		if r.hides(c) {
			if v.PrivateClosings == nil {
				v.PrivateClosings = make([]bool, len(v.Closings))
			}
			v.PrivateClosings[i] = true
		}
	}
}

// otherThread says whether the event is a RUN_STARTED of another thread than the run began in: that one stays its own.
func (r *Run) otherThread() bool {
	if r.event.Type != RunStarted || r.adm.Ended() || r.fold.started == nil {
		return false
	}
	thread := member(r.fold.started, "threadId")
	return isString(thread) && checkEvent(&r.event) == nil && decode(thread) != r.event.ThreadID()
}

func (r *Run) admit(en Entry) Verdict {
	switch {
	case en.NoEvent:
		return Verdict{Reason: ReasonNoEvent, Detail: "the entry has no field event"}
	case len(en.Event) > r.config.MaxEvent:
		return r.adm.Refuse(ErrTooLarge, en.Event)
	}
	if err := r.event.Parse(en.Event); err != nil {
		return r.adm.Refuse(err, en.Event)
	}
	if r.event.Type == StateDelta {
		if v, fatal := r.patch(); fatal {
			return v
		}
	}
	if r.otherThread() {
		return withheld(ReasonOtherThread, "RUN_STARTED of another thread than the run began in")
	}
	v := r.adm.Admit(&r.event)
	v.Event = r.event.Raw
	if r.config.PassInvalid && !v.Send && v.Instead == nil && !v.Late {
		v.Send = true
	}
	return v
}

// patch applies a STATE_DELTA ahead of its admission, where nothing else can be wrong with it: a patch that would put a
// function or a cycle into the client's state ends the client's run, though nothing is wrong with the event's shape.
func (r *Run) patch() (v Verdict, fatal bool) {
	if !r.adm.Started() || r.adm.Ended() || checkEvent(&r.event) != nil {
		return Verdict{}, false
	}
	err := r.fold.patchState(r.event.get(fDelta))
	if v, out := outgrown(err); out {
		return v, true
	}
	if !errors.Is(err, errInherited) && !errors.Is(err, errCircular) {
		return Verdict{}, false
	}
	return withheld(ReasonIllegal, "the patch would break the client: "+err.Error()), true
}

// outgrown withholds a patch that the client could follow and the fold can't, within its bounds: nobody gets it, and it is
// said, so that those who come later hold what the others do.
func outgrown(err error) (v Verdict, out bool) {
	switch {
	case errors.Is(err, errTooLarge):
		return withheld(ReasonTooLarge, "the patch makes too much of what it patches: "+err.Error()), true
	case errors.Is(err, ErrTooDeep):
		return withheld(ReasonTooDeep, "what the patch makes nests too deep: "+err.Error()), true
	default:
		return Verdict{}, false
	}
}

// take folds the event that was admitted last.
func (r *Run) take() {
	ef := r.adm.effect()
	if ef.typ == RunStarted {
		r.start()
		return
	}
	if r.event.Type >= ThinkingStart {
		ef.id = r.legacyID(ef.id)
	}
	r.fold.apply(&r.event, ef)
}

// legacyID makes the id that stands for one of the client's random ones unique in the thread.
func (r *Run) legacyID(id string) string { return id + "-" + r.fold.runID }

// start takes the RUN_STARTED that was admitted last.
func (r *Run) start() {
	f := r.fold
	f.started, f.runID = compactStart(&r.event), r.event.RunID()
	input, verbatim := r.event.get(fInput), false
	r.inEvent = isObject(input)
	if !r.inEvent {
		input, verbatim = r.input, true
	}
	r.known = f.begin(input, verbatim)
}

// end notes what ended the run. Closings aren't needed by those who come later: they have nothing open.
func (r *Run) end(v Verdict) {
	if !r.adm.Started() && r.fold.started == nil {
		r.startless()
	}
	switch {
	case v.Instead != nil:
		r.terminal = v.Instead
	case v.Send:
		r.terminal = v.Event
	}
}

// startless makes up for the RUN_STARTED of a run that is nothing but its end: without one the messages that it
// started from couldn't be shown. The recorded input names the ids.
func (r *Run) startless() {
	thread, run := member(r.input0(), "threadId"), member(r.input0(), "runId")
	if !isString(thread) || !isString(run) {
		return
	}
	r.known = r.fold.begin(r.input, true)
	r.fold.started = bytes.Join([][]byte{
		[]byte(`{"type":"RUN_STARTED","threadId":`), thread, []byte(`,"runId":`), run, bracket,
	}, nil)
}

// input0 is the recorded input, or an empty object.
func (r *Run) input0() []byte {
	if isObject(r.input) {
		return r.input
	}
	return []byte("{}")
}

// Base is what the run started from; nil where there is no earlier run.
func (r *Run) Base() *Conversation { return r.base }

// Started says whether the run has begun, Ended whether it is over.
func (r *Run) Started() bool { return r.adm.Started() }

// Ended says whether the run's terminal event was applied.
func (r *Run) Ended() bool { return r.adm.Ended() }

// Full says whether the inputs of this run and of the path before it are known. Before the run has started it is false.
func (r *Run) Full() bool { return r.known && (r.base == nil || r.base.Full) }

// InputKnown says whether this run's input is known, InputInEvent whether it stands in its RUN_STARTED, where every
// client sees it.
func (r *Run) InputKnown() bool { return r.known }

// InputInEvent says whether the run's input stands in its RUN_STARTED.
func (r *Run) InputInEvent() bool { return r.inEvent }

// Size is what the fold weighs in memory, in bytes, roughly, with the large events that were made of its newest view.
func (r *Run) Size() int {
	size := r.fold.size + r.fold.customs.bytes + r.fold.raws.bytes
	if r.view != nil {
		size += int(r.view.restated.held.Load())
	}
	return size
}

// Conversation is what the run leaves for the next one.
func (r *Run) Conversation() *Conversation {
	f := r.fold
	c := &Conversation{Full: r.Full(), StateKnown: f.stateKnown, Pending: f.pending, PendingEnd: f.pendingEnd}
	c.LastStart, c.LastFinish = f.lastStart, f.lastFinish
	c.Messages = make([][]byte, len(f.msgs))
	var segs [][]byte
	for i, m := range f.msgs {
		segs = m.segments(segs[:0])
		c.Messages[i] = bytes.Join(segs, nil)
	}
	if f.stateKnown {
		c.State = f.state.raw()
	}
	return c
}

// Size is what the conversation weighs in memory, in bytes.
func (c *Conversation) Size() int {
	return sizeOf(c.Messages) + len(c.State) + len(c.Pending) + len(c.PendingEnd) + len(c.LastFinish)
}

// compactStart is a RUN_STARTED with what a preamble may repeat: ids and version, never the input.
func compactStart(e *Event) []byte {
	out := append(make([]byte, 0, 128), `{"type":"RUN_STARTED"`...)
	for _, f := range [...]field{fThreadID, fRunID, fProtocolVersion, fParentRunID} {
		if v := e.get(f); isString(v) {
			out = append(out, ',', '"')
			out = append(out, fieldNames[f]...)
			out = append(append(out, '"', ':'), v...)
		}
	}
	return append(out, '}')
}
