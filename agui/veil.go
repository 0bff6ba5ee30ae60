package agui

import (
	"bytes"
	"slices"
)

// What somebody sees who may not see what runs started from: docs/contract.md, section 7.

// WithoutProps is a RUN_STARTED without the forwardedProps of its input, which nobody gets where callers are asked for a
// token. Any other event is the same slice.
func WithoutProps(event []byte) []byte {
	var e Event
	if e.Parse(event) != nil || e.Type != RunStarted {
		return event
	}
	input := e.get(fInput)
	if !isObject(input) || member(input, "forwardedProps") == nil {
		return event
	}
	return replaced(event, "input", append(without(input, "forwardedProps"), '}'))
}

// Veiled is an event as somebody sees it who may not see what runs started from: the same slice where nothing of it is
// hidden, nil where all of it is. Of an input the state is left, in an input that the client takes.
func Veiled(event []byte) []byte {
	var e Event
	if e.Parse(event) != nil {
		return nil // what can't be read may hold anything
	}
	switch e.Type {
	case Raw, ReasoningEncryptedValue:
		return nil
	case RunStarted:
		if input := e.get(fInput); input != nil {
			event = replaced(event, "input", bareInput(input))
		}
	case MessagesSnapshot:
		event = replaced(event, "messages", veiledMessages(e.get(fMessages)))
	default:
	}
	if member(event, "rawEvent") != nil {
		event = append(without(event, "rawEvent"), '}')
	}
	return event
}

// hides says whether an event closes a message that a veil hides.
func (r *Run) hides(event []byte) bool {
	var e Event
	if e.Parse(event) != nil || e.Type != TextMessageEnd {
		return false
	}
	return r.isPrivate(decode(e.get(fMessageID)))
}

// isPrivate says whether the fold's message of an id is one that a veil hides.
func (r *Run) isPrivate(id string) bool {
	m := r.fold.byID[id]
	return m != nil && privateRole(m.role)
}

// privateRole says whether messages of a role are hidden.
func privateRole(role string) bool { return role == "system" || role == "developer" }

// private says whether an opener or a chunk is of a text message that is hidden.
func private(kind itemKind, opener []byte) bool {
	if kind != itemText {
		return false
	}
	role := member(opener, "role")
	return isString(role) && privateRole(decode(role))
}

// bareInput is an input with the ids and the state of another, and nothing else.
func bareInput(input []byte) []byte {
	var out []byte
	if isObject(input) {
		eachMember(input, func(key, value []byte) bool {
			if keyIs(key, "threadId") || keyIs(key, "runId") || keyIs(key, "state") {
				out = appendMember(out, key, value)
			}
			return true
		})
	}
	out = append([]byte{'{'}, out...)
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, `"messages":[],"tools":[],"context":[]}`...)
}

// replaced is an object with another value for a member that it has.
func replaced(object []byte, name string, value []byte) []byte {
	var out []byte
	eachMember(object, func(key, old []byte) bool {
		if keyIs(key, name) {
			old = value
		}
		out = appendMember(out, key, old)
		return true
	})
	return append(append([]byte{'{'}, out...), '}')
}

// veiledMessages is a JSON array of messages without those that are hidden, and without encrypted values.
func veiledMessages(messages []byte) []byte {
	out := []byte{'['}
	eachElement(messages, func(m []byte) bool {
		if isObject(m) {
			if role := member(m, "role"); isString(role) && privateRole(decode(role)) {
				return true
			}
			m = veiledMessage(m)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, m...)
		return true
	})
	return append(out, ']')
}

// veiledMessage is a message without encrypted values, its own and its tool calls'.
func veiledMessage(m []byte) []byte {
	if !bytes.Contains(m, []byte("encryptedValue")) && !bytes.Contains(m, []byte(`\u`)) {
		return m
	}
	if member(m, "encryptedValue") != nil {
		m = append(without(m, "encryptedValue"), '}')
	}
	calls := member(m, "toolCalls")
	if len(calls) == 0 || calls[0] != '[' {
		return m
	}
	out := []byte{'['}
	eachElement(calls, func(c []byte) bool {
		if isObject(c) && member(c, "encryptedValue") != nil {
			c = append(without(c, "encryptedValue"), '}')
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, c...)
		return true
	})
	return replaced(m, "toolCalls", append(out, ']'))
}

// Veiled is the view as somebody has it who may not see what runs started from. It is made once.
func (v *View) Veiled() *View {
	v.veilOnce.Do(func() { v.veiled = v.veil() })
	return v.veiled
}

func (v *View) veil() *View {
	w := &View{
		Started: v.Started, Ended: v.Ended, Full: v.Full, StateKnown: v.StateKnown,
		start: v.start, state: v.state, subagents: v.subagents, spanOwners: v.spanOwners,
		closed: v.closed, customs: v.customs.veiled(), shuffled: v.shuffled, had: v.had, twins: v.twins,
	}
	hidden := map[string]bool{}
	for _, m := range v.messages {
		if privateRole(m.role) {
			hidden[m.id] = true
			continue
		}
		if whole := bytes.Join(m.segs, nil); !slices.Equal(whole, veiledMessage(whole)) {
			m.segs = [][]byte{veiledMessage(whole)}
		}
		w.messages = append(w.messages, m)
	}
	w.items = slices.DeleteFunc(slices.Clone(v.items), func(it openItem) bool { return private(it.kind, it.opener) })
	w.lanes = slices.DeleteFunc(slices.Clone(v.lanes), func(l lane) bool { return private(l.kind, l.reopen) })
	w.closed.items = slices.DeleteFunc(slices.Clone(v.closed.items), func(c closedItem) bool { return c.private || c.key.kind == itemText && hidden[c.key.id] })
	if v.terminal != nil {
		w.terminal = Veiled(v.terminal)
	}
	for _, pair := range [...]struct{ to, from *[2][]byte }{{&w.pending, &v.pending}, {&w.last, &v.last}, {&w.lastBefore, &v.lastBefore}} {
		for i, e := range pair.from {
			if e != nil {
				pair.to[i] = Veiled(e)
			}
		}
	}
	return w
}

// veiled is what is left of the events.
func (p *passing) veiled() passing {
	out := passing{omitted: p.omitted, dropped: p.dropped}
	out.events = slices.Clone(p.events)
	for i := range out.events {
		out.events[i].raw = Veiled(out.events[i].raw) // CUSTOM events: never nil
	}
	return out
}
