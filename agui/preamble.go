package agui

import (
	"bytes"
	"slices"
)

// Preamble is what brings a subscriber who holds nothing to an entry: docs/contract.md, section 2, step by step. All
// slices are immutable and shared.
type Preamble struct {
	// Pending restates, on a thread, the earlier run whose interrupts are still open: RUN_STARTED and RUN_FINISHED.
	Pending [][]byte
	// Closings end, in a catch-up, what the subscriber takes for open and no longer is.
	Closings [][]byte
	// Start is RUN_STARTED without input; none in a catch-up.
	Start [][]byte
	// Past is MESSAGES_SNAPSHOT and STATE_SNAPSHOT with the openings around them.
	Past [][]byte
	// Passing are the CUSTOM events, PassingRaw the CUSTOM and RAW events, in order; Omitted and OmittedRaw count those
	// that the bounds left out.
	Passing, PassingRaw [][]byte
	Omitted, OmittedRaw int
	// Lanes re-open the chunk modes.
	Lanes [][]byte
	// Terminal is the run's terminal event, where it has ended.
	Terminal [][]byte
}

// Preamble makes the preamble, once for all who ask.
func (v *View) Preamble() *Preamble {
	v.once.Do(func() { v.preamble = *v.PreambleFor(Holder{}) })
	return &v.preamble
}

// Holder is what a consumer holds of the conversation when it gets a preamble or a catch-up.
type Holder struct {
	// Messages are the ids that it holds, in its order.
	Messages []string
	// Unsure says that it may hold others, or in another order: then all of it is dropped first.
	Unsure bool

	// empty says that it holds nothing but what a preamble itself opens.
	empty bool
}

// PreambleFor makes the preamble for a consumer that holds messages from an earlier run of the thread.
func (v *View) PreambleFor(h Holder) *Preamble {
	p := &Preamble{}
	if v.terminal != nil {
		p.Terminal = [][]byte{v.terminal}
	}
	if v.pending[0] != nil {
		p.Pending = v.pending[:]
	}
	if v.start == nil {
		return p // the run is nothing but its RUN_ERROR, before which nothing is legal
	}
	p.Start = [][]byte{v.start}
	p.Past = v.past(gap{holder: h, fresh: true})
	v.pass(p, Position{})
	for _, l := range v.lanes {
		p.Lanes = append(p.Lanes, l.reopen)
	}
	return p
}

// pass adds the events after j that can't be folded.
func (v *View) pass(p *Preamble, j Position) {
	customs, omitted := v.customs.since(j)
	raws, omittedRaw := v.raws.since(j)
	p.Passing, p.Omitted = rawsOf(customs), omitted
	both := append(slices.Clone(customs), raws...)
	slices.SortFunc(both, func(a, b passingEvent) int { return a.order - b.order })
	p.PassingRaw, p.OmittedRaw = rawsOf(both), omitted+omittedRaw
}

func rawsOf(events []passingEvent) [][]byte {
	out := make([][]byte, len(events))
	for i, e := range events {
		out[i] = e.raw
	}
	return out
}

// kindOrder is the order in which open items are opened again.
var kindOrder = [...]itemKind{itemStep, itemSpan, itemReasoning, itemText, itemTool}

// gap is what lies between what a consumer has and the view.
type gap struct {
	holder Holder
	fresh  bool             // it has nothing of this run
	from   Position         // else: the entry that it has
	open   map[itemKey]bool // the explicit items that it takes for open
}

// past makes the snapshots and the openings. What a snapshot doesn't hold is opened before it, which drops what the
// opening made; what it holds is opened after it, since before it the openings would decide the order of messages.
func (v *View) past(g gap) [][]byte {
	messages, legacy := v.splitLegacy()
	var out [][]byte
	for _, s := range v.subagents {
		if g.fresh || s.startedAt.After(g.from) {
			out = append(out, s.start)
		}
	}
	for _, o := range v.spanOwners {
		if !slices.ContainsFunc(messages, func(m viewMessage) bool { return m.id == o.id }) {
			out = append(out, spanEvent(ReasoningStart, o), spanEvent(ReasoningEnd, o))
		}
	}
	before, later := v.openings(g, messages)
	h := Holder{Messages: slices.Clone(g.holder.Messages), Unsure: g.holder.Unsure}
	h.empty = g.fresh && !h.Unsure && len(h.Messages) == 0
	var openers [][]byte
	for _, it := range before {
		openers = append(openers, it.opener)
		if it.kind == itemSpan {
			continue
		}
		// The consumer's chunk lanes may hold what is opened here: a snapshot closes them before.
		h.Unsure = h.Unsure || !g.fresh
		if it.kind == itemTool && it.parent != "" {
			h.Messages = append(h.Messages, it.parent) // or, if that is no assistant's, the call's own id
		}
		h.Messages = append(h.Messages, it.id)
	}
	openers = append(stubs(before, messages), openers...)
	snaps := v.legacySnapshots(h, messages, legacy)
	if h.Unsure && legacy == nil && len(openers) > 0 {
		out = append(append(out, snaps[:len(snaps)-1]...), openers...)
		if slices.ContainsFunc(messages, func(m viewMessage) bool { return slices.Contains(h.Messages[len(g.holder.Messages):], m.id) }) {
			out = append(out, snaps[:len(snaps)-1]...) // an opening made a message that belongs elsewhere
		}
		out = append(out, snaps[len(snaps)-1])
	} else {
		out = append(append(out, openers...), snaps...)
	}
	if v.StateKnown {
		out = append(out, bytes.Join([][]byte{[]byte(`{"type":"STATE_SNAPSHOT","snapshot":`), v.state, bracket}, nil))
	}
	for _, it := range later {
		out = append(out, it.opener)
	}
	for _, s := range v.subagents {
		if s.finished && (g.fresh || s.finishedAt.After(g.from)) {
			out = append(out, append(appendString([]byte(`{"type":"SUBAGENT_FINISHED","subagentRunId":`), s.id), '}'))
		}
	}
	return out
}

// openings are the items that the consumer must be told are open: before the snapshot, and after it.
func (v *View) openings(g gap, messages []viewMessage) (before, later []openItem) {
	ids, calls := map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		ids[m.id] = true
		for _, c := range m.calls {
			calls[c] = true
		}
	}
	for _, kind := range kindOrder {
		for _, it := range v.items {
			if it.kind != kind || it.legacy || g.open[it.key()] {
				continue
			}
			switch {
			case kind == itemSpan:
				it.opener = withOwner(it)
				before = append(before, it)
			case kind == itemStep:
				later = append(later, it)
			case (kind == itemTool && calls[it.id]) || (kind != itemTool && ids[it.id]):
				it.opener = v.agreeing(it, it.opener)
				later = append(later, it)
			default:
				it.opener = withOwner(it)
				before = append(before, it)
			}
		}
	}
	return before, later
}

// stubs is a snapshot with a stand-in for every open reasoning message that the conversation doesn't hold, where it holds
// no reasoning at all: the opening would make a reasoning message, which a snapshot without reasoning would leave.
func stubs(opened []openItem, messages []viewMessage) [][]byte {
	var out []viewMessage
	for _, it := range opened {
		if it.kind == itemReasoning {
			stub := append(appendString([]byte(`{"id":`), it.id), `,"role":"assistant","content":""`...)
			out = append(out, viewMessage{id: it.id, segs: [][]byte{append(appendTag(stub, it.asText), '}')}})
		}
	}
	if out == nil || slices.ContainsFunc(messages, func(m viewMessage) bool { return m.role == "reasoning" }) {
		return nil
	}
	return [][]byte{messagesSnapshot(out)}
}

// agreeing is the opener of something that the snapshot holds, without what contradicts it: for the client's verifier
// the snapshot has made the subagent that a message names the owner of it and of its calls. A call that stands in another
// message than its parent, whose owner it would inherit, needs no parent: the client knows the call.
func (v *View) agreeing(it openItem, opener []byte) []byte {
	if it.kind == itemStep {
		return opener
	}
	at := slices.IndexFunc(v.messages, func(m viewMessage) bool {
		return m.id == it.id && it.kind != itemTool || it.kind == itemTool && slices.Contains(m.calls, it.id)
	})
	if at < 0 {
		return opener
	}
	m := v.messages[at]
	if it.kind == itemTool {
		opener = withName(opener, m, it.id)
	}
	if it.parent != "" && m.id != it.parent {
		opener = append(without(opener, "parentMessageId"), '}')
	}
	tag := member(opener, "subagentRunId")
	if tag == nil || (m.role == "reasoning") != (it.kind == itemReasoning) || m.role == "activity" {
		return opener // the snapshot says nothing of this kind's owner
	}
	named := member(bytes.Join(m.segs, nil), "subagentRunId")
	if isString(named) && decode(named) == decode(tag) {
		return opener
	}
	return append(without(opener, "subagentRunId"), '}')
}

// withName is a tool call's opener with the name that the call has now, since an opener of a known call renames it.
func withName(opener []byte, m viewMessage, id string) []byte {
	var name []byte
	eachElement(member(bytes.Join(m.segs, nil), "toolCalls"), func(c []byte) bool {
		if readCall(c).id != id {
			return true
		}
		name = member(member(c, "function"), "name")
		return false
	})
	if !isString(name) {
		return opener
	}
	return append(append(append(without(opener, "toolCallName"), `,"toolCallName":`...), name...), '}')
}

// without is an opener without a member and without its last brace.
func without(opener []byte, name string) []byte {
	var out []byte
	eachMember(opener, func(key, value []byte) bool {
		if !keyIs(key, name) {
			out = appendMember(out, key, value)
		}
		return true
	})
	return append([]byte{'{'}, out...)
}

// withOwner is the opener of something that the snapshot doesn't hold, with the owner that the client's verifier knows:
// what was opened again without a tag still belongs to whoever opened it first.
func withOwner(it openItem) []byte {
	if !it.owned || it.kind == itemStep {
		return it.opener
	}
	return append(appendString(append(without(it.opener, "subagentRunId"), `,"subagentRunId":`...), it.owner), '}')
}

func spanEvent(t Type, o spanOwner) []byte {
	out := append(append([]byte(`{"type":"`), t.String()...), `","messageId":`...)
	out = append(appendString(out, o.id), `,"subagentRunId":`...)
	return append(appendString(out, o.owner), '}')
}

// legacyMessage is an open THINKING message: only a stream can restate it, since its id is the client's invention.
type legacyMessage struct {
	at      int // its place among the other messages
	openers [][]byte
}

// splitLegacy takes open legacy messages out of the list.
func (v *View) splitLegacy() ([]viewMessage, *legacyMessage) {
	var found *legacyMessage
	messages := v.messages
	for _, it := range v.items {
		if !it.legacy {
			continue
		}
		if found == nil {
			found = &legacyMessage{at: len(messages)}
		}
		found.openers = append(found.openers, it.opener)
		at := slices.IndexFunc(messages, func(m viewMessage) bool { return m.id == it.id })
		if it.kind != itemReasoning || at < 0 {
			continue
		}
		m := messages[at]
		messages = slices.Delete(slices.Clone(messages), at, at+1)
		found.at = at
		if len(m.body) > 0 || len(m.meta) > 0 {
			found.openers = append(found.openers, bytes.Join([][]byte{
				[]byte(`{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"`), m.body, []byte(`"`), m.meta, bracket,
			}, nil))
		}
	}
	return messages, found
}

// legacySnapshots puts a legacy message at its place: a snapshot of what comes before it, the message, and the whole.
func (v *View) legacySnapshots(h Holder, messages []viewMessage, legacy *legacyMessage) [][]byte {
	if legacy == nil {
		return v.snapshots(h, messages)
	}
	isReasoning := func(m viewMessage) bool { return m.role == "reasoning" }
	if legacy.at >= len(messages) || slices.ContainsFunc(messages[legacy.at:], isReasoning) {
		return append(v.snapshots(h, messages), legacy.openers...)
	}
	out := v.snapshots(h, messages[:legacy.at])
	out = append(out, legacy.openers...)
	// A snapshot without reasoning leaves the client's reasoning where it is.
	return append(out, messagesSnapshot(slices.DeleteFunc(slices.Clone(messages), isReasoning)))
}

// snapshots leaves a consumer with exactly target, in its order: one snapshot, or a shorter one first, since a snapshot
// never reorders what a consumer holds and merges messages of one id. Where they are to be merged it comes once more.
func (v *View) snapshots(h Holder, target []viewMessage) [][]byte {
	out := v.inOrder(h, target)
	if v.twins {
		out = append(out, messagesSnapshot(target))
	}
	return out
}

func (v *View) inOrder(h Holder, target []viewMessage) [][]byte {
	at := map[string]int{}
	for i, id := range h.Messages {
		if _, twice := at[id]; twice {
			i = -1
		}
		at[id] = i
	}
	times := map[string]int{}
	for _, m := range target {
		times[m.id]++
	}
	common, last := 0, -1
	for common < len(target) && !h.Unsure {
		m := target[common]
		i, ok := at[m.id]
		if times[m.id] != 1 || !ok || i <= last {
			break
		}
		last = i
		common++
	}
	moved := slices.ContainsFunc(target[common:], func(m viewMessage) bool { _, ok := at[m.id]; return ok })
	if !moved && !h.Unsure {
		return [][]byte{messagesSnapshot(target)}
	}
	return shrink(target[:common], target, v.had[0] && !h.empty, v.had[1] && !h.empty)
}

// shrink is a snapshot of short and then the one of target. A snapshot leaves a consumer's reasoning (activity) alone
// unless it holds some itself: so the short one gets a stand-in of each such role, which the full one drops. Where the
// full one holds none of the role and the consumer may, it owns all activities by the client's own convention, and the
// reasoning stand-in is made an activity before. (Clients before 1.0 don't know the convention: an activity of type "none"
// stays with them.)
func shrink(short, target []viewMessage, hadReasoning, hadActivity bool) [][]byte {
	has := func(list []viewMessage, role string) bool {
		return slices.ContainsFunc(list, func(m viewMessage) bool { return m.role == role })
	}
	first := slices.Clone(short)
	purge := false
	var turn [][]byte
	if (hadReasoning || has(target, "reasoning")) && !has(short, "reasoning") {
		first = append(first, viewMessage{segs: [][]byte{[]byte(`{"id":"stand-in-reasoning","role":"reasoning","content":""}`)}})
		if !has(target, "reasoning") {
			purge = true
			turn = [][]byte{[]byte(`{"type":"ACTIVITY_SNAPSHOT","messageId":"stand-in-reasoning","activityType":"none","content":{}}`)}
		}
	}
	if (hadActivity || has(target, "activity")) && !has(short, "activity") {
		first = append(first, viewMessage{segs: [][]byte{[]byte(`{"id":"stand-in-activity","role":"activity","activityType":"none","content":{}}`)}})
	}
	purge = (purge || hadActivity) && !has(target, "activity")
	full := messagesSnapshot(target)
	if purge {
		full = joinMessages([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":`), target,
			[]byte(`,"metadata":{"@ag-ui/client":{"authoritativeActivityTypes":null}}}`))
	}
	return append(append([][]byte{messagesSnapshot(first)}, turn...), full)
}

func messagesSnapshot(messages []viewMessage) []byte {
	return joinMessages([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":`), messages, bracket)
}
