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
	// Start is RUN_STARTED without input.
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
	v.once.Do(func() { v.preamble = *v.PreambleFor(nil) })
	return &v.preamble
}

// PreambleFor makes the preamble for a consumer that holds messages of these ids, in this order, from an earlier run
// of the thread.
func (v *View) PreambleFor(held []string) *Preamble {
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
	p.Past = v.past(held)
	p.Passing, p.Omitted = rawsOf(v.customs), v.omitted[0]
	both := append(slices.Clone(v.customs), v.raws...)
	slices.SortFunc(both, func(a, b passingEvent) int { return a.order - b.order })
	p.PassingRaw, p.OmittedRaw = rawsOf(both), v.omitted[0]+v.omitted[1]
	for _, l := range v.lanes {
		p.Lanes = append(p.Lanes, l.reopen)
	}
	return p
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

// past makes the snapshots and the openings. What a snapshot doesn't hold is opened before it, which drops what the
// opening made; what it holds is opened after it, since before it the openings would decide the order of messages.
func (v *View) past(held []string) [][]byte {
	held = slices.Clone(held)
	messages, legacy := v.splitLegacy()
	ids, calls := map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		ids[m.id] = true
		for _, c := range m.calls {
			calls[c] = true
		}
	}
	var out, later [][]byte
	for _, s := range v.subagents {
		out = append(out, s.start)
	}
	for _, o := range v.spanOwners {
		if !ids[o.id] {
			out = append(out, spanEvent(ReasoningStart, o), spanEvent(ReasoningEnd, o))
		}
	}
	out = append(out, stubs(v.items, ids, messages)...)
	for _, kind := range kindOrder {
		for _, it := range v.items {
			if it.kind != kind || it.legacy {
				continue
			}
			opener := it.opener
			if kind == itemSpan {
				opener = withOwner(it)
			}
			before := kind == itemSpan || (kind == itemTool && !calls[it.id]) ||
				((kind == itemText || kind == itemReasoning) && !ids[it.id])
			if !before {
				later = append(later, v.agreeing(it, opener))
				continue
			}
			out = append(out, opener)
			if kind == itemTool && it.parent != "" {
				held = append(held, it.parent) // or, if that is no assistant's, the call's own id
			}
			if kind != itemSpan {
				held = append(held, it.id)
			}
		}
	}
	out = append(out, v.legacySnapshots(held, messages, legacy)...)
	if v.StateKnown {
		out = append(out, bytes.Join([][]byte{[]byte(`{"type":"STATE_SNAPSHOT","snapshot":`), v.state, bracket}, nil))
	}
	out = append(out, later...)
	for _, s := range v.subagents {
		if s.finished {
			out = append(out, append(appendString([]byte(`{"type":"SUBAGENT_FINISHED","subagentRunId":`), s.id), '}'))
		}
	}
	return out
}

// stubs is a snapshot with a stand-in for every open reasoning message that the conversation doesn't hold, where it holds
// no reasoning at all: the opening would make a reasoning message, which a snapshot without reasoning would leave.
func stubs(items []openItem, ids map[string]bool, messages []viewMessage) [][]byte {
	var out []viewMessage
	for _, it := range items {
		if it.kind == itemReasoning && !it.legacy && !ids[it.id] {
			stub := append(appendString([]byte(`{"id":`), it.id), `,"role":"assistant","content":""}`...)
			out = append(out, viewMessage{id: it.id, segs: [][]byte{stub}})
		}
	}
	if out == nil || slices.ContainsFunc(messages, func(m viewMessage) bool { return m.role == "reasoning" }) {
		return nil
	}
	return [][]byte{messagesSnapshot(out)}
}

// agreeing is the opener of something that the snapshot holds, without its tag where the message names another subagent:
// for the client's verifier the snapshot has made that one the owner.
func (v *View) agreeing(it openItem, opener []byte) []byte {
	tag := member(opener, "subagentRunId")
	if tag == nil || it.kind == itemStep {
		return opener
	}
	at := slices.IndexFunc(v.messages, func(m viewMessage) bool {
		return m.id == it.id && it.kind != itemTool || it.kind == itemTool && slices.Contains(m.calls, it.id)
	})
	if at < 0 {
		return opener
	}
	if m := v.messages[at]; (m.role == "reasoning") != (it.kind == itemReasoning) || m.role == "activity" {
		return opener // the snapshot says nothing of this kind's owner
	}
	named := member(bytes.Join(v.messages[at].segs, nil), "subagentRunId")
	if isString(named) && decode(named) == decode(tag) {
		return opener
	}
	out := []byte{}
	eachMember(opener, func(key, value []byte) bool {
		if !keyIs(key, "subagentRunId") {
			out = appendMember(out, key, value)
		}
		return true
	})
	return append(append([]byte{'{'}, out...), '}')
}

// withOwner is a span's opener with the owner that the client's verifier knows: a span that was opened again without a
// tag still belongs to whoever opened it first.
func withOwner(it openItem) []byte {
	if !it.owned {
		return it.opener
	}
	return spanEvent(ReasoningStart, spanOwner{id: it.id, owner: it.owner})
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
func (v *View) legacySnapshots(held []string, messages []viewMessage, legacy *legacyMessage) [][]byte {
	if legacy == nil {
		return snapshots(held, messages)
	}
	isReasoning := func(m viewMessage) bool { return m.role == "reasoning" }
	if legacy.at >= len(messages) || slices.ContainsFunc(messages[legacy.at:], isReasoning) {
		return append(snapshots(held, messages), legacy.openers...)
	}
	out := snapshots(held, messages[:legacy.at])
	out = append(out, legacy.openers...)
	// A snapshot without reasoning leaves the client's reasoning where it is.
	return append(out, messagesSnapshot(slices.DeleteFunc(slices.Clone(messages), isReasoning)))
}

// snapshots leaves a consumer that holds messages of these ids with exactly target, in its order: one snapshot, or a
// shorter one first, since a snapshot never reorders what a consumer holds and merges messages of one id.
func snapshots(held []string, target []viewMessage) [][]byte {
	at := map[string]int{}
	for i, id := range held {
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
	for common < len(target) {
		m := target[common]
		i, ok := at[m.id]
		if times[m.id] != 1 || !ok || i <= last {
			break
		}
		last = i
		common++
	}
	moved := slices.ContainsFunc(target[common:], func(m viewMessage) bool { _, ok := at[m.id]; return ok })
	if !moved {
		return [][]byte{messagesSnapshot(target)}
	}
	return [][]byte{messagesSnapshot(withStandIns(target[:common], target)), messagesSnapshot(target)}
}

// withStandIns adds to a shorter snapshot one message of each role that only a snapshot with that role speaks about;
// the full snapshot drops it again.
func withStandIns(short, target []viewMessage) []viewMessage {
	has := func(list []viewMessage, role string) bool {
		return slices.ContainsFunc(list, func(m viewMessage) bool { return m.role == role })
	}
	out := slices.Clone(short)
	if has(target, "reasoning") && !has(short, "reasoning") {
		out = append(out, viewMessage{segs: [][]byte{[]byte(`{"id":"stand-in-reasoning","role":"reasoning","content":""}`)}})
	}
	if has(target, "activity") && !has(short, "activity") {
		out = append(out, viewMessage{segs: [][]byte{[]byte(`{"id":"stand-in-activity","role":"activity","activityType":"none","content":{}}`)}})
	}
	return out
}

func messagesSnapshot(messages []viewMessage) []byte {
	return joinMessages([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":`), messages, bracket)
}
