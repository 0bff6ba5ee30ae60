package agui

import "slices"

// fold is what a client holds that has seen a run up to one entry: the messages, the state, the pending interrupts.
// It follows the official reducer in all that can be seen. A patch that fails is skipped; nothing breaks a fold.
type fold struct {
	msgs []*message
	byID map[string]*message // the first message in order with the id
	call map[string]*message // the first message in order that has a call with the id

	state      *document
	stateKnown bool
	refused    error // why the event that was applied last changed nothing, where the bounds are to blame

	// pending is the run that left interrupts open: its RUN_STARTED without input, and its RUN_FINISHED. Both nil where
	// nothing is pending.
	pending, pendingEnd []byte

	// lastStart and lastFinish are the newest run of the path that ended with RUN_FINISHED: its RUN_STARTED without input,
	// and its RUN_FINISHED.
	lastStart, lastFinish []byte

	at Position // of the entry that is applied; zero for what the run started from
	// shuffled is where a message was dropped or an id came twice for the last time: before it, what a client holds can't
	// be told from what the fold holds.
	shuffled Position
	// hadReasoning and hadActivity say whether there ever were such messages.
	hadReasoning, hadActivity bool

	started []byte // this run's RUN_STARTED, compact
	runID   string // as RUN_STARTED names it

	customs, raws passing
	passed        int // CUSTOM and RAW events of the run so far: their order
	size          int // bytes of messages and state: an estimate, exact after measure
	measured      int // size as measure found it last
}

// messageCost is what a message costs beside its bytes, roughly: its struct and its place in two maps.
const messageCost = 300

func newFold(base *Conversation) *fold {
	f := &fold{byID: map[string]*message{}, call: map[string]*message{}, state: newDocument([]byte("{}"))}
	if base == nil {
		return f
	}
	for _, raw := range base.Messages {
		f.push(readMessage(raw))
	}
	if base.StateKnown {
		f.setState(base.State)
	}
	f.pending, f.pendingEnd = base.Pending, base.PendingEnd
	f.lastStart, f.lastFinish = base.LastStart, base.LastFinish
	return f
}

func (f *fold) setState(raw []byte) {
	f.size += len(raw) - len(f.state.raw())
	f.state, f.stateKnown = newDocument(raw), true
}

// push puts a message at the end.
func (f *fold) push(m *message) { f.insert(len(f.msgs), m) }

// insert puts a message at an index and keeps the maps at the first in order.
func (f *fold) insert(at int, m *message) {
	m.at = f.at
	f.note(m)
	f.msgs = slices.Insert(f.msgs, at, m)
	f.size += messageCost + len(m.whole) + len(m.rest) + len(m.body) + len(m.value)
	first, twice := f.byID[m.id]
	if twice {
		f.shuffled = f.at
	}
	if !twice || slices.Index(f.msgs, first) > at {
		f.byID[m.id] = m
	}
	for _, c := range m.calls {
		f.indexCall(c.id, m, at)
	}
}

// note remembers that there was a message of its role.
func (f *fold) note(m *message) {
	f.hadReasoning = f.hadReasoning || m.role == "reasoning"
	f.hadActivity = f.hadActivity || m.role == "activity"
}

func (f *fold) indexCall(id string, m *message, at int) {
	if first, ok := f.call[id]; !ok || (first != m && slices.Index(f.msgs, first) > at) {
		f.call[id] = m
	}
}

// measure makes size exact. What replaces something else makes it grow without need, so it is called again and again.
func (f *fold) measure() {
	size := len(f.state.raw())
	var segs [][]byte
	for _, m := range f.msgs {
		segs = m.segments(segs[:0])
		size += messageCost + sizeOf(segs)
	}
	f.size, f.measured = size, size
}

func sizeOf(segs [][]byte) int {
	n := 0
	for _, s := range segs {
		n += len(s)
	}
	return n
}

// apply takes an admitted event.
func (f *fold) apply(e *Event, ef effect) {
	if f.size > 2*f.measured+(1<<20) {
		f.measure()
	}
	switch ef.typ {
	case TextMessageStart, TextMessageContent, TextMessageEnd:
		f.text(e, ef)
	case ReasoningMessageStart, ReasoningMessageContent, ReasoningMessageEnd:
		f.reasoning(e, ef)
	case ToolCallStart, ToolCallArgs, ToolCallEnd:
		f.toolCall(e, ef)
	case ToolCallResult:
		f.toolResult(e)
	case StateSnapshot:
		f.setState(e.get(fSnapshot))
	case StateDelta: // patchState had it before it was admitted
	case MessagesSnapshot:
		f.snapshot(e.get(fMessages), e.get(fMetadata))
	case ActivitySnapshot:
		f.activity(e)
	case ActivityDelta:
		f.activityDelta(e)
	case ReasoningEncryptedValue:
		f.encrypted(e, ef.id)
	case Custom:
		f.passed++
		f.customs.add(passingEvent{f.passed, f.at, e.Raw})
	case Raw:
		f.passed++
		f.raws.add(passingEvent{f.passed, f.at, e.Raw})
	case RunFinished:
		f.finish(e)
	default: // the others change nothing that a client holds
	}
}

// patchState applies a patch to the state, as a whole or not at all.
func (f *fold) patchState(patch []byte) error {
	err := f.state.apply(patch)
	if err == nil {
		f.stateKnown = true
		f.size += len(patch)
	}
	return err
}

// text applies a text message's event; a chunk that opened its message is START and CONTENT in one.
func (f *fold) text(e *Event, ef effect) {
	m := f.byID[ef.id]
	if m != nil && m.role == "activity" {
		return
	}
	if m == nil && (ef.typ == TextMessageStart || ef.opens) {
		role := e.get(fRole)
		if role == nil {
			role = []byte(`"assistant"`)
		}
		m = f.newMessage(ef.id, decode(role), e.get(fName), e.get(fSubagentRunID))
	}
	f.stream(m, e, ef, TextMessageContent)
}

// reasoning applies a reasoning message's event.
func (f *fold) reasoning(e *Event, ef effect) {
	m := f.byID[ef.id]
	if m != nil && m.role == "activity" {
		return
	}
	if m == nil && (ef.typ == ReasoningMessageStart || ef.opens) {
		m = f.newMessage(ef.id, "reasoning", nil, e.get(fSubagentRunID))
		m.legacy = e.Type >= ThinkingStart
	}
	f.stream(m, e, ef, ReasoningMessageContent)
}

// stream appends what the event brings to the message, which may be absent.
func (f *fold) stream(m *message, e *Event, ef effect, content Type) {
	if m == nil {
		return
	}
	filled := ef.content || !e.Type.chunk()
	if ef.typ == content && filled {
		delta := bodyOf(e.get(fDelta))
		m.appendText(delta)
		f.size += len(delta)
	}
	if filled || ef.opens {
		m.mergeMetadata(e.get(fMetadata))
	}
}

// bodyOf is a string's body, or nothing where the field is absent.
func bodyOf(v []byte) []byte {
	if !isString(v) {
		return nil
	}
	return body(v)
}

func (f *fold) newMessage(id, role string, name, subagent []byte) *message {
	rest := appendString(append(make([]byte, 0, 64), `"id":`...), id)
	rest = appendString(append(rest, `,"role":`...), role)
	if name != nil {
		rest = append(append(rest, `,"name":`...), name...)
	}
	rest = appendSubagent(rest, subagent)
	m := &message{id: id, role: role, rest: rest, content: contentText}
	f.push(m)
	return m
}

func appendSubagent(rest, subagent []byte) []byte {
	if !isString(subagent) {
		return rest
	}
	return append(append(rest, `,"subagentRunId":`...), subagent...)
}

func (f *fold) toolCall(e *Event, ef effect) {
	if ef.typ == ToolCallStart || ef.opens {
		f.startCall(e, ef.id)
	}
	m := f.call[ef.id]
	if m == nil {
		return
	}
	c := m.call(ef.id)
	filled := ef.content || !e.Type.chunk()
	if ef.typ == ToolCallArgs && filled {
		delta := bodyOf(e.get(fDelta))
		if m.whole != nil {
			m.touch()
		}
		c.appendArgs(delta)
		f.size += len(delta)
	}
	if meta := e.get(fMetadata); meta != nil && (filled || ef.opens) {
		m.touch()
		c.open()
		c.meta.merge(meta)
	}
}

// startCall gives a call its slot; a start for a known one renames it.
func (f *fold) startCall(e *Event, id string) {
	name := e.get(fToolCallName)
	if m := f.call[id]; m != nil {
		m.touch()
		c := m.call(id)
		c.open()
		c.name = name
		return
	}
	m := f.callOwner(e, id)
	c := &toolCall{id: id, name: name}
	c.rest = append(appendString([]byte(`"id":`), id), `,"type":"function"`...)
	m.addCall(c)
	f.size += len(c.rest) + len(name) + messageCost
	f.indexCall(id, m, slices.Index(f.msgs, m))
}

// callOwner finds or makes the assistant message that a new call goes to.
func (f *fold) callOwner(e *Event, id string) *message {
	owner := id
	if parent, ok := e.text(fParentMessageID); ok && parent != "" {
		switch m := f.byID[parent]; {
		case m == nil:
			owner = parent
		case m.role == "assistant":
			return m
		}
	}
	rest := append(appendString([]byte(`"id":`), owner), `,"role":"assistant"`...)
	known := f.byID[owner] != nil
	if !known {
		rest = appendSubagent(rest, e.get(fSubagentRunID))
	}
	m := &message{id: owner, role: "assistant", rest: rest, hasCalls: true}
	f.push(m)
	return m
}

// toolResult puts the result after the assistant message that owns the call and the results already there.
func (f *fold) toolResult(e *Event) {
	id, _ := e.text(fMessageID)
	callID, _ := e.text(fToolCallID)
	rest := appendString([]byte(`"id":`), id)
	rest = append(append(rest, `,"toolCallId":`...), e.get(fToolCallID)...)
	rest = append(rest, `,"role":"tool"`...)
	rest = appendSubagent(rest, e.get(fSubagentRunID))
	m := &message{id: id, role: "tool", rest: rest}
	m.setContent(e.get(fContent))
	m.mergeMetadata(e.get(fMetadata))
	at := len(f.msgs)
	if owner := f.call[callID]; owner != nil {
		at = slices.Index(f.msgs, owner) + 1
		for at < len(f.msgs) && f.msgs[at].role == "tool" {
			at++
		}
	}
	f.insert(at, m)
}

// encrypted sets encryptedValue on the message or the call.
func (f *fold) encrypted(e *Event, id string) {
	value := e.get(fEncryptedValue)
	if subtype, _ := e.text(fSubtype); subtype == "tool-call" {
		if m := f.call[id]; m != nil {
			m.touch()
			c := m.call(id)
			c.open()
			c.encrypted = value
		}
		return
	}
	if m := f.byID[id]; m != nil && m.role != "activity" {
		m.setEncrypted(value)
	}
}

func (f *fold) activity(e *Event) {
	id, _ := e.text(fMessageID)
	m := f.byID[id]
	replace := string(e.get(fReplace)) != "false"
	switch {
	case m == nil:
		m = &message{id: id, role: "activity"}
		f.setActivity(m, e)
		f.push(m)
	case m.role == "activity":
		if replace {
			m.open()
			f.setActivity(m, e)
		}
	case replace:
		fresh := &message{id: id, role: "activity"}
		f.setActivity(fresh, e)
		f.replace(m, fresh)
		m = fresh
	default:
		return
	}
	m.mergeMetadata(e.get(fMetadata))
}

func (f *fold) setActivity(m *message, e *Event) {
	content := e.get(fContent)
	m.rest = activityRest(m.id, e.get(fActivityType), e.get(fSubagentRunID))
	m.content, m.doc = contentDocument, newDocument(content)
	m.head, m.tail = nil, nil
	f.size += len(content)
}

func activityRest(id string, activityType, subagent []byte) []byte {
	rest := append(appendString([]byte(`"id":`), id), `,"role":"activity","activityType":`...)
	return appendSubagent(append(rest, activityType...), subagent)
}

// replace puts another message of the same id in m's place.
func (f *fold) replace(m, by *message) {
	f.msgs[slices.Index(f.msgs, m)] = by
	by.at = m.at
	f.note(by)
	f.byID[by.id] = by
	for _, c := range m.calls {
		if f.call[c.id] == m {
			delete(f.call, c.id)
			for _, other := range f.msgs {
				if other.call(c.id) != nil {
					f.call[c.id] = other
					break
				}
			}
		}
	}
}

func (f *fold) activityDelta(e *Event) {
	id, _ := e.text(fMessageID)
	m := f.byID[id]
	if m == nil || m.role != "activity" {
		return
	}
	m.open()
	if m.doc == nil || m.doc.missing() || string(m.doc.raw()) == "null" {
		m.content, m.doc = contentDocument, newDocument([]byte("{}"))
	}
	err := m.doc.apply(e.get(fPatch))
	if _, out := outgrown(err); out {
		f.refused = err
		return
	}
	m.mergeMetadata(e.get(fMetadata))
	if err != nil {
		return
	}
	f.size += len(e.get(fPatch))
	m.rest = withActivityType(m.rest, e.get(fActivityType))
}

// withActivityType is rest with another activityType.
func withActivityType(rest, activityType []byte) []byte {
	object := append(append([]byte{'{'}, rest...), '}')
	out := make([]byte, 0, len(rest)+len(activityType))
	eachMember(object, func(key, value []byte) bool {
		if keyIs(key, "activityType") {
			value = activityType
		}
		out = appendMember(out, key, value)
		return true
	})
	return out
}

// finish takes the interrupts of a RUN_FINISHED, or drops those that were pending.
func (f *fold) finish(e *Event) {
	f.pending, f.pendingEnd = nil, nil
	f.lastStart, f.lastFinish = f.started, e.Raw
	outcome := e.get(fOutcome)
	if !isObject(outcome) {
		return
	}
	if t := member(outcome, "type"); isString(t) && decode(t) == "interrupt" {
		f.pending, f.pendingEnd = f.started, e.Raw
	}
}

// Bounds of the CUSTOM (and, on request, RAW) events that a preamble repeats: docs/contract.md, section 2.
const (
	maxPassing      = 256
	maxPassingBytes = 256 << 10
)

// passing holds the newest of the events that can't be folded.
type passing struct {
	events  []passingEvent
	bytes   int
	omitted []Position // of those that were dropped, in order; the newest ones only
	dropped int        // how many were dropped in all
}

type passingEvent struct {
	order int
	at    Position
	raw   []byte
}

func (p *passing) add(e passingEvent) {
	p.events = append(p.events, e)
	p.bytes += len(e.raw)
	drop := 0
	for p.bytes > maxPassingBytes || len(p.events)-drop > maxPassing {
		p.bytes -= len(p.events[drop].raw)
		p.omitted = append(p.omitted, p.events[drop].at)
		drop++
	}
	if drop == 0 {
		return
	}
	p.dropped += drop
	p.events = slices.Delete(p.events, 0, drop)
	if n := len(p.omitted); n > 4*maxPassing {
		p.omitted = append([]Position(nil), p.omitted[n-2*maxPassing:]...)
	}
}

// clone is a copy that stays as it is.
func (p *passing) clone() passing {
	c := *p
	c.events, c.omitted = slices.Clone(p.events), slices.Clone(p.omitted)
	return c
}

// since are the events after j, and how many after j were dropped.
func (p *passing) since(j Position) (events []passingEvent, omitted int) {
	for i := len(p.events); i > 0 && p.events[i-1].at.After(j); i-- {
		events = p.events[i-1:]
	}
	if j == (Position{}) {
		return events, p.dropped
	}
	for i := len(p.omitted); i > 0 && p.omitted[i-1].After(j); i-- {
		omitted++
	}
	return events, omitted
}
