package framing

import (
	"strings"
	"sync"
)

// kind is what a field of a message holds.
type kind uint8

const (
	kindText kind = iota
	kindInt
	kindBool
	kindMessage
	kindValue  // any JSON
	kindObject // a JSON object
)

// field is a field of a message. Its number is its place in the list, from 1 on.
type field struct {
	name     string
	kind     kind
	message  string // of kindMessage
	always   bool   // stands in the JSON with its zero value where it is absent
	repeated bool
}

// schema lists the messages of AG-UI 1.0's protobuf binding: the fields in the order of their numbers, each a name, after a
// colon what it holds (a text where nothing stands), and "!" where a zero value is never left out, "*" where it repeats.
const schema = `
JsonPatchOperation  op:int! path! from value:value
TextPart            text! id metadata:value
MediaPart           source:Source metadata:value id
DataSource          value! mimeType!
UrlSource           value! mimeType
FileSource          value! provider mimeType
Source              data:DataSource url:UrlSource file:FileSource
Part                text:TextPart image:MediaPart audio:MediaPart video:MediaPart document:MediaPart
ToolCall            id! type! function:Function metadata:object encryptedValue
Function            name! arguments!
Message             id! role! content name toolCalls:ToolCall* toolCallId error contentParts:Part* metadata:object subagentRunId encryptedValue activityType activityContent:object
Tool                name! description! parameters:value metadata:object
Context             description! value!
ResumeEntry         interruptId! status! payload:value metadata:object
RunAgentInput       threadId! runId! parentRunId state:value messages:Message* tools:Tool* context:Context* forwardedProps:value resume:ResumeEntry* protocolVersion
Interrupt           id! reason! message toolCallId responseSchema:value expiresAt metadata:value subagentRunId
Usage               provider model inputTokens:int outputTokens:int totalTokens:int reasoningTokens:int cachedInputTokens:int cacheWriteInputTokens:int
Base                type:int! timestamp:int rawEvent:value metadata:object

TEXT_MESSAGE_START        base:Base messageId! role name subagentRunId
TEXT_MESSAGE_CONTENT      base:Base messageId! delta! subagentRunId
TEXT_MESSAGE_END          base:Base messageId! subagentRunId
TEXT_MESSAGE_CHUNK        base:Base messageId role delta name subagentRunId
TOOL_CALL_START           base:Base toolCallId! toolCallName! parentMessageId subagentRunId
TOOL_CALL_ARGS            base:Base toolCallId! delta! subagentRunId
TOOL_CALL_END             base:Base toolCallId! subagentRunId
TOOL_CALL_CHUNK           base:Base toolCallId toolCallName parentMessageId delta subagentRunId
TOOL_CALL_RESULT          base:Base subagentRunId messageId! toolCallId! content role contentParts:Part*
STATE_SNAPSHOT            base:Base snapshot:value subagentRunId
STATE_DELTA               base:Base delta:JsonPatchOperation* subagentRunId
MESSAGES_SNAPSHOT         base:Base messages:Message*
ACTIVITY_SNAPSHOT         base:Base subagentRunId messageId! activityType! content:object replace:bool
ACTIVITY_DELTA            base:Base subagentRunId messageId! activityType! patch:JsonPatchOperation*
RAW                       base:Base event:value source subagentRunId
CUSTOM                    base:Base name! value:value subagentRunId
RUN_STARTED               base:Base threadId! runId! parentRunId input:RunAgentInput protocolVersion
RUN_FINISHED              base:Base threadId! runId! result:value outcome! interrupts:Interrupt* usage:Usage* pendingToolCallIds*
RUN_ERROR                 base:Base code message! usage:Usage*
STEP_STARTED              base:Base stepName! subagentRunId
STEP_FINISHED             base:Base stepName! subagentRunId
REASONING_START           base:Base subagentRunId messageId!
REASONING_MESSAGE_START   base:Base subagentRunId messageId! role!
REASONING_MESSAGE_CONTENT base:Base subagentRunId messageId! delta!
REASONING_MESSAGE_END     base:Base subagentRunId messageId!
REASONING_MESSAGE_CHUNK   base:Base subagentRunId messageId delta
REASONING_END             base:Base subagentRunId messageId!
REASONING_ENCRYPTED_VALUE base:Base subagentRunId subtype! entityId! encryptedValue!
SUBAGENT_STARTED          base:Base subagentRunId! name! description parentSubagentRunId parentToolCallId parentMessageId
SUBAGENT_FINISHED         base:Base subagentRunId! result:value outcome! interruptIds*
SUBAGENT_ERROR            base:Base subagentRunId! message! code
`

// envelope are the types of events by the number of their field in the message Event, from 1 on; enumTypes those by their
// number in the enumeration that Base.type is of, from 0 on; patchOps those of JsonPatchOperation.op.
const (
	envelope = `TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END STATE_SNAPSHOT
		STATE_DELTA MESSAGES_SNAPSHOT RAW CUSTOM RUN_STARTED RUN_FINISHED RUN_ERROR STEP_STARTED STEP_FINISHED TEXT_MESSAGE_CHUNK TOOL_CALL_CHUNK
		SUBAGENT_STARTED SUBAGENT_FINISHED SUBAGENT_ERROR TOOL_CALL_RESULT ACTIVITY_SNAPSHOT ACTIVITY_DELTA REASONING_START
		REASONING_MESSAGE_START REASONING_MESSAGE_CONTENT REASONING_MESSAGE_END REASONING_MESSAGE_CHUNK REASONING_END REASONING_ENCRYPTED_VALUE`
	enumTypes = `TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END STATE_SNAPSHOT STATE_DELTA
		MESSAGES_SNAPSHOT RAW CUSTOM RUN_STARTED RUN_FINISHED RUN_ERROR STEP_STARTED STEP_FINISHED SUBAGENT_STARTED SUBAGENT_FINISHED
		SUBAGENT_ERROR TEXT_MESSAGE_CHUNK TOOL_CALL_CHUNK TOOL_CALL_RESULT ACTIVITY_SNAPSHOT ACTIVITY_DELTA REASONING_START
		REASONING_MESSAGE_START REASONING_MESSAGE_CONTENT REASONING_MESSAGE_END REASONING_MESSAGE_CHUNK REASONING_END REASONING_ENCRYPTED_VALUE`
	patchOps = "add remove replace move copy test"
)

// tables is the schema, read once.
type tables struct {
	messages  map[string][]field
	envelope  []string
	enumTypes []string
	patchOps  []string
}

var theTables = sync.OnceValue(func() *tables {
	t := &tables{
		messages: map[string][]field{}, envelope: strings.Fields(envelope), enumTypes: strings.Fields(enumTypes),
		patchOps: strings.Fields(patchOps),
	}
	kinds := map[string]kind{"int": kindInt, "bool": kindBool, "value": kindValue, "object": kindObject}
	for line := range strings.Lines(schema) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var fields []field
		for _, w := range words[1:] {
			var f field
			w, f.always = strings.CutSuffix(w, "!")
			w, f.repeated = strings.CutSuffix(w, "*")
			name, what, typed := strings.Cut(w, ":")
			f.name = name
			if k, known := kinds[what]; known {
				f.kind = k
			} else if typed {
				f.kind, f.message = kindMessage, what
			}
			fields = append(fields, f)
		}
		t.messages[words[0]] = fields
	}
	return t
})
