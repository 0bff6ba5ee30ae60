package agui

import (
	"bytes"
	"unicode/utf8"
)

// Type is an event's type, as far as AG-UI 1.0 or a shim of the official client knows it.
type Type uint8

// The event types of AG-UI 1.0, then the deprecated ones that the client translates. TypeUnknown is any other: it
// passes, and the client drops it.
const (
	TypeUnknown Type = iota
	TextMessageStart
	TextMessageContent
	TextMessageEnd
	TextMessageChunk
	ToolCallStart
	ToolCallArgs
	ToolCallEnd
	ToolCallChunk
	ToolCallResult
	StateSnapshot
	StateDelta
	MessagesSnapshot
	ActivitySnapshot
	ActivityDelta
	Raw
	Custom
	RunStarted
	RunFinished
	RunError
	StepStarted
	StepFinished
	ReasoningStart
	ReasoningMessageStart
	ReasoningMessageContent
	ReasoningMessageEnd
	ReasoningMessageChunk
	ReasoningEnd
	ReasoningEncryptedValue
	SubagentStarted
	SubagentFinished
	SubagentError
	ThinkingStart
	ThinkingEnd
	ThinkingTextMessageStart
	ThinkingTextMessageContent
	ThinkingTextMessageEnd
	numTypes
)

var typeNames = [numTypes]string{
	"", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START",
	"TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK", "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA",
	"MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW", "CUSTOM", "RUN_STARTED", "RUN_FINISHED",
	"RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "REASONING_START", "REASONING_MESSAGE_START",
	"REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CHUNK", "REASONING_END",
	"REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR", "THINKING_START",
	"THINKING_END", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT", "THINKING_TEXT_MESSAGE_END",
}

var typesByName = func() map[string]Type {
	m := make(map[string]Type, numTypes)
	for t := TextMessageStart; t < numTypes; t++ {
		m[typeNames[t]] = t
	}
	return m
}()

// String is the type's name on the wire; empty for TypeUnknown.
func (t Type) String() string { return typeNames[t] }

// Terminal says whether the type ends a run.
func (t Type) Terminal() bool { return t == RunFinished || t == RunError }

// chunk says whether the type is a shorthand that the client expands.
func (t Type) chunk() bool {
	return t == TextMessageChunk || t == ToolCallChunk || t == ReasoningMessageChunk
}

// field names the top-level members of events that anything here reads.
type field uint8

const (
	fType field = iota
	fMessageID
	fDelta
	fToolCallID
	fToolCallName
	fParentMessageID
	fRole
	fName
	fContent
	fSubagentRunID
	fMetadata
	fRawEvent
	fTimestamp
	fSnapshot
	fMessages
	fActivityType
	fReplace
	fPatch
	fEvent
	fSource
	fValue
	fThreadID
	fRunID
	fParentRunID
	fProtocolVersion
	fInput
	fResult
	fOutcome
	fUsage
	fMessage
	fCode
	fStepName
	fSubtype
	fEntityID
	fEncryptedValue
	fDescription
	fParentSubagentRunID
	fParentToolCallID
	numFields
)

var fieldNames = [numFields]string{
	"type", "messageId", "delta", "toolCallId", "toolCallName", "parentMessageId", "role", "name", "content",
	"subagentRunId", "metadata", "rawEvent", "timestamp", "snapshot", "messages", "activityType", "replace", "patch",
	"event", "source", "value", "threadId", "runId", "parentRunId", "protocolVersion", "input", "result", "outcome",
	"usage", "message", "code", "stepName", "subtype", "entityId", "encryptedValue", "description",
	"parentSubagentRunId", "parentToolCallId",
}

var fieldsByName = func() map[string]field {
	m := make(map[string]field, numFields)
	for f := range numFields {
		m[fieldNames[f]] = f
	}
	return m
}()

// Event is one AG-UI event: the bytes as they were published and where the fields stand that are read. The zero Event
// is ready for Parse, which reuses its memory; all slices point into Raw and live as long as it does.
type Event struct {
	// Raw is one JSON object, valid UTF-8, without CR or LF. It is never changed.
	Raw []byte
	// Type is TypeUnknown for types that neither AG-UI 1.0 nor the client's shims know; TypeName has its name then.
	Type Type

	typeValue []byte
	fields    []fieldValue
	others    int // members that nothing here reads
}

type fieldValue struct {
	field field
	value []byte
}

// Parse reads one event. It reports ErrNotUTF8, ErrNotJSON, ErrNotObject, ErrTooDeep or ErrNoType, and leaves the
// Event unusable then. raw must not change afterwards; CR and LF between tokens become spaces, in a copy.
func (e *Event) Parse(raw []byte) error {
	*e = Event{fields: e.fields[:0]}
	if !utf8.Valid(raw) {
		return ErrNotUTF8
	}
	raw = bytes.Trim(raw, " \t\r\n")
	s := scanner{b: raw}
	if len(raw) == 0 {
		return ErrNotJSON
	}
	if raw[0] != '{' {
		if err := checkValue(raw); err != nil {
			return err
		}
		return ErrNotObject
	}
	if err := s.object(0, e.visit); err != nil {
		return err
	}
	if s.i != len(raw) {
		return ErrNotJSON
	}
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		return e.Parse(onOneLine(raw))
	}
	e.Raw = raw
	e.typeValue = e.get(fType)
	if !isString(e.typeValue) {
		return ErrNoType
	}
	if name := body(e.typeValue); bytes.IndexByte(name, '\\') < 0 {
		e.Type = typesByName[string(name)]
	} else {
		e.Type = typesByName[decode(e.typeValue)]
	}
	return nil
}

// visit notes a member that is read somewhere; of members with one name JavaScript keeps the last.
func (e *Event) visit(key, value []byte) {
	var f field
	var ok bool
	if name := body(key); bytes.IndexByte(name, '\\') < 0 {
		f, ok = fieldsByName[string(name)]
	} else {
		f, ok = fieldsByName[decode(key)]
	}
	if !ok {
		e.others++
		return
	}
	for i := range e.fields {
		if e.fields[i].field == f {
			e.fields[i].value = value
			return
		}
	}
	e.fields = append(e.fields, fieldValue{f, value})
}

// get returns the field's raw value, or nil where the event has none.
func (e *Event) get(f field) []byte {
	for i := range e.fields {
		if e.fields[i].field == f {
			return e.fields[i].value
		}
	}
	return nil
}

// text returns the field decoded, or "" and false where it is absent or no string.
func (e *Event) text(f field) (string, bool) {
	v := e.get(f)
	if !isString(v) {
		return "", false
	}
	return decode(v), true
}

// TypeName is the type as it was written, also where it is unknown.
func (e *Event) TypeName() string {
	if e.Type != TypeUnknown {
		return e.Type.String()
	}
	if !isString(e.typeValue) {
		return ""
	}
	return decode(e.typeValue)
}

// ThreadID is the threadId of a RUN_STARTED or RUN_FINISHED, "" where absent.
func (e *Event) ThreadID() string { s, _ := e.text(fThreadID); return s }

// RunID is the event's runId, "" where absent. The key names the run everywhere else.
func (e *Event) RunID() string { s, _ := e.text(fRunID); return s }

// ParentRunID is the event's parentRunId, "" where absent.
func (e *Event) ParentRunID() string { s, _ := e.text(fParentRunID); return s }

// Outcome is the type of a RUN_FINISHED's outcome, "" where it has none.
func (e *Event) Outcome() string {
	o := e.get(fOutcome)
	if !isObject(o) {
		return ""
	}
	if t := member(o, "type"); isString(t) {
		return decode(t)
	}
	return ""
}

// HasInput says whether a RUN_STARTED carries its RunAgentInput.
func (e *Event) HasInput() bool { return isObject(e.get(fInput)) }

// onOneLine is a checked JSON text with its CR and LF, which stand between tokens only, as spaces.
func onOneLine(raw []byte) []byte {
	out := bytes.Clone(raw)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return out
}
