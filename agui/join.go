package agui

import "bytes"

// Joiner makes one event of adjacent deltas of one text message, reasoning message or tool call, which a client can't
// tell from the single ones. The zero value is ready.
type Joiner struct {
	event Event
	n     int
	typ   Type
	id    []byte // raw
	lane  []byte // raw subagentRunId, nil where absent
	delta []byte
	first []byte
}

// Add takes an event that goes on with what is held, or any plain delta where nothing is. False means that it was not
// taken: Take what is held, and try again.
func (j *Joiner) Add(raw []byte) bool {
	if j.event.Parse(raw) != nil {
		return false
	}
	id := fMessageID
	switch j.event.Type {
	case TextMessageContent, ReasoningMessageContent:
	case ToolCallArgs:
		id = fToolCallID
	default:
		return false
	}
	e := &j.event
	known := 3 // type, id, delta
	if e.get(fSubagentRunID) != nil {
		known++
	}
	if len(e.fields) != known || e.others > 0 || !isString(e.get(id)) || !isString(e.get(fDelta)) {
		return false
	}
	if j.n > 0 && (j.typ != e.Type || !bytes.Equal(j.id, e.get(id)) || !bytes.Equal(j.lane, e.get(fSubagentRunID))) {
		return false
	}
	if j.n == 0 {
		j.typ, j.id, j.lane, j.first, j.delta = e.Type, e.get(id), e.get(fSubagentRunID), raw, nil
	}
	j.delta = append(j.delta, body(e.get(fDelta))...)
	j.n++
	return true
}

// Take returns how many events are held and the one that stands for them, and holds nothing afterwards.
func (j *Joiner) Take() (n int, event []byte) {
	n = j.n
	j.n = 0
	if n < 2 {
		return n, j.first
	}
	name := "messageId"
	if j.typ == ToolCallArgs {
		name = "toolCallId"
	}
	out := make([]byte, 0, len(j.delta)+len(j.id)+len(j.lane)+100)
	out = append(append(append(out, `{"type":"`...), j.typ.String()...), `","`...)
	out = append(append(append(out, name...), `":`...), j.id...)
	out = appendSubagent(out, j.lane)
	out = append(append(append(out, `,"delta":"`...), j.delta...), `"}`...)
	return n, out
}
