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
	// Terminal is the run's end, where it has ended: closings and the terminal event.
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
	p := &Preamble{Terminal: v.terminal}
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
	for _, kind := range kindOrder {
		for _, it := range v.items {
			if it.kind != kind || it.legacy {
				continue
			}
			before := kind == itemSpan || (kind == itemTool && !calls[it.id]) ||
				((kind == itemText || kind == itemReasoning) && !ids[it.id])
			if !before {
				later = append(later, it.opener)
				continue
			}
			out = append(out, it.opener)
			switch {
			case kind == itemTool && it.parent != "":
				held = append(held, it.parent)
			case kind != itemSpan:
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
	hasReasoning := slices.ContainsFunc(messages, func(m viewMessage) bool { return m.role == "reasoning" })
	if legacy.at >= len(messages) || hasReasoning {
		return append(snapshots(held, messages), legacy.openers...)
	}
	out := snapshots(held, messages[:legacy.at])
	out = append(out, legacy.openers...)
	return append(out, messagesSnapshot(messages))
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
