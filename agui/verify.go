package agui

import "bytes"

// What the official client's verifier accepts inside a run. Every method checks first and changes the state last, so a
// rejected event leaves no trace; each returns what is illegal, in words for people, or "".

// idFields is the field that names an item.
var idFields = [numItemKinds]field{
	itemText: fMessageID, itemTool: fToolCallID, itemReasoning: fMessageID, itemSpan: fMessageID, itemStep: fStepName,
}

// verify takes an event of a run that is open; RUN_* events come elsewhere.
func (a *Admission) verify(e *Event) string {
	switch t := e.Type; t {
	case TextMessageStart:
		return a.startItem(e, itemText)
	case TextMessageContent, TextMessageEnd:
		return a.goOn(e, itemText, t == TextMessageEnd)
	case TextMessageChunk:
		return a.chunk(e, itemText, TextMessageContent)
	case ToolCallStart:
		return a.startItem(e, itemTool)
	case ToolCallArgs, ToolCallEnd:
		return a.goOn(e, itemTool, t == ToolCallEnd)
	case ToolCallChunk:
		return a.chunk(e, itemTool, ToolCallArgs)
	case ReasoningStart:
		return a.startItem(e, itemSpan)
	case ReasoningEnd:
		return a.goOn(e, itemSpan, true)
	case ReasoningMessageStart:
		return a.startItem(e, itemReasoning)
	case ReasoningMessageContent, ReasoningMessageEnd:
		return a.goOn(e, itemReasoning, t == ReasoningMessageEnd)
	case ReasoningMessageChunk:
		return a.chunk(e, itemReasoning, ReasoningMessageContent)
	case ThinkingStart:
		return a.startLegacy(e, itemSpan, ReasoningStart)
	case ThinkingEnd:
		return a.legacyOn(e, itemSpan, ReasoningEnd)
	case ThinkingTextMessageStart:
		return a.startLegacy(e, itemReasoning, ReasoningMessageStart)
	case ThinkingTextMessageContent:
		return a.legacyOn(e, itemReasoning, ReasoningMessageContent)
	case ThinkingTextMessageEnd:
		return a.legacyOn(e, itemReasoning, ReasoningMessageEnd)
	case StepStarted, StepFinished:
		return a.step(e)
	default:
		return a.verifyOther(e)
	}
}

// verifyOther takes the events that open and close nothing of their own.
func (a *Admission) verifyOther(e *Event) string {
	a.eff.typ = e.Type
	switch e.Type {
	case ToolCallResult:
		a.result(e)
	case StateSnapshot, StateDelta, Custom:
		a.closeLane(a.laneOf(e.get(fSubagentRunID)))
	case ActivitySnapshot:
		a.eff.id = decode(e.get(fMessageID))
		_, known := a.owners[inActivities][a.eff.id]
		if replace := e.get(fReplace); !known || replace == nil || replace[0] == 't' {
			a.own(inActivities, a.eff.id, tagOf(e))
		}
	case ActivityDelta:
		a.eff.id = decode(e.get(fMessageID))
		if owner, known := a.owners[inActivities][a.eff.id]; known && !owner.agrees(e.get(fSubagentRunID)) {
			return "activity " + quote(a.eff.id) + " belongs to " + owner.String()
		}
	case ReasoningEncryptedValue:
		return a.encrypted(e)
	case SubagentStarted:
		return a.startSubagent(e)
	case SubagentFinished, SubagentError:
		return a.finishSubagent(e)
	case MessagesSnapshot:
		a.closeLanes()
		a.seed(e.get(fMessages), true)
	default: // RAW
	}
	return ""
}

// find returns the open item of a kind by its raw id.
func (a *Admission) find(kind itemKind, id []byte) *opened {
	if b := body(id); bytes.IndexByte(b, '\\') < 0 {
		return a.open[kind][string(b)]
	}
	return a.open[kind][decode(id)]
}

// startItem takes an explicit opener. It closes its own lane first, which may hold the very item.
func (a *Admission) startItem(e *Event, kind itemKind) string {
	id := e.get(idFields[kind])
	closing := a.laneOf(e.get(fSubagentRunID))
	if o := a.find(kind, id); o != nil && (closing == nil || o.held != closing) {
		return alreadyOpen(kind, id)
	}
	owner, illegal := a.mayOpen(e, kind, id)
	if illegal != "" {
		return illegal
	}
	a.closeLane(closing)
	o := a.begin(e, kind, decode(id), owner)
	a.eff = effect{typ: e.Type, id: o.id}
	return ""
}

// mayOpen says who owns an item that e opens, or why e may not open it: an id keeps its owner for the whole run, and a
// call belongs to the owner of the message that carries it.
func (a *Admission) mayOpen(e *Event, kind itemKind, id []byte) (owner tag, illegal string) {
	by := e.get(fSubagentRunID)
	owner = tagFrom(by)
	inherits := false
	if v := e.get(fParentMessageID); kind == itemTool && isString(v) {
		parent, known := a.owners[inMessages][decode(v)]
		if known && !parent.agrees(by) {
			return tag{}, "its parent message " + quote(decode(v)) + " belongs to " + parent.String()
		}
		if inherits = known && by == nil; inherits {
			owner = parent
		}
	}
	before, known := a.owners[bucketOf[kind]][decode(id)]
	if known && (!before.agrees(by) || (inherits && before != owner)) {
		return tag{}, notOwner(kind, decode(id), before)
	}
	return owner, ""
}

// goOn takes content or the end of an item.
func (a *Admission) goOn(e *Event, kind itemKind, end bool) string {
	by := e.get(fSubagentRunID)
	closing := a.laneOf(by)
	id := e.get(idFields[kind])
	o := a.find(kind, id)
	if o == nil || (closing != nil && o.held == closing) {
		return notOpen(kind, id)
	}
	if by != nil {
		if owner := a.owners[bucketOf[kind]][o.id]; !owner.agrees(by) {
			return notOwner(kind, o.id, owner)
		}
	}
	if end && o.held != nil {
		// The client takes it here and fails for certain later: the lane ends its item once more.
		return itemNames[kind] + " " + quote(o.id) + " is assembled from chunks of " + o.held.owner.String() + ", which end it"
	}
	a.closeLane(closing)
	if end {
		a.finish(o)
	}
	a.eff = effect{typ: e.Type, id: o.id}
	return ""
}

// startLegacy takes a THINKING opener. The client gives each a random id that nobody else can name and forgets it at
// the next one, so one that is still open then could never end, nor its run: it is closed before.
func (a *Admission) startLegacy(e *Event, kind itemKind, typ Type) string {
	if old := *a.legacy(kind); old != nil {
		by := tagOf(e)
		end := old.tag
		if !by.set {
			end = by
		}
		event := old.closing()
		a.before = append(a.before, append(appendTag(event[:len(event)-1], end), '}'))
		a.unclosed = "legacy " + itemNames[kind] + " was open"
		a.closeLane(a.byOwner[end])
		a.unlink(old)
	}
	a.closeLane(a.laneOf(e.get(fSubagentRunID)))
	a.thoughts++
	o := &opened{kind: kind, id: legacyID(a.thoughts), tag: tagOf(e), opener: e.reopener(), legacy: true}
	a.link(o)
	*a.legacy(kind) = o
	a.eff = effect{typ: typ, id: o.id}
	return ""
}

// legacyOn takes the content or the end of what a THINKING opener opened.
func (a *Admission) legacyOn(e *Event, kind itemKind, typ Type) string {
	by := e.get(fSubagentRunID)
	o := *a.legacy(kind)
	if o == nil {
		return "no legacy " + itemNames[kind] + " is open"
	}
	if !o.tag.agrees(by) {
		return "the legacy " + itemNames[kind] + " belongs to " + o.tag.String()
	}
	a.closeLane(a.laneOf(by))
	if typ != ReasoningMessageContent {
		a.unlink(o)
		*a.legacy(kind) = nil
	}
	a.eff = effect{typ: typ, id: o.id}
	return ""
}

func (a *Admission) legacy(kind itemKind) **opened {
	if kind == itemSpan {
		return &a.legacySpan
	}
	return &a.legacyMessage
}

// step takes STEP_STARTED and STEP_FINISHED. A step is known by its owner and its name.
func (a *Admission) step(e *Event) string {
	key := stepKey{tagOf(e), decode(e.get(fStepName))}
	o := a.steps[key]
	starts := e.Type == StepStarted
	switch {
	case starts && o != nil:
		return "step " + quote(key.name) + " of " + key.owner.String() + " is already active"
	case !starts && o == nil:
		return "no step " + quote(key.name) + " of " + key.owner.String() + " is active"
	}
	a.closeLane(a.byOwner[key.owner])
	a.eff = effect{typ: e.Type, id: key.name}
	if !starts {
		delete(a.steps, key)
		a.unlink(o)
		return ""
	}
	o = &opened{kind: itemStep, id: key.name, tag: key.owner, opener: e.reopener()}
	if a.steps == nil {
		a.steps = map[stepKey]*opened{}
	}
	a.steps[key] = o
	a.link(o)
	return ""
}

// result takes a TOOL_CALL_RESULT, whose message belongs to whoever sends it, even where the id is another message's.
func (a *Admission) result(e *Event) {
	by := tagOf(e)
	a.closeLane(a.byOwner[by])
	id := decode(e.get(fMessageID))
	if o := a.open[itemText][id]; o != nil && o.held != nil && o.held.owner.set && o.held.owner != by {
		// The lane's own end would contradict the new owner. An empty patch of its subagent closes it and does nothing else.
		a.before = append(a.before, append(appendTag([]byte(`{"type":"STATE_DELTA","delta":[]`), o.held.owner), '}'))
		a.unclosed = "text message " + quote(id) + " was assembled from chunks"
		a.closeLane(o.held)
	}
	a.own(inMessages, id, by)
	a.eff.id = id
}

// encrypted takes a REASONING_ENCRYPTED_VALUE, which may come before, after or without its entity.
func (a *Admission) encrypted(e *Event) string {
	a.eff.id = decode(e.get(fEntityID))
	var owner tag
	var known bool
	if stringIs(e.get(fSubtype), "tool-call") {
		owner, known = a.owners[inTools][a.eff.id]
	} else if owner, known = a.owners[inMessages][a.eff.id]; !known {
		owner, known = a.owners[inReasoning][a.eff.id]
	}
	if known && !owner.agrees(e.get(fSubagentRunID)) {
		return quote(a.eff.id) + " belongs to " + owner.String()
	}
	return ""
}

// startSubagent takes a SUBAGENT_STARTED: an id is one invocation of the run, and its parent must have been started.
func (a *Admission) startSubagent(e *Event) string {
	id := decode(e.get(fSubagentRunID))
	if a.byID[id] != nil {
		return "subagent " + quote(id) + " was started before in this run"
	}
	if v := e.get(fParentSubagentRunID); v != nil && a.byID[decode(v)] == nil {
		return "its parent, subagent " + quote(decode(v)) + ", was not started in this run"
	}
	if a.byID == nil {
		a.byID = map[string]*subagent{}
	}
	s := &subagent{id: id, start: e.reopener(), startedAt: a.at}
	a.byID[id] = s
	a.subs = append(a.subs, s)
	a.eff.id = id
	return ""
}

// finishSubagent takes the end of a subagent, which closes its lane.
func (a *Admission) finishSubagent(e *Event) string {
	id := decode(e.get(fSubagentRunID))
	s := a.byID[id]
	if s == nil || s.finished {
		return "subagent " + quote(id) + " is not active"
	}
	a.closeLane(a.byOwner[tag{id, true}])
	s.finished, s.finishedAt = true, a.at
	a.eff.id = id
	return ""
}

func alreadyOpen(kind itemKind, id []byte) string {
	return itemNames[kind] + " " + quote(decode(id)) + " is already open"
}

func notOpen(kind itemKind, id []byte) string {
	return "no " + itemNames[kind] + " " + quote(decode(id)) + " is open"
}

func notOwner(kind itemKind, id string, owner tag) string {
	return itemNames[kind] + " " + quote(id) + " belongs to " + owner.String()
}
