package agui

import (
	"bytes"
	"math"
	"strconv"
)

// maxPointer is the longest JSON Pointer that is admitted, in bytes: the client tests pointers with a backtracking
// expression whose stack overflows between 4 and 8 million characters, sooner in a browser.
const maxPointer = 1 << 20

// problem says what the client would find malformed. It is made on the way out of a failed check only, so that checks
// that pass cost no memory.
type problem struct {
	path string // JSON Pointer of names the protocol knows and of indices
	want string
	got  string
}

// Error is the problem in words: where, what was expected, what was there.
func (p *problem) Error() string {
	path := p.path
	if path == "" {
		path = "the whole"
	}
	return path + ": expected " + p.want + ", got " + p.got
}

// in says under which member the problem was found.
func (p *problem) in(name string) *problem {
	if p != nil {
		p.path = "/" + name + p.path
	}
	return p
}

// at says at which index the problem was found.
func (p *problem) at(i int) *problem {
	if p != nil {
		p.path = "/" + strconv.Itoa(i) + p.path
	}
	return p
}

func expected(want string, v []byte) *problem { return &problem{want: want, got: kindOf(v)} }

func kindOf(v []byte) string {
	switch {
	case v == nil:
		return "nothing"
	case isString(v):
		return "a string"
	case isObject(v):
		return "an object"
	case isArray(v):
		return "an array"
	case isNull(v):
		return "null"
	case isBool(v):
		return "a boolean"
	}
	return "a number"
}

// rule says what a field's value may be. The zero rule is for fields that the type doesn't describe: the client strips
// those, whatever they are.
type rule uint8

const (
	ruleNone rule = iota
	ruleAny
	ruleString
	ruleStringOrNull // null counts as absent
	ruleInt
	ruleBool
	ruleObject
	ruleTextRole
	ruleReasoningRole
	ruleToolRole
	ruleSubtype
	ruleContent
	rulePatch
	ruleMessages
	ruleInput
	ruleRunOutcome
	ruleSubagentOutcome
	ruleUsage
)

// shape is what a type of event describes.
type shape struct {
	rules [numFields]rule
	need  uint64 // bit set of the fields that must stand there
}

type fieldRule struct {
	field field
	rule  rule
}

// shapeOf makes a shape with the fields that every event may carry.
func shapeOf(need, may []fieldRule) *shape {
	s := &shape{}
	s.rules[fTimestamp], s.rules[fRawEvent], s.rules[fMetadata] = ruleInt, ruleAny, ruleObject
	for _, m := range need {
		s.rules[m.field] = m.rule
		s.need |= 1 << m.field
	}
	for _, m := range may {
		s.rules[m.field] = m.rule
	}
	return s
}

// shapes has a shape for each type but TypeUnknown. The legacy THINKING_* types are judged as what the client
// translates them to; their ids and roles are its own.
var shapes = func() (s [numTypes]*shape) {
	type f = []fieldRule
	text := func(names ...field) f {
		out := make(f, len(names))
		for i, n := range names {
			out[i] = fieldRule{n, ruleString}
		}
		return out
	}
	with := func(list f, more ...fieldRule) f { return append(list, more...) }
	owner := fSubagentRunID
	s[TextMessageStart] = shapeOf(text(fMessageID), with(text(owner, fName), fieldRule{fRole, ruleTextRole}))
	s[TextMessageContent] = shapeOf(text(fMessageID, fDelta), text(owner))
	s[TextMessageEnd] = shapeOf(text(fMessageID), text(owner))
	s[TextMessageChunk] = shapeOf(nil, with(text(owner, fMessageID, fDelta, fName), fieldRule{fRole, ruleTextRole}))
	s[ToolCallStart] = shapeOf(text(fToolCallID, fToolCallName), with(text(owner), fieldRule{fParentMessageID, ruleStringOrNull}))
	s[ToolCallArgs] = shapeOf(text(fToolCallID, fDelta), text(owner))
	s[ToolCallEnd] = shapeOf(text(fToolCallID), text(owner))
	s[ToolCallChunk] = shapeOf(nil, with(text(owner, fToolCallID, fToolCallName, fDelta), fieldRule{fParentMessageID, ruleStringOrNull}))
	s[ToolCallResult] = shapeOf(with(text(fMessageID, fToolCallID), fieldRule{fContent, ruleContent}), with(text(owner), fieldRule{fRole, ruleToolRole}))
	s[StateSnapshot] = shapeOf(f{{fSnapshot, ruleAny}}, text(owner))
	s[StateDelta] = shapeOf(f{{fDelta, rulePatch}}, text(owner))
	s[MessagesSnapshot] = shapeOf(f{{fMessages, ruleMessages}}, nil)
	s[ActivitySnapshot] = shapeOf(with(text(fMessageID, fActivityType), fieldRule{fContent, ruleObject}), with(text(owner), fieldRule{fReplace, ruleBool}))
	s[ActivityDelta] = shapeOf(with(text(fMessageID, fActivityType), fieldRule{fPatch, rulePatch}), text(owner))
	s[Raw] = shapeOf(f{{fEvent, ruleAny}}, text(owner, fSource))
	s[Custom] = shapeOf(with(text(fName), fieldRule{fValue, ruleAny}), text(owner))
	s[RunStarted] = shapeOf(text(fThreadID, fRunID), with(text(fProtocolVersion, fParentRunID), fieldRule{fInput, ruleInput}))
	s[RunFinished] = shapeOf(text(fThreadID, fRunID), f{{fResult, ruleAny}, {fOutcome, ruleRunOutcome}, {fUsage, ruleUsage}})
	s[RunError] = shapeOf(text(fMessage), with(text(fCode), fieldRule{fUsage, ruleUsage}))
	s[StepStarted] = shapeOf(text(fStepName), text(owner))
	s[StepFinished] = s[StepStarted]
	s[ReasoningStart] = s[TextMessageEnd]
	s[ReasoningMessageStart] = shapeOf(with(text(fMessageID), fieldRule{fRole, ruleReasoningRole}), text(owner))
	s[ReasoningMessageContent] = s[TextMessageContent]
	s[ReasoningMessageEnd] = s[TextMessageEnd]
	s[ReasoningMessageChunk] = shapeOf(nil, text(owner, fMessageID, fDelta))
	s[ReasoningEnd] = s[TextMessageEnd]
	s[ReasoningEncryptedValue] = shapeOf(with(text(fEntityID, fEncryptedValue), fieldRule{fSubtype, ruleSubtype}), text(owner))
	s[SubagentStarted] = shapeOf(text(owner, fName), text(fDescription, fParentSubagentRunID, fParentToolCallID, fParentMessageID))
	s[SubagentFinished] = shapeOf(text(owner), f{{fResult, ruleAny}, {fOutcome, ruleSubagentOutcome}})
	s[SubagentError] = shapeOf(text(owner, fMessage), text(fCode))
	s[ThinkingStart] = shapeOf(nil, text(owner))
	s[ThinkingEnd] = s[ThinkingStart]
	s[ThinkingTextMessageStart] = s[ThinkingStart]
	s[ThinkingTextMessageContent] = shapeOf(text(fDelta), text(owner))
	s[ThinkingTextMessageEnd] = s[ThinkingStart]
	return s
}()

// Valid says whether the official client's schema takes the event, which was parsed: nothing of it is malformed.
func (e *Event) Valid() bool { return checkEvent(e) == nil }

// checkEvent says what is malformed in an event of a known type, or nil. What the client's schema doesn't describe, it
// doesn't judge.
func checkEvent(e *Event) *problem {
	s := shapes[e.Type]
	var have uint64
	for i := range e.fields {
		f := &e.fields[i]
		r := s.rules[f.field]
		if r == ruleNone {
			continue
		}
		have |= 1 << f.field
		if r == ruleString { // what most fields are, without a call
			if !isString(f.value) {
				return expected("a string", f.value).in(fieldNames[f.field])
			}
			continue
		}
		if p := r.check(f.value); p != nil {
			return p.in(fieldNames[f.field])
		}
	}
	if lacks := s.need &^ have; lacks != 0 {
		for f := range numFields {
			if lacks&(1<<f) != 0 {
				return missing(e.Raw, fieldNames[f])
			}
		}
	}
	return nil
}

// check applies the rule to a value that stands there.
func (r rule) check(v []byte) *problem {
	switch r {
	case ruleString:
		return checkString(v)
	case ruleStringOrNull:
		return want(isString(v) || isNull(v), "a string", v)
	case ruleInt:
		return checkInt(v, -maxSafe)
	case ruleBool:
		return want(isBool(v), "a boolean", v)
	case ruleObject:
		return checkObject(v)
	case ruleTextRole:
		return want(stringIs(v, "assistant") || stringIs(v, "user") || stringIs(v, "system") || stringIs(v, "developer"),
			"developer, system, assistant or user", v)
	case ruleReasoningRole:
		return want(stringIs(v, "reasoning"), `"reasoning"`, v)
	case ruleToolRole:
		return want(stringIs(v, "tool"), `"tool"`, v)
	case ruleSubtype:
		return want(stringIs(v, "message") || stringIs(v, "tool-call"), `"tool-call" or "message"`, v)
	case ruleContent:
		return checkContent(v, false)
	case rulePatch:
		return checkPatch(v)
	case ruleMessages:
		return checkMessages(v)
	case ruleInput:
		return inputObject.check(v)
	case ruleRunOutcome:
		if isNull(v) {
			return nil
		}
		return runOutcomes.check(v, "type")
	case ruleSubagentOutcome:
		return subagentOutcomes.check(v, "type")
	case ruleUsage:
		return checkEach(v, usageObject.check)
	default:
		return nil
	}
}

func want(ok bool, what string, v []byte) *problem {
	if ok {
		return nil
	}
	p := expected(what, v)
	if isString(v) {
		p.got = quote(decode(v))
	}
	return p
}

// stringIs compares a value with an ASCII string.
func stringIs(v []byte, s string) bool {
	if !isString(v) {
		return false
	}
	if b := body(v); bytes.IndexByte(b, '\\') < 0 {
		return string(b) == s
	}
	return decode(v) == s
}

// maxSafe is JavaScript's Number.MAX_SAFE_INTEGER.
const maxSafe = 1<<53 - 1

// checkInt takes what JavaScript holds as a safe integer that is at least low: 1, 1.0 and 1e3, not 1.5 or "1".
func checkInt(v []byte, low float64) *problem {
	if isNumber(v) {
		if x, err := strconv.ParseFloat(string(v), 64); err == nil && x == math.Trunc(x) && x >= low && x <= maxSafe {
			return nil
		}
		return &problem{want: "a safe integer", got: quote(string(v))}
	}
	return expected("an integer", v)
}

// checkEach applies a check to every element of an array.
func checkEach(v []byte, check func(v []byte) *problem) *problem {
	if !isArray(v) {
		return expected("an array", v)
	}
	var p *problem
	i := 0
	eachElement(v, func(v []byte) bool {
		p = check(v).at(i)
		i++
		return p == nil
	})
	return p
}

func checkStrings(v []byte) *problem { return checkEach(v, checkString) }

func checkString(v []byte) *problem { return want(isString(v), "a string", v) }

func checkObject(v []byte) *problem { return want(isObject(v), "an object", v) }

// objectRule is what the schema describes of an object inside an event.
type objectRule []memberRule

type memberRule struct {
	name  string
	need  bool
	check func(v []byte) *problem
}

// maxMembers bounds how many members an objectRule describes.
const maxMembers = 12

// check applies the rule. Members that it doesn't describe are stripped by the client; of two of one name the last
// counts.
func (o objectRule) check(v []byte) *problem {
	if !isObject(v) {
		return expected("an object", v)
	}
	var values [maxMembers][]byte
	o.members(v, &values)
	for i := range o {
		if values[i] == nil {
			if o[i].need {
				return missing(v, o[i].name)
			}
			continue
		}
		if p := o[i].check(values[i]); p != nil {
			return p.in(o[i].name)
		}
	}
	return nil
}

func (o objectRule) members(v []byte, values *[maxMembers][]byte) {
	eachMember(v, func(key, value []byte) bool {
		for i := range o {
			if keyIs(key, o[i].name) {
				values[i] = value
				break
			}
		}
		return true
	})
}

func anything([]byte) *problem { return nil }

// notNull is for the arbitrary values that may be absent but not null.
func notNull(v []byte) *problem { return want(!isNull(v), "a value", v) }

func literal(s string) func(v []byte) *problem {
	return func(v []byte) *problem { return want(stringIs(v, s), quote(s), v) }
}

func count(v []byte) *problem { return checkInt(v, 0) }

var usageObject = objectRule{
	{"provider", false, checkString},
	{"model", false, checkString},
	{"inputTokens", false, count},
	{"outputTokens", false, count},
	{"totalTokens", false, count},
	{"reasoningTokens", false, count},
	{"cachedInputTokens", false, count},
	{"cacheWriteInputTokens", false, count},
}

var interruptObject = objectRule{
	{"id", true, checkString},
	{"reason", true, checkString},
	{"subagentRunId", false, checkString},
	{"message", false, checkString},
	{"toolCallId", false, checkString},
	{"responseSchema", false, checkObject},
	{"expiresAt", false, checkString},
	{"metadata", false, checkObject},
}

// union is the members of a discriminated union by their tag; the client drops a value with another tag.
type union map[string]objectRule

var runOutcomes = union{
	"success": {{"pendingToolCallIds", false, checkStrings}},
	"interrupt": {{"interrupts", true, func(v []byte) *problem {
		if p := checkEach(v, interruptObject.check); p != nil {
			return p
		}
		if skipSpace(v, skipSpace(v, 0)+1) == len(v)-1 {
			return &problem{want: "at least one interrupt", got: "none"}
		}
		return nil
	}}},
	"cancelled": {},
}

var subagentOutcomes = union{"success": {}, "suspended": {{"interruptIds", false, checkStrings}}}

// of returns the rule for the tag that v has under name, or false where the client drops v.
func (u union) of(v []byte, name string) (objectRule, bool) {
	tag := member(v, name)
	if !isString(tag) {
		return nil, false
	}
	if b := body(tag); bytes.IndexByte(b, '\\') < 0 {
		o, ok := u[string(b)]
		return o, ok
	}
	o, ok := u[decode(tag)]
	return o, ok
}

// check applies the rule of the member that v is.
func (u union) check(v []byte, name string) *problem {
	if !isObject(v) {
		return expected("an object", v)
	}
	o, ok := u.of(v, name)
	if !ok {
		return nil // of a later version: dropped
	}
	return o.check(v)
}

// What the operations of a JSON Patch need.
var (
	valueAt  = objectRule{{"path", true, checkPointer}, {"value", true, anything}}
	pathOnly = objectRule{{"path", true, checkPointer}}
	fromPath = objectRule{{"from", true, checkPointer}, {"path", true, checkPointer}}

	operations = union{
		"add": valueAt, "replace": valueAt, "test": valueAt, "remove": pathOnly, "move": fromPath, "copy": fromPath,
	}
)

// checkPatch takes an array of operations; the client drops those whose op is unknown, one by one.
func checkPatch(v []byte) *problem {
	return checkEach(v, func(v []byte) *problem { return operations.check(v, "op") })
}

func checkPointer(v []byte) *problem {
	if !isString(v) {
		return expected("a JSON Pointer", v)
	}
	b := body(v)
	if bytes.IndexByte(b, '\\') >= 0 {
		b = appendDecoded(nil, b)
	}
	bad := len(b) > maxPointer || (len(b) > 0 && b[0] != '/')
	for i := 0; i < len(b) && !bad; i++ {
		bad = b[i] == '~' && (i+1 == len(b) || (b[i+1] != '0' && b[i+1] != '1'))
	}
	return want(!bad, "a JSON Pointer", v)
}
