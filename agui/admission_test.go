package agui

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// ev makes an event from a type, in short, and members.
func ev(typ, members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"type":"` + typ + `"` + members + `}`
}

var (
	runStarted  = ev("RUN_STARTED", `"threadId":"t","runId":"r"`)
	runFinished = ev("RUN_FINISHED", `"threadId":"t","runId":"r"`)
)

// admitLines feeds lines as a hub does and returns the last Verdict.
func admitLines(a *Admission, lines ...string) (v Verdict) {
	var e Event
	for _, l := range lines {
		if err := e.Parse([]byte(l)); err != nil {
			v = a.Refuse(err, []byte(l))
		} else {
			v = a.Admit(&e)
		}
	}
	return v
}

// line is one entry and what is expected of it: a reason, and a part of the detail after a colon; "" for nothing wrong.
type line struct{ event, want string }

func TestAdmission(t *testing.T) {
	text := func(kind, id, more string) string { return ev("TEXT_MESSAGE_"+kind, `"messageId":"`+id+`"`+more) }
	chunk := func(members string) string { return ev("TEXT_MESSAGE_CHUNK", members) }
	started := line{runStarted, ""}
	for _, tc := range []struct {
		name  string
		lines []line
	}{
		{"everything before the start is withheld, unknown types too", []line{
			{text("START", "m", ""), "before_start"}, {ev("X", ""), `before_start:"X"`}, {ev("CUSTOM", `"name":5`), "before_start"}, started, {ev("X", ""), ""},
		}},
		{"a malformed RUN_STARTED starts nothing", []line{
			{ev("RUN_STARTED", `"threadId":"t"`), "malformed:/runId"}, {text("START", "m", ""), "before_start"}, started,
		}},
		{"an id is open once and content needs it open", []line{
			started,
			{text("CONTENT", "m", `,"delta":"d"`), "illegal:no text message"},
			{text("START", "m", ""), ""},
			{text("START", "m", ""), "illegal:already open"},
			{text("CONTENT", "\\u006d", `,"delta":"d"`), ""},
			{text("END", "m", ""), ""},
			{text("END", "m", ""), "illegal"},
			{text("START", "m", ""), ""},
		}},
		{"an id keeps its owner for the whole run", []line{
			started,
			{text("START", "m", `,"subagentRunId":"s"`), ""},
			{text("CONTENT", "m", `,"delta":"","subagentRunId":"t"`), "illegal:belongs to subagent"},
			{text("CONTENT", "m", `,"delta":""`), ""},
			{text("END", "m", ""), ""},
			{text("START", "m", `,"subagentRunId":"t"`), "illegal"},
			{text("START", "m", ""), ""},
			{text("END", "m", `,"subagentRunId":"s"`), ""},
		}},
		{"the parent agent is an owner too, and not the subagent of the empty id", []line{
			started, {text("START", "m", ""), ""}, {text("CONTENT", "m", `,"delta":"","subagentRunId":""`), "illegal:the parent agent"},
		}},
		{"a message and a call may share an id, a span and its message too", []line{
			started,
			{text("START", "x", `,"subagentRunId":"s"`), ""},
			{ev("TOOL_CALL_START", `"toolCallId":"x","toolCallName":"n"`), ""},
			{ev("REASONING_START", `"messageId":"x"`), ""},
			{ev("REASONING_MESSAGE_START", `"messageId":"x","role":"reasoning"`), ""},
			{ev("REASONING_END", `"messageId":"x"`), ""},
			{ev("REASONING_MESSAGE_CONTENT", `"messageId":"x","delta":""`), ""},
		}},
		{"a call belongs to the owner of its parent message", []line{
			started,
			{text("START", "m", `,"subagentRunId":"s"`), ""},
			{ev("TOOL_CALL_START", `"toolCallId":"c","toolCallName":"n","parentMessageId":"m","subagentRunId":"t"`), "illegal:parent message"},
			{ev("TOOL_CALL_START", `"toolCallId":"c","toolCallName":"n","parentMessageId":"m"`), ""},
			{ev("TOOL_CALL_ARGS", `"toolCallId":"c","delta":"","subagentRunId":"s"`), ""},
			{ev("TOOL_CALL_END", `"toolCallId":"c","subagentRunId":"t"`), "illegal"},
		}},
		{"a snapshot gives messages new owners, an input yields to nobody before it", []line{
			{ev("RUN_STARTED", `"threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":[{"role":"user","id":"u","content":"","subagentRunId":"s"},{"role":"user","id":"u","content":""}]}`), ""},
			{text("START", "u", `,"subagentRunId":"s"`), ""},
			{ev("MESSAGES_SNAPSHOT", `"messages":[{"role":"user","id":"u","content":""},{"role":"later","id":7}]`), ""},
			{text("END", "u", `,"subagentRunId":"s"`), "illegal"},
			{text("END", "u", ""), ""},
		}},
		{"a step belongs to whoever started it", []line{
			started,
			{ev("STEP_STARTED", `"stepName":"n","subagentRunId":"s"`), ""},
			{ev("STEP_STARTED", `"stepName":"n"`), ""},
			{ev("STEP_STARTED", `"stepName":"n"`), "illegal:already active"},
			{ev("STEP_FINISHED", `"stepName":"n"`), ""},
			{ev("STEP_FINISHED", `"stepName":"n"`), "illegal"},
			{ev("STEP_FINISHED", `"stepName":"n","subagentRunId":"s"`), ""},
		}},
		{"a subagent is one invocation with a parent that was started", []line{
			started,
			{ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n","parentSubagentRunId":"p"`), "illegal:parent"},
			{ev("SUBAGENT_FINISHED", `"subagentRunId":"s"`), "illegal:not active"},
			{ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n"`), ""},
			{ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n"`), "illegal"},
			{ev("SUBAGENT_ERROR", `"subagentRunId":"s","message":"m"`), ""},
			{ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n"`), "illegal"},
			{ev("SUBAGENT_STARTED", `"subagentRunId":"c","name":"n","parentSubagentRunId":"s"`), ""},
		}},
		{"a chunk goes on where its lane is, and only with what its opener said", []line{
			started,
			{chunk(`"delta":"d"`), "illegal:must name it"},
			{chunk(`"messageId":"m"`), ""},
			{chunk(`"delta":"d","role":"assistant"`), ""},
			{chunk(`"delta":"d","role":"user"`), "illegal:contradicts"},
			{chunk(`"messageId":"m","name":"n"`), "illegal:contradicts"},
			{chunk(`"messageId":"m","subagentRunId":"s"`), "illegal:belongs"},
			{ev("RAW", `"event":1`), ""},
			{chunk(`"delta":"d"`), ""},
			{ev("CUSTOM", `"name":"n","value":1`), ""},
			{chunk(`"delta":"d"`), "illegal"},
		}},
		{"lanes are apart, and an ambiguous chunk belongs to none", []line{
			started,
			{chunk(`"messageId":"a","subagentRunId":"s"`), ""},
			{chunk(`"delta":""`), ""},
			{chunk(`"messageId":"b","subagentRunId":"t"`), ""},
			{chunk(`"delta":""`), "illegal:2 lanes"},
			{ev("CUSTOM", `"name":"n","value":1,"subagentRunId":"s"`), ""},
			{chunk(`"delta":""`), ""},
			{chunk(`"delta":"","subagentRunId":"s"`), "illegal"},
			{ev("MESSAGES_SNAPSHOT", `"messages":[]`), ""},
			{chunk(`"delta":""`), "illegal"},
		}},
		{"an explicit opener takes over what its lane holds", []line{
			started, {chunk(`"messageId":"m"`), ""}, {text("CONTENT", "m", `,"delta":""`), "illegal"}, {text("START", "m", ""), ""}, {chunk(`"messageId":"m"`), "illegal:already open"}, {text("END", "m", ""), ""},
		}},
		{"an illegal explicit event leaves its lane open", []line{
			started,
			{chunk(`"messageId":"m"`), ""},
			{text("END", "x", ""), "illegal"},
			{ev("STEP_FINISHED", `"stepName":"n"`), "illegal"},
			{ev("STATE_DELTA", `"delta":5`), "malformed"},
			{ev("TOOL_CALL_CHUNK", `"toolCallId":"c"`), "illegal:no toolCallName"},
			{chunk(`"delta":"d"`), ""},
		}},
		{"legacy events have an item of their own", []line{
			started,
			{ev("THINKING_TEXT_MESSAGE_CONTENT", `"delta":"d"`), "illegal"},
			{ev("THINKING_START", `"title":5,"messageId":7`), ""},
			{ev("THINKING_TEXT_MESSAGE_START", ""), ""},
			{ev("THINKING_TEXT_MESSAGE_CONTENT", `"delta":7`), "malformed"},
			{ev("THINKING_TEXT_MESSAGE_CONTENT", `"delta":"d"`), ""},
			{ev("REASONING_MESSAGE_END", `"messageId":"thinking-2"`), "illegal"},
			{ev("THINKING_TEXT_MESSAGE_START", ""), "unclosed:was open"},
			{ev("THINKING_TEXT_MESSAGE_END", ""), ""},
			{ev("THINKING_END", ""), ""},
			{ev("THINKING_END", ""), "illegal"},
		}},
		{"nothing is sent after the end", []line{
			started,
			{runFinished, ""},
			{ev("RUN_ERROR", `"message":"m"`), "after_end"},
			{ev("X", ""), "after_end"},
			{runStarted, "after_end"},
			{"{", "after_end"},
			{ev("MESSAGES_SNAPSHOT", `"messages":[5]`), "after_end"},
			{ev("RUN_FINISHED", ""), "after_end"},
		}},
		{"what is no event has its own reasons", []line{
			started, {"\xff", "not_utf8"}, {"{", "not_json"}, {"[]", "not_object"}, {`{"type":5}`, "no_type"}, {`{"type":"RAW","event":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "too_deep"},
		}},
		{"details show no more of the content than 64 bytes", []line{
			started, {text("END", strings.Repeat("é", 40), ""), "illegal:" + strings.Repeat("é", 32) + `"…`}, {text("START", "m", `,"role":"`+strings.Repeat("x", 999)+`"`), "malformed:/role: expected developer"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a Admission
			for i, l := range tc.lines {
				v := admitLines(&a, l.event)
				reason, detail, _ := strings.Cut(l.want, ":")
				if string(v.Reason) != reason || !strings.Contains(v.Detail, detail) {
					t.Fatalf("event %d %.200s: %q %q, want %q", i, l.event, v.Reason, v.Detail, l.want)
				}
				if sent := reason == "" || reason == string(ReasonUnclosed); v.Send != sent {
					t.Fatalf("event %d %.200s: Send %v", i, l.event, v.Send)
				}
				check(t, &a, v)
			}
		})
	}
}

func TestTheEndOfARun(t *testing.T) {
	t.Run("a RUN_FINISHED with items open is sent behind their closings, the innermost first", func(t *testing.T) {
		var a Admission
		v := admitLines(&a, runStarted,
			ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n"`), ev("SUBAGENT_STARTED", `"subagentRunId":"u","name":"n","parentSubagentRunId":"s"`),
			ev("STEP_STARTED", `"stepName":"n","subagentRunId":"s"`), ev("REASONING_START", `"messageId":"r"`), ev("TEXT_MESSAGE_START", `"messageId":"m"`),
			ev("TOOL_CALL_START", `"toolCallId":"c","toolCallName":"n"`), ev("TEXT_MESSAGE_CHUNK", `"messageId":"k"`), runFinished)
		want := []string{
			ev("TOOL_CALL_END", `"toolCallId":"c"`), ev("TEXT_MESSAGE_END", `"messageId":"m"`), ev("REASONING_END", `"messageId":"r"`),
			ev("STEP_FINISHED", `"stepName":"n","subagentRunId":"s"`), ev("SUBAGENT_FINISHED", `"subagentRunId":"u"`), ev("SUBAGENT_FINISHED", `"subagentRunId":"s"`),
		}
		if got := texts(v.Closings); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("closings %v, want %v", got, want)
		}
		if !v.Send || !v.End || !v.Fold || v.Reason != ReasonUnclosed || !strings.Contains(v.Detail, `step "n"`) || !a.Ended() {
			t.Errorf("verdict %+v", v)
		}
	})
	for name, lines := range map[string][]string{
		"a malformed terminal event":                    {runStarted, ev("RUN_FINISHED", `"threadId":"t"`)},
		"a malformed terminal event before the start":   {ev("RUN_ERROR", "")},
		"a RUN_FINISHED before the start":               {runFinished},
		"a terminal event that was cut":                 {runStarted, `{"threadId":"t", "type" : "RUN_FINISHED","result":{"a":[1,"x`},
		"a terminal event that isn't UTF-8":             {runStarted, `{"message":"` + "\xff" + `","type":"RUN_ERROR"}`},
		"a terminal event with garbage in it":           {runStarted, `{"usage":[NaN,{"type":"x"}],"type":"RUN_FINISHED"}`},
		"a terminal event that is nested too deep":      {runStarted, `{"result":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `,"type":"RUN_FINISHED"}`},
		"a terminal event with something else after it": {runStarted, runFinished + " {}"},
	} {
		t.Run(name+" ends the run as invalid", func(t *testing.T) {
			var a Admission
			v := admitLines(&a, lines...)
			var instead struct{ Type, Code, Message string }
			if err := json.Unmarshal(v.Instead, &instead); err != nil || instead.Type != "RUN_ERROR" || instead.Code != "invalid_end" || instead.Message == "" {
				t.Errorf("instead %s", v.Instead)
			}
			if v.Send || v.Fold || !v.End || v.Reason != ReasonInvalidEnd || v.Detail == "" || !a.Ended() {
				t.Errorf("verdict %+v", v)
			}
		})
	}
	t.Run("one that is too large ends it too", func(t *testing.T) {
		var a Admission
		admitLines(&a, runStarted)
		if v := a.Refuse(ErrTooLarge, []byte(ev("TEXT_MESSAGE_END", `"x":{"type":"RUN_FINISHED"}`))); v.End || v.Reason != ReasonTooLarge {
			t.Errorf("not terminal: %+v", v)
		}
		if v := a.Refuse(fmt.Errorf("entry: %w", ErrTooLarge), []byte(runFinished)); !v.End || v.Reason != ReasonInvalidEnd {
			t.Errorf("terminal: %+v", v)
		}
	})
	t.Run("what isn't read as a terminal event doesn't end it", func(t *testing.T) {
		for _, raw := range []string{`[{"type":"RUN_FINISHED"`, `{"a":"\"type\":\"RUN_FINISHED\"`, `{"type":"RUN_FINISHEDX"`, `{"type":"RUN_FINISHED","type":"X"`, `{"a":"type":"RUN_FINISHED"} {`, ``, ` `, `{`, `{"type":`, `{} {"type":"RUN_FINISHED"`} {
			if looksTerminal([]byte(raw)) != (raw == `{"a":"type":"RUN_FINISHED"} {`) {
				t.Errorf("%s", raw)
			}
		}
	})
	t.Run("a first RUN_ERROR is legal and ends", func(t *testing.T) {
		var a Admission
		if v := admitLines(&a, ev("RUN_ERROR", `"message":"m"`)); !v.Send || !v.End || v.Reason != "" || a.Started() || !a.Ended() {
			t.Errorf("verdict %+v", v)
		}
	})
	t.Run("a late snapshot of the messages is folded, not sent", func(t *testing.T) {
		var a Admission
		v := admitLines(&a, runStarted, runFinished, ev("MESSAGES_SNAPSHOT", `"messages":[]`))
		if v.Send || !v.Late || !v.Fold || v.End || v.Reason != ReasonAfterEnd || a.effect().typ != MessagesSnapshot {
			t.Errorf("verdict %+v", v)
		}
	})
	t.Run("a RUN_STARTED while the run is open begins anew", func(t *testing.T) {
		var a Admission
		v := admitLines(&a, runStarted, ev("TEXT_MESSAGE_START", `"messageId":"m"`), ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n"`), runStarted)
		if !v.Send || !v.Restart || !v.Fold || v.End || len(a.items())+len(a.subagents()) > 0 {
			t.Errorf("verdict %+v, open %v", v, a.items())
		}
		if v := admitLines(&a, runFinished); v.Closings != nil || v.Restart {
			t.Errorf("end %+v", v)
		}
	})
}

func TestEffects(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  effect
	}{
		{"of a plain event its type and id", []string{ev("TEXT_MESSAGE_START", `"messageId":"\u006d"`)}, effect{typ: TextMessageStart, id: "m"}},
		{"of a result the message's id", []string{ev("TOOL_CALL_RESULT", `"messageId":"m","toolCallId":"c","content":""`)}, effect{typ: ToolCallResult, id: "m"}},
		{"of a first chunk the opening", []string{ev("TEXT_MESSAGE_CHUNK", `"messageId":"m","metadata":{}`)}, effect{typ: TextMessageContent, opens: true, id: "m"}},
		{"of a first chunk with a delta both", []string{ev("TOOL_CALL_CHUNK", `"toolCallId":"c","toolCallName":"n","delta":""`)}, effect{typ: ToolCallArgs, opens: true, content: true, id: "c"}},
		{"of a later chunk its content", []string{ev("REASONING_MESSAGE_CHUNK", `"messageId":"m"`), ev("REASONING_MESSAGE_CHUNK", `"delta":"d"`)}, effect{typ: ReasoningMessageContent, content: true, id: "m"}},
		{"of a later chunk with metadata content too", []string{ev("TEXT_MESSAGE_CHUNK", `"messageId":"m"`), ev("TEXT_MESSAGE_CHUNK", `"metadata":{}`)}, effect{typ: TextMessageContent, content: true, id: "m"}},
		{"of a chunk with a raw event content too", []string{ev("TEXT_MESSAGE_CHUNK", `"messageId":"m","rawEvent":1`)}, effect{typ: TextMessageContent, opens: true, content: true, id: "m"}},
		{"of an empty chunk nothing", []string{ev("TEXT_MESSAGE_CHUNK", `"messageId":"m"`), ev("TEXT_MESSAGE_CHUNK", `"rawEvent":null`)}, effect{typ: TextMessageContent, id: "m"}},
		{"of a legacy event the translation", []string{ev("THINKING_START", ""), ev("THINKING_TEXT_MESSAGE_START", ""), ev("THINKING_TEXT_MESSAGE_CONTENT", `"delta":""`)}, effect{typ: ReasoningMessageContent, id: "thinking-2"}},
		{"of an encrypted value the entity", []string{ev("REASONING_ENCRYPTED_VALUE", `"subtype":"message","entityId":"e","encryptedValue":"v"`)}, effect{typ: ReasoningEncryptedValue, id: "e"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a Admission
			admitLines(&a, runStarted)
			if v := admitLines(&a, tc.lines...); !v.Fold || a.effect() != tc.want {
				t.Errorf("%+v (%s), want %+v", a.effect(), v.Detail, tc.want)
			}
		})
	}
}

func TestWhatIsOpen(t *testing.T) {
	var a Admission
	admitLines(&a, runStarted,
		ev("SUBAGENT_STARTED", `"name":"n","x":1,"subagentRunId":"s","metadata":{},"parentToolCallId":"c"`),
		ev("STEP_STARTED", `"stepName":"n","timestamp":1`),
		ev("TEXT_MESSAGE_START", `"role":"user","messageId":"\u006d","rawEvent":1,"subagentRunId":"s"`),
		ev("TOOL_CALL_START", `"toolCallId":"c","toolCallName":"n","parentMessageId":"m"`),
		ev("TOOL_CALL_START", `"toolCallId":"d","toolCallName":"n","parentMessageId":null`),
		ev("THINKING_START", `"title":"x"`),
		ev("TEXT_MESSAGE_CHUNK", `"messageId":"k","name":"n","delta":"d","subagentRunId":"s"`),
		ev("TOOL_CALL_CHUNK", `"toolCallId":"l","toolCallName":"n","parentMessageId":"p","delta":"d"`),
		ev("SUBAGENT_FINISHED", `"subagentRunId":"s"`))
	wantItems := []openItem{
		{kind: itemStep, id: "n", opener: []byte(ev("STEP_STARTED", `"stepName":"n"`))},
		{kind: itemText, id: "m", owner: "s", owned: true, asText: tag{"s", true}, opener: []byte(ev("TEXT_MESSAGE_START", `"messageId":"\u006d","role":"user","subagentRunId":"s"`))},
		{kind: itemTool, id: "c", owner: "s", owned: true, parent: "m", opener: []byte(ev("TOOL_CALL_START", `"toolCallId":"c","toolCallName":"n","parentMessageId":"m"`))},
		{kind: itemTool, id: "d", opener: []byte(ev("TOOL_CALL_START", `"toolCallId":"d","toolCallName":"n"`))},
		{kind: itemSpan, id: "thinking-1", legacy: true, opener: []byte(ev("THINKING_START", ""))},
	}
	if diff := cmp.Diff(wantItems, a.items(), cmp.AllowUnexported(openItem{}, tag{}, Position{})); diff != "" {
		t.Error(diff)
	}
	wantLanes := []lane{{itemTool, "l", []byte(ev("TOOL_CALL_CHUNK", `"toolCallId":"l","toolCallName":"n","parentMessageId":"p"`))}}
	if diff := cmp.Diff(wantLanes, a.lanes(), cmp.AllowUnexported(lane{})); diff != "" {
		t.Error(diff)
	}
	wantSubs := []subagent{{id: "s", start: []byte(ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n","parentToolCallId":"c"`)), finished: true}}
	if diff := cmp.Diff(wantSubs, a.subagents(), cmp.AllowUnexported(subagent{})); diff != "" {
		t.Error(diff)
	}
}

func TestCheckMessageAndInput(t *testing.T) {
	for raw, want := range map[string]string{
		`{"role":"user","id":"u","content":"c"}`: "false", `{"role":"later","id":5}`: "true", `{"id":"u"}`: "true", `5`: "false the whole: expected an object, got a number",
		`{"role":"user","id":"u","content":[{"type":"image","source":{"type":"data","value":5,"mimeType":"m"}}]}`: "false /content/0/source/value: expected a string, got a number",
	} {
		drop, err := checkMessage([]byte(raw))
		got := strconv.FormatBool(drop)
		if err != nil {
			got += " " + err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	for raw, ok := range map[string]bool{
		`{"threadId":"t","runId":"r","messages":[],"state":null,"forwardedProps":null}`: true, ` {"threadId":"t","runId":"r","messages":[{"role":"later"}]}` + "\n": true,
		`{"threadId":"t","runId":"r"}`: false, `{"threadId":"t","runId":"r","messages":[5]}`: false, `{"threadId":"t","runId":"r","messages":[],"tools":null}`: false, `{"threadId"`: false, ``: false, `[]`: false,
	} {
		if err := checkInput([]byte(raw)); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func texts(events [][]byte) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = string(e)
	}
	return out
}

// check tests what holds after every entry: the lists agree with each other, and every lane's owner may end its item.
func check(t *testing.T, a *Admission, v Verdict) {
	t.Helper()
	if len(v.Detail) > maxDetail || !utf8.ValidString(v.Detail) {
		t.Fatalf("detail %q", v.Detail)
	}
	if a.Ended() {
		return
	}
	linked := 0
	for o := a.first; o != nil; o = o.next {
		linked++
		if o.held == nil {
			continue
		}
		l := o.held
		if a.byOwner[l.owner] != l || l.item != o || a.open[o.kind][o.id] != o {
			t.Fatalf("lane of %v is lost", l.owner)
		}
		if _, ok := a.byKind[l.kind][l]; !ok {
			t.Fatalf("lane of %v isn't under its kind", l.owner)
		}
		if owner := a.owners[bucketOf[o.kind]][o.id]; l.owner.set && owner != l.owner {
			t.Fatalf("lane of %v holds %q of %v", l.owner, o.id, owner)
		}
	}
	held := 0
	for kind := range a.byKind {
		held += len(a.byKind[kind])
	}
	open := len(a.steps)
	for kind := range a.open {
		open += len(a.open[kind])
	}
	for _, o := range []*opened{a.legacySpan, a.legacyMessage} {
		if o != nil {
			open++
		}
	}
	if open != linked || held != len(a.byOwner) || len(a.items())+len(a.lanes()) != linked || len(a.subs) != len(a.byID) {
		t.Fatalf("%d linked, %d open; %d lanes, %d by kind", linked, open, len(a.byOwner), held)
	}
}

// closeAll tests that closings close: each is legal, and a RUN_FINISHED after them is in order. Openers are legal in a
// run that has only the subagents.
func closeAll(t *testing.T, a *Admission) {
	t.Helper()
	if !a.Started() || a.Ended() {
		return
	}
	for _, it := range a.items() {
		var b Admission
		if v := admitLines(&b, runStarted, string(it.opener)); !v.Send || len(b.items()) != 1 {
			t.Fatalf("opener %s: %s", it.opener, v.Detail)
		}
	}
	var b Admission
	admitLines(&b, runStarted)
	for _, s := range a.subagents() {
		if v := admitLines(&b, string(s.start)); !v.Send {
			t.Fatalf("subagent %s: %s", s.start, v.Detail)
		}
	}
	for _, l := range a.lanes() {
		if v := admitLines(&b, string(l.reopen)); !v.Send {
			t.Fatalf("lane %s: %s", l.reopen, v.Detail)
		}
	}
	for _, c := range a.closings() {
		if v := admitLines(a, string(c)); !v.Send || v.Reason != "" {
			t.Fatalf("closing %s: %s", c, v.Detail)
		}
		check(t, a, Verdict{})
	}
	if v := admitLines(a, runFinished); !v.Send || v.Reason != "" {
		t.Fatalf("after the closings: %s", v.Detail)
	}
}
