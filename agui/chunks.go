package agui

import (
	"cmp"
	"slices"
	"strconv"
)

// laneState is a stream that is assembled from chunks. There is at most one for the parent agent and for each subagent.
// Its item is open as long as it lives, and its owner may speak for the item: what closes the lane is then legal.
type laneState struct {
	kind  itemKind
	owner tag
	item  *opened
	seq   uint64

	// What the opener said, and what chunks that go on may repeat but not change: role and name of a text message,
	// toolCallName and parentMessageId of a call.
	first, second tag
}

// lane is a chunk lane that is open, as a preamble needs it.
type lane struct {
	kind   itemKind
	id     string
	reopen []byte // a chunk with what its opener said and no delta
}

// lanes returns the chunk lanes that are open, in the order they opened.
func (a *Admission) lanes() []lane {
	open := make([]*laneState, 0, len(a.byOwner))
	for _, l := range a.byOwner {
		open = append(open, l)
	}
	slices.SortFunc(open, func(x, y *laneState) int { return cmp.Compare(x.seq, y.seq) })
	out := make([]lane, len(open))
	for i, l := range open {
		out[i] = lane{l.kind, l.item.id, l.item.opener}
	}
	return out
}

// laneOf is the lane that belongs to the raw tag v, nil where none is open.
func (a *Admission) laneOf(v []byte) *laneState {
	if len(a.byOwner) == 0 {
		return nil
	}
	if v == nil {
		return a.byOwner[tag{}]
	}
	return a.byOwner[tagFrom(v)]
}

// closeLane closes a lane and its item. nil is none.
func (a *Admission) closeLane(l *laneState) {
	if l == nil {
		return
	}
	delete(a.byOwner, l.owner)
	delete(a.byKind[l.kind], l)
	a.finish(l.item)
}

func (a *Admission) closeLanes() {
	for _, l := range a.byOwner {
		a.closeLane(l)
	}
}

// chunk takes a chunk. It returns what is illegal in it, or "".
func (a *Admission) chunk(e *Event, kind itemKind, content Type) string {
	id := e.get(idFields[kind])
	l, illegal := a.resolve(e, kind, id)
	if illegal != "" {
		return illegal
	}
	carries := e.get(fDelta) != nil || present(e.get(fRawEvent))
	if l != nil && l.kind == kind && (id == nil || (tag{l.item.id, true}).agrees(id)) {
		first, second := laneFields(e, kind)
		if !l.first.agrees(first) || !l.second.agrees(second) {
			return "a chunk of " + itemNames[kind] + " " + quote(l.item.id) + " contradicts the chunk that opened it"
		}
		a.eff = effect{typ: content, content: carries || e.get(fMetadata) != nil, id: l.item.id}
		return ""
	}
	if id == nil {
		return "the first chunk of a " + itemNames[kind] + " must name it"
	}
	first, second := laneFields(e, kind)
	if kind == itemTool && first == nil {
		return "the first chunk of tool call " + quote(decode(id)) + " has no toolCallName"
	}
	if a.find(kind, id) != nil { // l holds something else, or it would go on
		return alreadyOpen(kind, id)
	}
	owner, illegal := a.mayOpen(e, kind, id)
	if illegal != "" {
		return illegal
	}
	a.closeLane(l)
	a.seq++
	l = &laneState{kind: kind, owner: tagOf(e), seq: a.seq, first: tagFrom(first), second: tagFrom(second)}
	if kind == itemText && first == nil {
		l.first = tag{"assistant", true}
	}
	l.item = a.begin(e, kind, decode(id), owner)
	l.item.held = l
	if a.byOwner == nil {
		a.byOwner = map[tag]*laneState{}
	}
	if a.byKind[kind] == nil {
		a.byKind[kind] = map[*laneState]struct{}{}
	}
	a.byOwner[l.owner], a.byKind[kind][l] = l, struct{}{}
	a.eff = effect{typ: content, opens: true, content: carries, id: l.item.id}
	return ""
}

// resolve finds the lane that a chunk speaks of: where its id is already, else the one of its tag; without both the
// parent agent's or, if that holds nothing of the kind, the only one that does. A lane that isn't open yet is nil.
func (a *Admission) resolve(e *Event, kind itemKind, id []byte) (l *laneState, illegal string) {
	owner := e.get(fSubagentRunID)
	if id != nil {
		if o := a.find(kind, id); o != nil && o.held != nil {
			if !o.held.owner.agrees(owner) {
				return nil, notOwner(kind, o.id, o.held.owner)
			}
			return o.held, ""
		}
		return a.laneOf(owner), ""
	}
	l = a.laneOf(owner)
	if owner != nil || (l != nil && l.kind == kind) {
		return l, ""
	}
	switch n := len(a.byKind[kind]); {
	case n == 1:
		for only := range a.byKind[kind] {
			return only, ""
		}
	case n > 1:
		return nil, "a chunk names neither its " + itemNames[kind] + " nor its subagent, and " + strconv.Itoa(n) + " lanes have one open"
	}
	return l, ""
}

// laneFields are what a chunk that goes on may repeat.
func laneFields(e *Event, kind itemKind) (first, second []byte) {
	switch kind {
	case itemText:
		return e.get(fRole), e.get(fName)
	case itemTool:
		second = e.get(fParentMessageID)
		if isNull(second) {
			second = nil
		}
		return e.get(fToolCallName), second
	default:
		return nil, nil
	}
}

// present says whether a field counts whose null the compatibility boundary takes for absent.
func present(v []byte) bool { return v != nil && !isNull(v) }
