package agui

import (
	"bytes"
	"strconv"
)

// The parts of a content that is an array. In messages of a snapshot or an input the client's compatibility boundary
// takes null for an absent metadata of media, and turns legacy parts of type binary into media.
var (
	sources = union{
		"data": {{"value", true, checkString}, {"mimeType", true, checkString}},
		"url":  {{"value", true, checkString}, {"mimeType", false, checkString}},
		"file": {{"value", true, checkString}, {"provider", false, checkString}, {"mimeType", false, checkString}},
	}
	textPart     = objectRule{{"text", true, checkString}, {"id", false, checkString}, {"metadata", false, notNull}}
	mediaPart    = objectRule{{"source", true, checkSource}, {"id", false, checkString}, {"metadata", false, notNull}}
	inboundMedia = objectRule{{"source", true, checkSource}, {"id", false, checkString}}
	parts        = union{"text": textPart, "image": mediaPart, "audio": mediaPart, "video": mediaPart, "document": mediaPart}
	inboundParts = union{
		"text": textPart, "image": inboundMedia, "audio": inboundMedia, "video": inboundMedia, "document": inboundMedia,
		"binary": {{"mimeType", false, anything}},
	}
)

func checkSource(v []byte) *problem { return sources.check(v, "type") }

// checkContent takes a string or an array of parts.
func checkContent(v []byte, inbound bool) *problem {
	if isString(v) {
		return nil
	}
	if !isArray(v) {
		return expected("a string or an array", v)
	}
	return checkEach(v, func(v []byte) *problem { return checkPart(v, inbound) })
}

func checkPart(v []byte, inbound bool) *problem {
	if !isObject(v) {
		return expected("an object", v)
	}
	known := parts
	if inbound {
		known = inboundParts
	}
	o, ok := known.of(v, "type")
	switch {
	case !ok:
		return nil // dropped
	case o[0].name == "mimeType":
		return checkBinary(v)
	case o[0].name == "source":
		if source := member(v, "source"); isObject(source) {
			if _, ok := sources.of(source, "type"); !ok {
				return nil // a source of a later version drops its part, whatever else is in it
			}
		}
	}
	return o.check(v)
}

// checkBinary judges a legacy part by the media that the client makes of it: what has neither data nor a URL is
// dropped.
func checkBinary(v []byte) *problem {
	if !isString(member(v, "mimeType")) {
		return nil
	}
	for _, name := range [...]string{"data", "url"} {
		if value := member(v, name); truthy(value) {
			return checkString(value).in(name)
		}
	}
	return nil
}

// truthy is JavaScript's notion of it.
func truthy(v []byte) bool {
	switch {
	case v == nil || isNull(v) || v[0] == 'f':
		return false
	case isString(v):
		return len(v) > 2
	case isNumber(v):
		x, err := strconv.ParseFloat(string(v), 64)
		return err != nil || x != 0
	}
	return true
}

func checkInbound(v []byte) *problem { return checkContent(v, true) }

var (
	functionObject = objectRule{{"name", true, checkString}, {"arguments", true, checkString}}
	callObject     = objectRule{
		{"id", true, checkString},
		{"type", true, literal("function")},
		{"function", true, functionObject.check},
		{"encryptedValue", false, checkString},
		{"metadata", false, checkObject},
	}
	messageRoles = union{
		"developer": messageRule(memberRule{"name", false, checkString}, memberRule{"content", true, checkString}),
		"system":    messageRule(memberRule{"name", false, checkString}, memberRule{"content", true, checkString}),
		"assistant": messageRule(memberRule{"name", false, checkString}, memberRule{"content", false, checkString},
			memberRule{"toolCalls", false, func(v []byte) *problem { return checkEach(v, callObject.check) }}),
		"user": messageRule(memberRule{"name", false, checkString}, memberRule{"content", true, checkInbound}),
		"tool": messageRule(memberRule{"toolCallId", true, checkString}, memberRule{"content", true, checkInbound},
			memberRule{"error", false, checkString}),
		"reasoning": messageRule(memberRule{"content", true, checkString}),
		"activity": {
			{"id", true, checkString},
			{"activityType", true, checkString},
			{"content", true, checkObject},
			{"subagentRunId", false, checkString},
			{"metadata", false, checkObject},
		},
	}
)

// messageRule is the members of every message but an activity, and more.
func messageRule(more ...memberRule) objectRule {
	return append(objectRule{
		{"id", true, checkString},
		{"subagentRunId", false, checkString},
		{"encryptedValue", false, checkString},
		{"metadata", false, checkObject},
	}, more...)
}

// checkMessage judges one message of a snapshot or an input, checked JSON. drop is true where the client leaves the
// message out since it doesn't know its role; err says what is malformed, which is fatal.
func checkMessage(raw []byte) (drop bool, err error) {
	if !isObject(raw) {
		return false, expected("an object", raw)
	}
	o, ok := messageRoles.of(raw, "role")
	if !ok {
		return true, nil
	}
	if p := o.check(raw); p != nil {
		return false, p
	}
	return false, nil
}

func checkMessages(v []byte) *problem {
	return checkEach(v, func(v []byte) *problem { return messageRoles.check(v, "role") })
}

// A RunAgentInput and what is in it. Members that may be anything (state, forwardedProps, a tool's parameters, a resume
// entry's payload) need no rule: the compatibility boundary takes even their null for absent.
var (
	toolObject = objectRule{
		{"name", true, checkString}, {"description", true, checkString}, {"metadata", false, checkObject},
	}
	contextObject = objectRule{{"description", true, checkString}, {"value", true, checkString}}
	resumeObject  = objectRule{
		{"interruptId", true, checkString},
		{"metadata", false, checkObject},
		{"status", true, func(v []byte) *problem {
			return want(stringIs(v, "resolved") || stringIs(v, "cancelled"), `"resolved" or "cancelled"`, v)
		}},
	}
	inputObject = objectRule{
		{"threadId", true, checkString},
		{"runId", true, checkString},
		{"protocolVersion", false, checkString},
		{"parentRunId", false, checkString},
		{"messages", true, checkMessages},
		{"tools", false, func(v []byte) *problem { return checkEach(v, toolObject.check) }},
		{"context", false, func(v []byte) *problem { return checkEach(v, contextObject.check) }},
		{"resume", false, func(v []byte) *problem { return checkEach(v, resumeObject.check) }},
	}
)

// checkInput judges a RunAgentInput as the client judges RUN_STARTED.input. raw is untrusted bytes: it is checked to be
// JSON too.
func checkInput(raw []byte) error {
	if err := checkValue(raw); err != nil {
		return err
	}
	if p := inputObject.check(bytes.TrimSpace(raw)); p != nil {
		return p
	}
	return nil
}
