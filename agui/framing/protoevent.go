package framing

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// decodeEvent decodes the message Event, which holds one of all events.
func decodeEvent(b []byte) (object, error) {
	t := theTables()
	var body []byte
	arm, unknown := 0, false
	err := walk(b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		switch {
		case int(num) > len(t.envelope):
			unknown = true
		case typ != protowire.BytesType || (arm != 0 && arm != int(num)):
			return errEvent
		default:
			arm, body = int(num), append(slices.Clip(body), data...)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case arm == 0 && unknown:
		return nil, errUnknown
	case arm == 0:
		return nil, errEvent
	}
	name := t.envelope[arm-1]
	event, err := decodeMessage(name, body, 1)
	if err != nil {
		return nil, err
	}
	base, ok := event["base"].(object)
	if !ok {
		return nil, errType
	}
	number, _ := base["type"].(int64)
	if number < 0 || int(number) >= len(t.enumTypes) || t.enumTypes[number] != name {
		return nil, errType
	}
	delete(event, "base")
	delete(base, "type")
	maps.Copy(event, base)
	event["type"] = name
	return event, nil
}

// finishMessage makes of what the wire holds in fields of its own the form that JSON has.
func finishMessage(name string, m object) error {
	switch name {
	case "JsonPatchOperation":
		number, _ := m["op"].(int64)
		if ops := theTables().patchOps; number >= 0 && int(number) < len(ops) {
			m["op"] = ops[number]
		} else {
			m["op"] = strconv.FormatInt(number, 10) // what it is is for the client to judge
		}
	case "Source":
		return oneOf(m, "data", "url", "file")
	case "Part":
		return oneOf(m, "text", "image", "audio", "video", "document")
	case "Message":
		return finishContent(m)
	case "TOOL_CALL_RESULT":
		parts := partsOf(m)
		if _, text := m["content"]; text && len(parts) > 0 {
			return errContent
		} else if !text {
			m["content"] = parts
		}
	case "RUN_FINISHED":
		finishOutcome(m, map[string]string{"pendingToolCallIds": "", "interrupts": "interrupt"})
		dropEmpty(m, "usage")
	case "RUN_ERROR":
		dropEmpty(m, "usage")
	case "SUBAGENT_FINISHED":
		finishOutcome(m, map[string]string{"interruptIds": ""})
	}
	return nil
}

// oneOf makes of {arm: {…}} the object {…, type: arm}. What has no arm that this hub knows becomes empty, for whoever holds
// it to leave out.
func oneOf(m object, arms ...string) error {
	var found string
	for _, arm := range arms {
		if m[arm] == nil {
			continue
		}
		if found != "" {
			return errContent
		}
		found = arm
	}
	inner, _ := m[found].(object)
	clear(m)
	if found == "" {
		return nil
	}
	maps.Copy(m, inner)
	m["type"] = found
	return nil
}

// partsOf takes the parts of a content out of m; those of kinds that this hub doesn't know are left out.
func partsOf(m object) []any {
	parts, _ := m["contentParts"].([]any)
	delete(m, "contentParts")
	return slices.DeleteFunc(parts, func(p any) bool {
		part, _ := p.(object)
		source, sourced := part["source"].(object)
		return len(part) == 0 || (sourced && len(source) == 0)
	})
}

// finishContent sets a message's content from the field that its role has for it.
func finishContent(m object) error {
	role, _ := m["role"].(string)
	wired, _ := m["contentParts"].([]any)
	parts := partsOf(m)
	activity, hasActivity := m["activityContent"]
	delete(m, "activityContent")
	_, hasText := m["content"]
	inParts, inObject := role == "user" || role == "tool", role == "activity"
	if !slices.Contains([]string{"developer", "system", "assistant", "user", "tool", "activity", "reasoning"}, role) {
		inParts = len(wired) > 0
		inObject = !inParts && hasActivity
	}
	switch {
	case hasText && (len(wired) > 0 || hasActivity), len(wired) > 0 && !inParts, hasActivity && !inObject:
		return errContent
	case inParts && !hasText:
		if parts == nil {
			parts = []any{}
		}
		m["content"] = parts
	case inObject && hasActivity:
		m["content"] = activity
	}
	dropEmpty(m, "toolCalls")
	return nil
}

// finishOutcome makes an object of an outcome's name and the lists that belong to it. A list stands in it where it isn't
// empty, and always in the outcome that needs it.
func finishOutcome(m object, lists map[string]string) {
	name, _ := m["outcome"].(string)
	delete(m, "outcome")
	outcome := m
	if name != "" {
		outcome = object{"type": name}
		m["outcome"] = outcome
	}
	for list, needed := range lists {
		values, _ := m[list].([]any)
		delete(m, list)
		if len(values) > 0 || (name != "" && needed == name) {
			if values == nil {
				values = []any{}
			}
			outcome[list] = values
		}
	}
}

func dropEmpty(m object, list string) {
	if values, _ := m[list].([]any); len(values) == 0 {
		delete(m, list)
	}
}
