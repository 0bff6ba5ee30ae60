package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// notePartial explains history: "partial".
const notePartial = `no input recorded: the run's history is "partial", since what the user had said isn't in the stream. Publish the RunAgentInput too: the field input of the first XADD, publish --input FILE, or a first line {"input":{…}} at ingest`

// notePartialPath explains it where it isn't this run's input that is missing.
const notePartialPath = `the run's input is recorded, but that of an earlier run of its thread isn't, or that run is gone: the history is "partial"`

// noteFramed explains what of an event stream was checked.
const noteFramed = "the file is an event stream: what stands behind data: was checked. Ingest takes it as text/event-stream; XADD and aguihub publish take the events alone: sed -n 's/^data: *//p' FILE"

// A hintRule says how to mend what a reason and a detail describe. Empty parts match everything.
type hintRule struct {
	reason string
	detail string // part of the detail
	hint   string
}

// hintRules are tried in order; the first that matches is it.
var hintRules = []hintRule{
	{"not_utf8", "", "Write UTF-8. Half of a surrogate pair belongs into JSON as an escape (\\ud83d), never as raw bytes."},
	{"not_json", "", "Write each event as one whole JSON object. In files an event is one line: no pretty-printing, no commas between."},
	{"not_object", "", "An event is a JSON object. A list of events is published one by one."},
	{"too_deep", "", "JSON may nest 512 deep. Send deep data as a string, or flatten it."},
	{"no_type", "", `Each event has a string "type", such as "TEXT_MESSAGE_CONTENT".`},
	{"too_large", "", "Split the event (deltas may be cut anywhere), or raise --max-event on the hub."},
	{"no_event", "", "XADD takes the event in a field named event: XADD agui:run:ID * event '{…}'."},

	{"invalid_end", "before RUN_STARTED", "Begin each run with RUN_STARTED (threadId, runId)."},
	{"invalid_end", "/threadId", "RUN_FINISHED needs threadId and runId, the same as its RUN_STARTED."},
	{"invalid_end", "/runId", "RUN_FINISHED needs threadId and runId, the same as its RUN_STARTED."},
	{"invalid_end", "/message", "RUN_ERROR needs a string message."},
	{"invalid_end", "", "The run still ended, with RUN_ERROR, code invalid_end. Mend the terminal event so that its result is seen."},

	{"malformed", "/timestamp", "timestamp is a whole number of milliseconds since 1970."},
	{"malformed", "/patch", `A JSON Patch operation has op, a path that is empty or begins with "/" (with ~ only as ~0 or ~1), and, for add, replace and test, a value.`},
	{"malformed", "/delta/", `A JSON Patch operation has op, a path that is empty or begins with "/" (with ~ only as ~0 or ~1), and, for add, replace and test, a value.`},
	{"malformed", "/input", "RUN_STARTED.input is a whole RunAgentInput: threadId, runId, messages, tools, context (arrays). Leave it out rather than send a part, and publish it as the field input."},
	{"malformed", "got null", "Leave an optional field out instead of setting it to null (in Python: exclude_none=True)."},
	{"malformed", "isn't its name", "AG-UI writes names in camelCase (in Python: by_alias=True)."},
	{"malformed", "got nothing", "The field is required: add it."},
	{"malformed", "", "Give the field the type that AG-UI describes, or leave it out if it is optional."},

	{"before_start", "", "Begin each run with RUN_STARTED (threadId, runId); nothing may come before it. Where there is one, it is malformed: mend it first."},
	{"other_thread", "", "A run stays in the thread of its first RUN_STARTED. Publish to another thread under another run id."},
	{"after_end", "", "RUN_FINISHED and RUN_ERROR end the run: publish before them what belongs to it, and the next run under an id of its own."},
	{"unclosed", "", "The hub closed it in your stead. Send the END event of each message, tool call, reasoning item, step and subagent before RUN_FINISHED."},
	{"unknown_type", "", "AG-UI writes types in capitals, with underscores. Client 1.0 drops events of types that it doesn't know and goes on; an older HttpAgent ends the run over one."},
	{"restarted", "", "The client rejects it; a hub begins the run anew and drops what came before. End the run first, or give the next one an id of its own."},
	{"no_end", "", "End each run with RUN_FINISHED or RUN_ERROR; without it the client neither succeeds nor fails, and a chat shows it as running."},

	{"illegal", "is already open", "End it first, or use another id: an id names one item at a time."},
	{"illegal", "no text message", "Send TEXT_MESSAGE_START with this messageId first (or TEXT_MESSAGE_CHUNK, which needs no start), and nothing after its END."},
	{"illegal", "no tool call", "Send TOOL_CALL_START with this toolCallId first (or TOOL_CALL_CHUNK), and nothing after its END."},
	{"illegal", "no reasoning", "Send REASONING_MESSAGE_START with this messageId first, inside REASONING_START … REASONING_END."},
	{"illegal", "no legacy", "Send THINKING_START and THINKING_TEXT_MESSAGE_START first; better, move to the REASONING_* events."},
	{"illegal", "step", "A step's name is started once, then finished once; both name the same step and subagent."},
	{"illegal", "subagent", "Start each subagent once with SUBAGENT_STARTED (its parent before it), and speak for it until its end only."},
	{"illegal", "belongs to", "Whoever opened an item (the run or a subagent) goes on with it: send the same subagentRunId with each of its events."},
	{"illegal", "hunk", "The first chunk of an item names it: messageId for text and reasoning, toolCallId and toolCallName for a tool call."},
	{"illegal", "", "The official client rejects the event at this place of the run."},
}

// knownFields are names that producers often write in another case.
var knownFields = []string{
	"threadId", "runId", "parentRunId", "messageId", "parentMessageId", "toolCallId", "toolCallName", "activityType", "stepName",
	"rawEvent", "subagentRunId", "parentSubagentRunId", "entityId", "encryptedValue", "protocolVersion",
}

// hint says how to mend a finding; raw is the event where it is at hand.
func hint(reason, detail string, raw []byte) string {
	if string(raw) == "[DONE]" {
		return "[DONE] ends streams of another API, and is no AG-UI event: leave it out. RUN_FINISHED or RUN_ERROR ends a run."
	}
	if reason == "malformed" || reason == "invalid_end" {
		if text := caseHint(raw); text != "" {
			return text
		}
	}
	for _, r := range hintRules {
		if r.reason == reason && strings.Contains(detail, r.detail) {
			return r.hint
		}
	}
	return ""
}

// caseHint finds fields in snake case or other spellings, as serialisers without aliases write them.
func caseHint(raw []byte) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return ""
	}
	var wrong []string
	for name := range members {
		if i := slices.IndexFunc(knownFields, func(k string) bool { return squash(k) == squash(name) }); i >= 0 && knownFields[i] != name {
			wrong = append(wrong, fmt.Sprintf("%s → %s", name, knownFields[i]))
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	slices.Sort(wrong)
	return "AG-UI writes names in camelCase: " + strings.Join(wrong, ", ") + " (in Python: by_alias=True)."
}

// squash reduces a name to what all its spellings share.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}
