package agui

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/oracle"
)

// admitted is a stream after admission.
type admitted struct {
	name string
	// judged is what both we and the client judge: without what follows a run's terminal event, and without what only we
	// withhold by contract (no type, too deep, unknown types before the start).
	judged [][]byte
	first  int // index in judged of the first event that we don't pass as it is; −1 if none
	mended bool
	why    Verdict
	sent   [][][]byte // what is sent; a run and a restart begin another stream
}

// untouched says whether all was passed as it is.
func (a *admitted) untouched() bool { return a.first < 0 && len(a.sent) == 1 }

// admitStream runs a stream of one or more runs, each with its own Admission.
func admitStream(s oracle.Stream) admitted {
	out := admitted{name: s.Name, first: -1, sent: [][][]byte{nil}}
	unlike := false // from here on we and the client are in different runs
	var a Admission
	var e Event
	for _, line := range s.Lines {
		err := e.Parse(line)
		if a.Ended() {
			if err != nil || e.Type != RunStarted {
				continue
			}
			a = Admission{}
			out.sent = append(out.sent, nil)
		}
		var v Verdict
		if err != nil {
			v = a.Refuse(err, line)
		} else {
			v = a.Admit(&e)
		}
		ours := v.Reason == ReasonNoType || v.Reason == ReasonTooDeep || (v.Reason == ReasonBeforeStart && e.Type == TypeUnknown)
		unlike = unlike || (ours && v.End)
		if v.End && strings.HasPrefix(v.Detail, "nested deeper") {
			ours, unlike = true, true
		}
		if !ours && !unlike {
			if out.first < 0 && (v.Reason != "" || v.Restart) {
				out.first, out.why = len(out.judged), v
				out.mended = (v.Reason == ReasonUnclosed && !v.End) || strings.Contains(v.Detail, "which end it")
			}
			out.judged = append(out.judged, line)
		}
		if v.Restart {
			out.sent = append(out.sent, nil)
		}
		to := &out.sent[len(out.sent)-1]
		*to = append(*to, v.Closings...)
		if v.Send {
			*to = append(*to, e.Raw)
		}
		if v.Instead != nil {
			*to = append(*to, v.Instead)
		}
	}
	return out
}

// agree checks streams against the client and says how many agreed, and how many held something to withhold.
func agree(t *testing.T, o *oracle.Oracle, streams []oracle.Stream) {
	t.Helper()
	all := make([]admitted, len(streams))
	var jobs, sent []oracle.Job
	var of []int
	for i, s := range streams {
		all[i] = admitStream(s)
		jobs = append(jobs, oracle.Job{Lines: all[i].judged, Hash: true})
		if all[i].untouched() {
			continue
		}
		for _, lines := range all[i].sent {
			sent, of = append(sent, oracle.Job{Lines: lines, Hash: true}), append(of, i)
		}
	}
	rejected, mended, reducer := 0, 0, 0
	for i, r := range o.ReplayBatch(t, jobs) {
		a := &all[i]
		if r.Stage == "other" { // the reducer: a patch copied a function or made a cycle, which only the fold can see
			reducer++
			continue
		}
		at := r.At
		if r.OK {
			at = -1
		}
		if at >= 0 {
			rejected++
		}
		if a.mended {
			mended++
			if at >= 0 && at < a.first {
				t.Errorf("%s: the client rejects event %d already: %s", a.name, at, r.Error)
			}
			continue
		}
		if at != a.first {
			t.Errorf("%s: first rejected: client %d (%s: %s), we %d (%s: %s)\n%s", a.name, at, r.Stage, r.Error, a.first, a.why.Reason, a.why.Detail, lineAt(a.judged, at, a.first))
		}
	}
	for i, r := range o.ReplayBatch(t, sent) {
		if !r.OK && r.Stage != "other" {
			t.Errorf("%s: what we send is rejected at %d: %s: %s\n%s", all[of[i]].name, r.At, r.Stage, r.Error, lineAt(sent[i].Lines, r.At, -1))
		}
	}
	t.Logf("%d streams, %d with an event that the client rejects, %d mended before it would, %d that break its reducer; of what is sent where anything was changed, %d streams replayed",
		len(streams), rejected, mended, reducer, len(sent))
	if reducer > len(streams)/20 {
		t.Errorf("%d of %d streams break the client's reducer: too many to leave out", reducer, len(streams))
	}
}

func lineAt(lines [][]byte, at ...int) string {
	var out strings.Builder
	for _, i := range at {
		if i >= 0 && i < len(lines) {
			fmt.Fprintf(&out, "  %d: %.400s\n", i, lines[i])
		}
	}
	return out.String()
}

func TestAdmissionAgreesWithTheClientOnTheCorpus(t *testing.T) {
	streams := oracle.Corpus(t)
	agree(t, oracle.Start(t), streams)
}

func generated(n int) []oracle.Stream {
	var out []oracle.Stream
	for seed := range uint64(n) {
		out = append(out, oracle.GenerateWith(seed, oracle.Options{Legacy: seed%3 == 0, Contradict: seed%2 == 0}))
	}
	return out
}

func TestAdmissionAgreesWithTheClientOnGeneratedStreams(t *testing.T) {
	agree(t, oracle.Start(t), generated(400))
}

// mutations is how many mutated streams are tried.
const mutations = 2000

func TestAdmissionAgreesWithTheClientOnMutatedStreams(t *testing.T) {
	o := oracle.Start(t)
	var streams []oracle.Stream
	for seed := range uint64(200) {
		streams = append(streams, oracle.GenerateWith(seed, oracle.Options{MaxEvents: 40, Legacy: seed%3 == 0, Contradict: seed%2 == 0}))
	}
	rng := rand.New(rand.NewPCG(7, 11))
	var mutated []oracle.Stream
	for i := range mutations {
		mutated = append(mutated, oracle.Mutate(streams[i%len(streams)], rng))
	}
	agree(t, o, mutated)
}

func TestAdmissionWithholdsExactlyWhatTheClientRejectsUpToTheEnd(t *testing.T) {
	o := oracle.Start(t)
	rng := rand.New(rand.NewPCG(3, 5))
	count := 0
	for seed := range uint64(60) {
		s := oracle.Mutate(oracle.GenerateWith(seed, oracle.Options{Runs: 1, MaxEvents: 40, Contradict: seed%2 == 0}), rng)
		var a Admission
		var e Event
		var judged [][]byte
		var withheld []int
		for _, line := range s.Lines {
			err := e.Parse(line)
			v := a.Refuse(err, nil)
			if err == nil {
				v = a.Admit(&e)
			}
			if v.Reason == ReasonNoType || v.Reason == ReasonTooDeep || (v.Reason == ReasonBeforeStart && e.Type == TypeUnknown) {
				continue
			}
			if v.End || v.Restart || v.Reason == ReasonUnclosed {
				break
			}
			if !v.Send {
				withheld = append(withheld, len(judged))
			}
			judged = append(judged, line)
		}
		var rejected []int
		for _, v := range o.Verdicts(t, oracle.Job{Lines: judged}) {
			rejected = append(rejected, v.At)
		}
		count += len(rejected)
		if fmt.Sprint(rejected) != fmt.Sprint(withheld) {
			t.Errorf("%s: the client rejects %v, we withhold %v", s.Name, rejected, withheld)
		}
	}
	t.Logf("%d rejected events", count)
}

// collider makes events of few ids, names and subagents, so that they meet in all ways.
type collider struct{ *rand.Rand }

func (c collider) event() string {
	one := func(of ...string) string { return of[c.IntN(len(of))] }
	id := func() string { return one(`"a"`, `"b"`, `""`, `"\u0061"`) }
	maybe := func(name, value string) string {
		if c.IntN(3) == 0 {
			return `,"` + name + `":` + value
		}
		return ""
	}
	by := maybe("subagentRunId", one(`"s"`, `"t"`, `""`, `"\u0073"`))
	typ := one("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START",
		"TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK", "TOOL_CALL_CHUNK", "TOOL_CALL_RESULT", "MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT",
		"ACTIVITY_DELTA", "CUSTOM", "RAW", "STATE_DELTA", "STEP_STARTED", "STEP_FINISHED", "REASONING_START", "REASONING_END",
		"REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CHUNK", "REASONING_MESSAGE_CHUNK",
		"REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR", "THINKING_START", "THINKING_END",
		"THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT", "THINKING_TEXT_MESSAGE_END")
	out := `{"type":"` + typ + `"`
	message, call := `,"messageId":`+id(), `,"toolCallId":`+id()
	delta := maybe("delta", `"d"`)
	extra := maybe("rawEvent", one(`1`, `null`)) + maybe("metadata", `{"k":1}`)
	switch typ {
	case "TEXT_MESSAGE_START":
		out += message + maybe("role", one(`"user"`, `"assistant"`))
	case "TEXT_MESSAGE_CHUNK":
		out += maybe("messageId", id()) + maybe("role", one(`"user"`, `"assistant"`)) + maybe("name", one(`"n"`, `"m"`)) + delta
	case "TOOL_CALL_START":
		out += call + `,"toolCallName":"n"` + maybe("parentMessageId", one(id(), "null"))
	case "TOOL_CALL_CHUNK":
		out += maybe("toolCallId", id()) + maybe("toolCallName", one(`"n"`, `"n"`, `"m"`)) + maybe("parentMessageId", one(id(), "null")) + delta
	case "REASONING_MESSAGE_CHUNK":
		out += maybe("messageId", id()) + delta
	case "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT":
		out += message + `,"delta":"d"`
	case "TOOL_CALL_ARGS":
		out += call + `,"delta":"d"`
	case "TOOL_CALL_END":
		out += call
	case "TOOL_CALL_RESULT":
		out += message + call + `,"content":"c"`
	case "MESSAGES_SNAPSHOT":
		out += `,"messages":[{"role":` + one(`"user"`, `"reasoning"`, `"later"`) + `,"content":"","id":` + id() + by + `},
			{"role":"activity","activityType":"x","content":{},"id":` + id() + maybe("subagentRunId", `"t"`) + `},
			{"role":"assistant","id":` + id() + by + `,"toolCalls":[{"type":"function","function":{"name":"n","arguments":""},"id":` + id() + `}]}]`
	case "ACTIVITY_SNAPSHOT":
		out += message + `,"activityType":"x","content":{}` + maybe("replace", one("true", "false"))
	case "ACTIVITY_DELTA":
		out += message + `,"activityType":"x","patch":[]`
	case "CUSTOM":
		out += `,"name":"n","value":null`
	case "RAW":
		out += `,"event":null`
	case "STATE_DELTA":
		out += `,"delta":[]`
	case "STEP_STARTED", "STEP_FINISHED":
		out += `,"stepName":` + id()
	case "REASONING_MESSAGE_START":
		out += message + `,"role":"reasoning"`
	case "REASONING_ENCRYPTED_VALUE":
		out += `,"entityId":` + id() + `,"encryptedValue":"v","subtype":` + one(`"message"`, `"tool-call"`)
	case "SUBAGENT_STARTED":
		by = `,"subagentRunId":` + one(`"s"`, `"t"`, `""`)
		out += `,"name":"n"` + maybe("parentSubagentRunId", one(`"s"`, `"t"`, `""`))
	case "SUBAGENT_FINISHED", "SUBAGENT_ERROR":
		by = `,"subagentRunId":` + one(`"s"`, `"t"`, `""`)
		out += `,"message":"m"`
	case "THINKING_TEXT_MESSAGE_CONTENT":
		out += `,"delta":"d"`
	default:
		out += message
	}
	return strings.ReplaceAll(strings.ReplaceAll(out+by+extra+"}", "\n", ""), "\t", "")
}

// TestAdmissionAgreesWithTheClientWhereIDsCollide walks at random: each stream is some events that we pass and then one
// that we withhold, which the client must reject, and none before. Every second stream ends in order instead.
func TestAdmissionAgreesWithTheClientWhereIDsCollide(t *testing.T) {
	o := oracle.Start(t)
	const walks = 3000
	var jobs []oracle.Job
	var whys []string
	mended := 0
	for seed := range uint64(walks) {
		c := collider{rand.New(rand.NewPCG(seed, 17))}
		var a Admission
		var e Event
		var lines [][]byte
		why := ""
		add := func(line string) Verdict {
			if err := e.Parse([]byte(line)); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			v := a.Admit(&e)
			lines = append(append(lines, v.Closings...), e.Raw)
			if v.Closings != nil && !v.End {
				mended++
			}
			return v
		}
		add(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
		for left := 5 + c.IntN(40); ; left-- {
			if v := add(c.event()); !v.Send {
				if why = v.Detail; left <= 0 && seed%2 == 0 && !strings.Contains(why, "which end it") {
					break
				}
				lines, why = lines[:len(lines)-1], ""
			}
			if left <= 0 && seed%2 == 1 {
				add(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)
				break
			}
		}
		jobs, whys = append(jobs, oracle.Job{Lines: lines, Hash: true}), append(whys, why)
	}
	rejected := 0
	for i, r := range o.ReplayBatch(t, jobs) {
		lines, want := jobs[i].Lines, -1
		if whys[i] != "" {
			want = len(lines) - 1
			rejected++
		}
		if r.OK != (want < 0) || (!r.OK && r.At != want) {
			t.Errorf("walk %d: client %d (%s: %s), we %d (%s)\n%s", i, r.At, r.Stage, r.Error, want, whys[i], lineAt(lines, r.At))
			if testing.Verbose() {
				for k, l := range lines {
					t.Logf("%d %s", k, l)
				}
			}
		}
	}
	t.Logf("%d walks, %d end with an event that is illegal; %d events were mended", walks, rejected, mended)
}

// rich are events with all that their types describe.
var rich = []string{
	`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"user","name":"n","timestamp":1,"rawEvent":{},"metadata":{},"subagentRunId":"s"}`,
	`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"user","name":"n","delta":"d","subagentRunId":"s"}`,
	`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"p","subagentRunId":"s"}`,
	`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n","parentMessageId":"p","delta":"d","subagentRunId":"s"}`,
	`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","role":"tool","content":[{"type":"text","id":"i","text":"t","metadata":1},{"type":"image","id":"i","metadata":1,"source":{"type":"data","value":"v","mimeType":"m"}},{"type":"document","source":{"type":"file","value":"v","provider":"p","mimeType":"m"}}]}`,
	`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"c"}`,
	`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"image","id":5,"source":{"type":"later"}}]}`,
	`{"type":"MESSAGES_SNAPSHOT","messages":[{"role":"later","id":5,"content":[{"type":"binary","mimeType":"m","data":5}]},{"role":"user","id":"d","content":[{"type":"image","id":5,"metadata":null,"source":{"type":"later"}}]}]}`,
	`{"type":"STATE_SNAPSHOT","snapshot":1}`,
	`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1},{"op":"test","path":"/a","value":1},{"op":"copy","path":"/b","from":"/a"},{"op":"move","path":"/c~0~1","from":"/b"},{"op":"remove","path":"/a"},{"op":"replace","path":"","value":1}]}`,
	`{"type":"MESSAGES_SNAPSHOT","messages":[{"role":"developer","id":"d","name":"n","content":"c","encryptedValue":"e","metadata":{},"subagentRunId":"s"},{"role":"system","id":"d","name":"n","content":"c"},{"role":"reasoning","id":"r","content":"c","encryptedValue":"e"},{"role":"activity","id":"x","activityType":"t","content":{},"metadata":{}}]}`,
	`{"type":"MESSAGES_SNAPSHOT","messages":[{"role":"assistant","id":"d","name":"n","content":"c","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"a"},"encryptedValue":"e","metadata":{}}]},{"role":"tool","id":"t","toolCallId":"c","content":"c","error":"e"}]}`,
	`{"type":"MESSAGES_SNAPSHOT","messages":[{"role":"user","id":"d","name":"n","content":[{"type":"text","text":"t","metadata":1},{"type":"video","metadata":1,"source":{"type":"url","value":"v","mimeType":"m"}},{"type":"binary","mimeType":"image/png","data":"d","url":"u","filename":"f"}]},{"role":"tool","id":"t","toolCallId":"c","content":[{"type":"audio","source":{"type":"data","value":"v","mimeType":"m"}}]}]}`,
	`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"t","content":{},"replace":true}`,
	`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"t","patch":[{"op":"add","path":"/a","value":1}]}`,
	`{"type":"RAW","event":1,"source":"s"}`,
	`{"type":"CUSTOM","name":"n","value":1}`,
	`{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":1,"outcome":{"type":"success","pendingToolCallIds":["c"]},"usage":[{"provider":"p","model":"m","inputTokens":1,"outputTokens":1,"totalTokens":1,"reasoningTokens":1,"cachedInputTokens":1,"cacheWriteInputTokens":1}]}`,
	`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r","message":"m","toolCallId":"c","responseSchema":{},"expiresAt":"e","metadata":{},"subagentRunId":"s"}]}}`,
	`{"type":"RUN_ERROR","message":"m","code":"c","usage":[{"inputTokens":1}]}`,
	`{"type":"STEP_STARTED","stepName":"n","subagentRunId":"s"}`,
	`{"type":"REASONING_START","messageId":"m"}`,
	`{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}`,
	`{"type":"REASONING_MESSAGE_CHUNK","messageId":"m","delta":"d"}`,
	`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool-call","entityId":"e","encryptedValue":"v"}`,
	`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n","description":"d","parentToolCallId":"c","parentMessageId":"m"}`,
	`{"type":"SUBAGENT_FINISHED","subagentRunId":"z","result":1,"outcome":{"type":"suspended","interruptIds":["i"]}}`,
	`{"type":"SUBAGENT_ERROR","subagentRunId":"z","message":"m","code":"c"}`,
	`{"type":"THINKING_START","title":"t","messageId":"m","subagentRunId":"s","timestamp":1}`,
	`{"type":"THINKING_TEXT_MESSAGE_START","role":"assistant","messageId":"m","subagentRunId":"s"}`,
	`{"type":"RUN_STARTED","threadId":"t","runId":"r","protocolVersion":"1.0","parentRunId":"p","input":{"threadId":"t","runId":"r","protocolVersion":"1.0","parentRunId":"p","state":{},"forwardedProps":{},"messages":[{"role":"user","id":"u","content":[{"type":"image","metadata":1,"source":{"type":"data","value":"v","mimeType":"m"}}]}],"tools":[{"name":"n","description":"d","parameters":{},"metadata":{}}],"context":[{"description":"d","value":"v"}],"resume":[{"interruptId":"i","status":"resolved","payload":1,"metadata":{}}]}}`,
}

// bent makes variants of a JSON value: each value in it, one after the other, left out or another one in its place.
func bent(raw []byte) []string {
	raw = slices.Clip(raw) // so that a part's capacity tells its place
	others := []string{
		`null`, `0`, `1.5`, `-1`, `1e3`, `9007199254740992`, `9007199254740991.2`, `1e999`, `""`, `"x"`, `"x~y"`, `"\u002fx\u007e"`, `true`, `false`, `[]`, `{}`, `[1]`, `[{}]`, `[null]`,
		`{"type":"later"}`, `[{"type":"later"}]`, `[{"role":"later"}]`, `[{"op":"later"}]`, `{"type":5}`, `[[]]`,
	}
	var out []string
	var walk func(v []byte, from, to int)
	walk = func(v []byte, from, to int) {
		for _, other := range others {
			out = append(out, string(raw[:from])+other+string(raw[to:]))
		}
		inner := func(_, m []byte) bool {
			at := cap(raw) - cap(m)
			walk(m, at, at+len(m))
			return true
		}
		switch {
		case isObject(v):
			eachMember(v, func(key, m []byte) bool {
				at := cap(raw) - cap(key)
				out = append(out, string(raw[:at])+`"left-out"`+string(raw[at+len(key):]))
				return inner(nil, m)
			})
		case isArray(v):
			eachElement(v, func(m []byte) bool { return inner(nil, m) })
		}
	}
	walk(raw, 0, len(raw))
	return out
}

// TestSchemasAgreeWithTheClientOnEveryFieldOfEveryType puts every kind of value into every place of rich events, one at
// a time and then some two at a time.
func TestSchemasAgreeWithTheClientOnEveryFieldOfEveryType(t *testing.T) {
	o := oracle.Start(t)
	var jobs []oracle.Job
	var verdicts []Verdict
	try := func(line string) {
		lines := [][]byte{
			[]byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`),
			[]byte(`{"type":"SUBAGENT_STARTED","subagentRunId":"z","name":"n"}`), []byte(line),
		}
		var a Admission
		var e Event
		if e.Parse(lines[2]) != nil || e.Type == TypeUnknown {
			return
		}
		if e.Type == RunStarted {
			lines = lines[2:]
		}
		var v Verdict
		for _, l := range lines {
			if err := e.Parse(l); err != nil {
				t.Fatal(err)
			}
			v = a.Admit(&e)
		}
		jobs, verdicts = append(jobs, oracle.Job{Lines: lines, Hash: true}), append(verdicts, v)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, r := range rich {
		try(r)
		once := bent([]byte(r))
		for _, line := range once {
			try(line)
		}
		for range 60 {
			if twice := bent([]byte(once[rng.IntN(len(once))])); len(twice) > 0 {
				try(twice[rng.IntN(len(twice))])
			}
		}
	}
	rejected := 0
	for i, r := range o.ReplayBatch(t, jobs) {
		ok := r.OK || strings.Contains(r.Error, "subagents are still active")
		if !ok {
			rejected++
		}
		if v := verdicts[i]; ok != (v.Reason == "" || v.Reason == ReasonUnclosed) {
			lines := jobs[i].Lines
			t.Errorf("client ok %v (%s: %s), we %q (%s)\n%s", r.OK, r.Stage, r.Error, v.Reason, v.Detail, lineAt(lines, len(lines)-1))
		}
	}
	t.Logf("%d events, %d rejected", len(jobs), rejected)
}
