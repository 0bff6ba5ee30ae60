package agui

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
)

// View is a run at one entry, immutable: it shares the run's bytes, and the run goes on beside it. Its methods may be
// called by anyone at once.
type View struct {
	// Started and Ended say how far the run was; Full whether its history is.
	Started, Ended, Full bool
	// StateKnown says whether State is more than a guess.
	StateKnown bool

	start     []byte // compact RUN_STARTED; nil if the run began with its RUN_ERROR
	messages  []viewMessage
	state     []byte
	items     []openItem
	subagents []subagent
	lanes     []lane
	// spanOwners are the subagents that own reasoning ids which are no longer open.
	spanOwners []spanOwner
	closed     history
	customs    passing
	raws       passing
	pending    [2][]byte
	terminal   []byte
	shuffled   Position
	had        [2]bool // reasoning, activity messages: ever
	// twins says that a snapshot has made messages of one id one and the same for the client: what one gets, all get.
	twins      bool
	last       [2][]byte // the path's newest RUN_STARTED and RUN_FINISHED
	lastBefore [2][]byte // the same before this run

	once     sync.Once
	preamble Preamble
	veilOnce sync.Once
	veiled   *View

	restated restated
}

type viewMessage struct {
	id, role string
	self     *message // the fold's, for comparison only: it goes on changing
	at       Position
	legacy   bool // made by THINKING_*: a client knows it by another id
	calls    []string
	segs     [][]byte
	// stream is what re-streams a legacy reasoning message, whose id only the client knows.
	body []byte
	meta []byte
}

// View is the run as of the entry that was applied last. It costs one small step a message; the bytes are shared.
func (r *Run) View() *View {
	if r.view != nil {
		return r.view
	}
	f := r.fold
	v := &View{
		Started: r.adm.Started(), Ended: r.adm.Ended(), Full: r.Full(), StateKnown: f.stateKnown,
		start: f.started, items: r.adm.items(), subagents: r.adm.subagents(), lanes: r.adm.lanes(),
		spanOwners: r.adm.spanOwners(), closed: r.adm.closed, last: [2][]byte{f.lastStart, f.lastFinish},
		customs: f.customs.clone(), raws: f.raws.clone(), terminal: r.terminal, shuffled: f.shuffled,
		had: [2]bool{f.hadReasoning, f.hadActivity}, twins: !r.adm.Ended() && f.twins(), restated: restated{held: new(atomic.Int64)},
	}
	if r.base != nil {
		v.lastBefore = [2][]byte{r.base.LastStart, r.base.LastFinish}
	}
	if f.stateKnown {
		v.state = f.state.raw()
	}
	if f.pending != nil && (!r.adm.Ended() || !bytes.Equal(f.pending, f.started)) {
		v.pending = [2][]byte{f.pending, f.pendingEnd}
	}
	size := len(v.state)
	var segs [][]byte
	v.messages = make([]viewMessage, len(f.msgs))
	for i, m := range f.msgs {
		from := len(segs)
		segs = m.segments(segs)
		size += sizeOf(segs[from:]) + messageCost
		vm := viewMessage{id: m.id, role: m.role, self: m, at: m.at, legacy: m.legacy, segs: slices.Clip(segs[from:])}
		for _, c := range m.calls {
			vm.calls = append(vm.calls, c.id)
		}
		v.messages[i] = vm
	}
	for i := range v.items {
		if !v.items[i].legacy {
			continue
		}
		v.items[i].id = r.legacyID(v.items[i].id)
		if m := f.byID[v.items[i].id]; m != nil && v.items[i].kind == itemReasoning {
			v.keepLegacy(m)
		}
	}
	f.size, f.measured = size, size
	r.view = v
	return v
}

// keepLegacy notes what is needed to stream an open legacy message again.
func (v *View) keepLegacy(m *message) {
	for i := range v.messages {
		if v.messages[i].id == m.id {
			v.messages[i].body = slices.Clip(m.body)
			v.messages[i].meta = m.meta.appendMember(nil)
		}
	}
}

// MessageIDs are the ids of the conversation's messages, decoded, in order.
func (v *View) MessageIDs() []string {
	ids := make([]string, len(v.messages))
	for i, m := range v.messages {
		ids[i] = m.id
	}
	return ids
}

// HasOpenCalls says whether a tool call is open. Clients up to 0.0.57 double such a call when they attach.
func (v *View) HasOpenCalls() bool {
	return slices.ContainsFunc(v.items, func(it openItem) bool { return it.kind == itemTool }) ||
		slices.ContainsFunc(v.lanes, func(l lane) bool { return l.kind == itemTool })
}

// LastFinishBefore is LastFinish as of this run's start.
func (v *View) LastFinishBefore() (start, finish []byte) { return v.lastBefore[0], v.lastBefore[1] }

// Interrupts says whether a RUN_FINISHED leaves interrupts open; nil doesn't.
func Interrupts(finish []byte) bool {
	var e Event
	return finish != nil && e.Parse(finish) == nil && e.Outcome() == "interrupt"
}

// LastFinish is the RUN_FINISHED of the newest run of the path that ended with one, and that run's RUN_STARTED without
// input: what a client's pending interrupts come from. Nil where none did.
func (v *View) LastFinish() (start, finish []byte) { return v.last[0], v.last[1] }

// Messages is the conversation as a JSON array.
func (v *View) Messages() []byte { return joinMessages(nil, v.messages, nil) }

// State is the state as JSON, null where it isn't known.
func (v *View) State() []byte {
	if !v.StateKnown {
		return []byte("null")
	}
	return v.state
}

// Size is what the conversation and the state weigh as JSON, in bytes.
func (v *View) Size() int {
	n := len(v.state)
	for _, m := range v.messages {
		n += sizeOf(m.segs) + 1
	}
	return n
}

func joinMessages(head []byte, messages []viewMessage, tail []byte) []byte {
	n := len(head) + len(tail) + 2
	for _, m := range messages {
		n += sizeOf(m.segs) + 1
	}
	out := append(append(make([]byte, 0, n), head...), '[')
	for i, m := range messages {
		if i > 0 {
			out = append(out, ',')
		}
		for _, s := range m.segs {
			out = append(out, s...)
		}
	}
	return append(append(out, ']'), tail...)
}
