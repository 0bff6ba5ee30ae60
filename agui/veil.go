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
	event = unsealed(event, patched(e.Type))
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

// veiledMessage is a message without encrypted values.
func veiledMessage(m []byte) []byte {
	spare := ""
	if role := member(m, "role"); isString(role) && decode(role) == "activity" {
		spare = "content" // ACTIVITY_DELTA patches it
	}
	return unsealed(m, spare)
}

// sealed is the member that only an agent can read: reasoning that a provider has encrypted.
const sealed = "encryptedValue"

// patched is the member of an event that holds a document of the application, or a patch of one: RFC 6902 goes by what is
// there, so nothing may be taken out of it. The rest of RUN_STARTED and MESSAGES_SNAPSHOT is veiled by itself.
func patched(t Type) string {
	switch t {
	case StateSnapshot:
		return "snapshot"
	case StateDelta:
		return "delta"
	case ActivitySnapshot:
		return "content"
	case ActivityDelta:
		return "patch"
	case RunStarted:
		return "input"
	case MessagesSnapshot:
		return "messages"
	default:
		return ""
	}
}

// unsealed is a checked object without the members called encryptedValue, however deep they are, but for those within its
// member spare: the same slice where there are none.
func unsealed(object []byte, spare string) []byte {
	if !bytes.Contains(object, []byte(sealed)) && !bytes.Contains(object, []byte(`\u`)) {
		return object
	}
	u := unsealer{b: object}
	u.value(skipSpace(object, 0), spare)
	if !u.found {
		return object
	}
	return u.out
}

// unsealer copies a checked value in one pass, since events may be large and deep.
type unsealer struct {
	b, out []byte
	found  bool
}

// value copies the value at b[i] and returns the index after it. Of an object the member spare is copied as it is.
func (u *unsealer) value(i int, spare string) int {
	switch u.b[i] {
	case '{':
		return u.object(i, spare)
	case '[':
		u.out = append(u.out, '[')
		for i = skipSpace(u.b, i+1); u.b[i] != ']'; {
			i = skipSpace(u.b, u.value(i, ""))
			if u.b[i] == ',' {
				u.out = append(u.out, ',')
				i = skipSpace(u.b, i+1)
			}
		}
		u.out = append(u.out, ']')
		return i + 1
	default:
		end := skipValue(u.b, i)
		u.out = append(u.out, u.b[i:end]...)
		return end
	}
}

func (u *unsealer) object(i int, spare string) int {
	u.out = append(u.out, '{')
	first := true
	for i = skipSpace(u.b, i+1); u.b[i] == '"'; {
		end := skipString(u.b, i)
		key, at := u.b[i:end], skipSpace(u.b, skipSpace(u.b, end)+1)
		if keyIs(key, sealed) {
			u.found = true
			i = skipValue(u.b, at)
		} else {
			if !first {
				u.out = append(u.out, ',')
			}
			first = false
			u.out = append(append(u.out, key...), ':')
			if spare != "" && keyIs(key, spare) {
				i = skipValue(u.b, at)
				u.out = append(u.out, u.b[at:i]...)
			} else {
				i = u.value(at, "")
			}
		}
		if i = skipSpace(u.b, i); u.b[i] == ',' {
			i = skipSpace(u.b, i+1)
		}
	}
	u.out = append(u.out, '}')
	return i + 1
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
		restated: restated{held: v.restated.held},
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
