package agui

import (
	"bytes"
	"slices"
	"strings"
)

// itemKind is what an open item is.
type itemKind uint8

const (
	itemText itemKind = iota
	itemTool
	itemReasoning
	itemSpan
	itemStep
	numItemKinds
)

// itemNames are the kinds in words for people.
var itemNames = [numItemKinds]string{"text message", "tool call", "reasoning message", "reasoning span", "step"}

// tag is the subagent that an event is attributed to, or none: the parent agent. The empty id is a subagent like any
// other.
type tag struct {
	id  string
	set bool
}

// opened is an item that is open.
type opened struct {
	// Static after open.
	kind   itemKind
	id     string
	tag    tag // of the opener
	opener []byte
	parent string
	legacy bool

	at         Position   // where it was opened
	held       *laneState // the chunk lane that holds it, nil for an explicit one
	prev, next *opened    // in the order of opening
}

type stepKey struct {
	owner tag
	name  string
}

// bucket is a name space of ids: owners are kept by it, since a message and a tool call may share an id.
type bucket uint8

const (
	inMessages bucket = iota
	inTools
	inActivities
	inReasoning // spans and reasoning messages
	numBuckets
)

var bucketOf = [numItemKinds]bucket{itemText: inMessages, itemTool: inTools, itemReasoning: inReasoning, itemSpan: inReasoning}

// openItem is an item that is open, as a preamble needs it.
type openItem struct {
	kind itemKind
	id   string // of a step its name
	// owner is the subagent that the client's verifier holds for the item's owner, where owned; else the parent agent
	// owns it. It is what later events of the item may be tagged with. The opener itself may carry no tag.
	owner  string
	owned  bool
	opener []byte // opens it again: what the protocol knows of its opener, without metadata, rawEvent and timestamp
	legacy bool   // opened by THINKING_*: its id is ours, a client's is random
	parent string // of a tool call: the message that parentMessageId names; "" where it names none
	asText tag    // who owns the id as that of a text message, for the client's verifier
	at     Position
}

// subagent is a subagent of the run, finished or not.
type subagent struct {
	id       string
	start    []byte // its SUBAGENT_STARTED, compact
	finished bool

	startedAt, finishedAt Position
}

// items returns what is open and not held by a chunk lane, in the order of opening.
func (a *Admission) items() []openItem {
	var out []openItem
	for o := a.first; o != nil; o = o.next {
		if o.held != nil {
			continue
		}
		owner := o.tag
		if o.kind != itemStep && !o.legacy {
			owner = a.owners[bucketOf[o.kind]][o.id]
		}
		out = append(out, openItem{
			kind: o.kind, id: o.id, owner: owner.id, owned: owner.set, opener: o.opener, legacy: o.legacy, parent: o.parent,
			asText: a.owners[inMessages][o.id], at: o.at,
		})
	}
	return out
}

// subagents returns all subagents of the run in the order of their start.
func (a *Admission) subagents() []subagent {
	out := make([]subagent, len(a.subs))
	for i, s := range a.subs {
		out[i] = *s
	}
	return out
}

// closings returns events that close items and the subagents that run: content before spans, steps and subagents, and
// what was opened last first. Lanes close by themselves. The order is legal for the verifier at any place of the run.
func (a *Admission) closings() [][]byte {
	var groups [3][][]byte
	for o := a.last; o != nil; o = o.prev {
		if o.held != nil {
			continue
		}
		group := 0
		switch o.kind {
		case itemSpan:
			group = 1
		case itemStep:
			group = 2
		default:
		}
		groups[group] = append(groups[group], o.closing())
	}
	for _, s := range slices.Backward(a.subs) {
		if !s.finished {
			groups[2] = append(groups[2], append(appendString([]byte(`{"type":"SUBAGENT_FINISHED","subagentRunId":`), s.id), '}'))
		}
	}
	return slices.Concat(groups[:]...)
}

// closing is the event that closes an explicit item. It names a subagent only where it must: an end without one agrees
// with every owner, a step is known by its owner.
func (o *opened) closing() []byte {
	if o.legacy {
		if o.kind == itemSpan {
			return []byte(`{"type":"THINKING_END"}`)
		}
		return []byte(`{"type":"THINKING_TEXT_MESSAGE_END"}`)
	}
	var out []byte
	switch o.kind {
	case itemText:
		out = []byte(`{"type":"TEXT_MESSAGE_END","messageId":`)
	case itemTool:
		out = []byte(`{"type":"TOOL_CALL_END","toolCallId":`)
	case itemReasoning:
		out = []byte(`{"type":"REASONING_MESSAGE_END","messageId":`)
	case itemSpan:
		out = []byte(`{"type":"REASONING_END","messageId":`)
	default:
		out = []byte(`{"type":"STEP_FINISHED","stepName":`)
	}
	out = appendString(out, o.id)
	if o.kind == itemStep {
		out = appendTag(out, o.tag)
	}
	return append(out, '}')
}

func appendTag(dst []byte, t tag) []byte {
	if t.set {
		dst = appendString(append(dst, `,"subagentRunId":`...), t.id)
	}
	return dst
}

// compact is e with the given fields only, as they were published. Null counts as absent.
func (e *Event) compact(typ Type, fields ...field) []byte {
	out := append(make([]byte, 0, 128), `{"type":"`...)
	out = append(append(out, typ.String()...), '"')
	for _, f := range fields {
		if v := e.get(f); v != nil && !isNull(v) {
			out = append(append(append(out, ',', '"'), fieldNames[f]...), '"', ':')
			out = append(out, v...)
		}
	}
	return append(out, '}')
}

// reopener is the compact event that opens again what e, of a type that opens, opened; nil for other types.
func (e *Event) reopener() []byte {
	switch e.Type {
	case TextMessageStart, TextMessageChunk:
		return e.compact(e.Type, fMessageID, fRole, fName, fSubagentRunID)
	case ToolCallStart, ToolCallChunk:
		return e.compact(e.Type, fToolCallID, fToolCallName, fParentMessageID, fSubagentRunID)
	case ReasoningStart, ReasoningMessageChunk:
		return e.compact(e.Type, fMessageID, fSubagentRunID)
	case ReasoningMessageStart:
		return e.compact(e.Type, fMessageID, fRole, fSubagentRunID)
	case StepStarted:
		return e.compact(e.Type, fStepName, fSubagentRunID)
	case SubagentStarted:
		return e.compact(e.Type, fSubagentRunID, fName, fDescription, fParentSubagentRunID, fParentToolCallID, fParentMessageID)
	case ThinkingStart, ThinkingTextMessageStart:
		return e.compact(e.Type, fSubagentRunID)
	default:
		return nil
	}
}

// link puts an item at the end of the list of what is open.
func (a *Admission) link(o *opened) {
	o.at = a.at
	o.prev = a.last
	if a.last != nil {
		a.last.next = o
	} else {
		a.first = o
	}
	a.last = o
}

// unlink takes it out again and remembers that it was open.
func (a *Admission) unlink(o *opened) {
	a.remember(o)
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		a.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		a.last = o.prev
	}
	o.prev, o.next = nil, nil
}

// begin opens an item and, where nobody owns its id yet, makes owner its owner.
func (a *Admission) begin(e *Event, kind itemKind, id string, owner tag) *opened {
	o := &opened{kind: kind, id: id, tag: tagOf(e), opener: e.reopener()}
	if kind == itemTool {
		if v := e.get(fParentMessageID); isString(v) {
			o.parent = decode(v)
		}
	}
	if a.open[kind] == nil {
		a.open[kind] = map[string]*opened{}
	}
	a.open[kind][id] = o
	if _, known := a.owners[bucketOf[kind]][id]; !known {
		a.own(bucketOf[kind], id, owner)
	}
	a.link(o)
	return o
}

// finish closes what begin opened.
func (a *Admission) finish(o *opened) {
	delete(a.open[o.kind], o.id)
	a.unlink(o)
}

// own makes a subagent, or the parent agent, the owner of an id.
func (a *Admission) own(in bucket, id string, owner tag) {
	if a.owners[in] == nil {
		a.owners[in] = map[string]tag{}
	}
	a.owners[in][id] = owner
}

// seed takes the owners of messages that a snapshot or an input restates. A snapshot replaces messages, so its owners
// replace those on record; an input is history and yields.
func (a *Admission) seed(messages []byte, replace bool) {
	if !isArray(messages) {
		return
	}
	put := func(in bucket, id string, owner tag) {
		if _, known := a.owners[in][id]; !known || replace {
			a.own(in, id, owner)
		}
	}
	eachElement(messages, func(m []byte) bool {
		role := member(m, "role")
		if _, ok := messageRoles.of(m, "role"); !ok {
			return true
		}
		in := inMessages
		switch {
		case stringIs(role, "reasoning"):
			in = inReasoning
		case stringIs(role, "activity"):
			in = inActivities
		}
		owner := tagFrom(member(m, "subagentRunId"))
		put(in, decode(member(m, "id")), owner)
		if calls := member(m, "toolCalls"); isArray(calls) && stringIs(role, "assistant") {
			eachElement(calls, func(c []byte) bool {
				put(inTools, decode(member(c, "id")), owner)
				return true
			})
		}
		return true
	})
}

// tagOf is the subagent that e is attributed to.
func tagOf(e *Event) tag { return tagFrom(e.get(fSubagentRunID)) }

func tagFrom(v []byte) tag {
	if !isString(v) {
		return tag{}
	}
	return tag{decode(v), true}
}

// agrees says whether an event with the raw tag v may speak for what t owns: without a tag always.
func (t tag) agrees(v []byte) bool {
	switch {
	case v == nil:
		return true
	case !t.set:
		return false
	}
	if b := body(v); bytes.IndexByte(b, '\\') < 0 {
		return string(b) == t.id
	}
	return decode(v) == t.id
}

// String is the owner in words for people.
func (t tag) String() string {
	if !t.set {
		return "the parent agent"
	}
	return "subagent " + quote(t.id)
}

// spanOwner is a subagent that owns a reasoning id.
type spanOwner struct{ id, owner string }

// spanOwners returns the reasoning ids of subagents that aren't open, sorted: the client's verifier remembers whose
// they are for the whole run.
func (a *Admission) spanOwners() []spanOwner {
	var out []spanOwner
	for id, owner := range a.owners[inReasoning] {
		if owner.set && a.open[itemSpan][id] == nil && a.open[itemReasoning][id] == nil {
			out = append(out, spanOwner{id, owner.id})
		}
	}
	slices.SortFunc(out, func(x, y spanOwner) int { return strings.Compare(x.id, y.id) })
	return out
}
