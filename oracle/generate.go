package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Options narrow what GenerateWith makes. The zero value means: everything that client 1.0.0 takes.
type Options struct {
	Version   string // V1 (also ""), V059 or V057: only what that client knows and takes
	Runs      int    // how many runs; 0 lets the seed decide, 1 to 4
	MaxEvents int    // about how many events at most; 0 means 150. What is open at the end is closed beyond it
	Legacy    bool   // THINKING_* events too; the stream is then marked Legacy
	Plain     bool   // no odd spelling of JSON: keys in order, once each, without escapes; no spaces between tokens

	// Contradict lets an id be used under several owners, and a message vanish whose call a chunk mode still holds: all of it legal for a
	// client that watches. To one that a snapshot brings to that place it can be fatal, since its verifier takes who a message names for
	// the owner of the message's id and calls.
	Contradict bool
}

// Generate makes a stream that client 1.0.0 accepts from the first event to the last, always the same for a seed: name it when a test fails.
// Streams are of 5 to about 150 events and 1 to 4 runs of one thread; which of AG-UI's features a stream is rich in varies with the seed.
func Generate(seed uint64) Stream { return GenerateWith(seed, Options{}) }

// GenerateWith is Generate within options.
func GenerateWith(seed uint64, opt Options) Stream {
	if opt.Version == "" {
		opt.Version = V1
	}
	g := &gen{
		rng: rand.New(rand.NewPCG(seed, 0xa6_0117)), //nolint:gosec // repeatable on purpose
		opt: opt, thread: fmt.Sprintf("thread-%d", seed), ids: map[string]bool{},
	}
	g.weigh()
	total := g.size()
	runs := opt.Runs
	if runs == 0 {
		runs = 1 + g.pick(6, 3, 2, 1)
	}
	for i := range runs {
		g.run(fmt.Sprintf("run-%d-%d", seed, i), max(1, total/runs), i == runs-1)
	}
	return NewStream(fmt.Sprintf("seed-%d", seed), g.lines)
}

// gen is a generator at work. It keeps what the client's verifier keeps, so that each event it adds is legal, and about what the reducer
// keeps, so that events and snapshots are of interest.
type gen struct {
	rng    *rand.Rand
	opt    Options
	thread string
	weight map[string]int
	lines  [][]byte
	ids    map[string]bool // taken, over all runs

	// The conversation, over all runs.
	msgs       []*message
	state      any
	interrupts []string // pending at the end of the run before
	lastRun    string

	// The run.
	runID     string
	text      []*item // open, by explicit events
	tools     []*item
	spans     []*item
	thoughts  []*item
	steps     []*item // id is the name
	lanes     map[string]*pending
	owners    map[string]map[string]string // kind → id → subagent, "" the parent
	lost      map[string]map[string]string // the same of messages and calls that have left the conversation
	subagents []string                     // started and not ended
	ended     []string                     // subagents that ended in this run
	calls     []string                     // tool calls of this run
	thinking  bool                         // legacy span open
	musing    bool                         // legacy message open
}

// item is something open: it has more to say, and an owner.
type item struct {
	id, tag string
	rest    []uint16
}

// pending is the chunk mode of a lane.
type pending struct {
	kind, id string
	rest     []uint16
}

func (g *gen) chance(percent int) bool { return g.rng.IntN(100) < percent }

// pick gives an index with the odds of the weights.
func (g *gen) pick(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := g.rng.IntN(max(1, sum))
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func one[T any](g *gen, list []T) T { return list[g.rng.IntN(len(list))] }

// features are what a run is made of, with the action that adds to each.
var features = []struct {
	name   string
	common int // percent of streams that have it at all
	act    func(*gen)
}{
	{"text", 90, (*gen).doText},
	{"tool", 75, (*gen).doTool},
	{"chunk", 45, (*gen).doChunk},
	{"reasoning", 50, (*gen).doReasoning},
	{"step", 40, (*gen).doStep},
	{"subagent", 40, (*gen).doSubagent},
	{"state", 60, (*gen).doState},
	{"activity", 45, (*gen).doActivity},
	{"snapshot", 40, (*gen).doSnapshot},
	{"custom", 40, (*gen).doCustom},
	{"reopen", 30, (*gen).doReopen},
	{"unknown", 30, (*gen).doUnknown},
	{"odd", 25, (*gen).doOdd},
	{"legacy", 100, (*gen).doThinking},
}

// weigh decides what this stream is rich in.
func (g *gen) weigh() {
	g.weight = map[string]int{}
	for _, f := range features {
		if g.chance(f.common) {
			g.weight[f.name] = 1 + g.rng.IntN(10)
		}
	}
	g.weight["snapshot"] = min(g.weight["snapshot"], 3)
	g.weight["unknown"] = min(g.weight["unknown"], 2)
	if g.opt.Version != V1 { // the schemas of older clients know no unknown types
		delete(g.weight, "unknown")
	}
	if !g.opt.Legacy {
		delete(g.weight, "legacy")
	}
	if g.opt.Version == V057 {
		delete(g.weight, "subagent")
	}
	if g.chance(25) { // how often a result repeats an id, in percent
		g.weight["repeat"] = 20 + g.rng.IntN(60)
	}
	// How often any event is decorated, in percent.
	for _, d := range []struct {
		name string
		most int
	}{{"metadata", 40}, {"extra", 15}, {"raw", 15}, {"spelling", 30}} {
		if g.chance(50) {
			g.weight[d.name] = 1 + g.rng.IntN(d.most)
		}
	}
}

func (g *gen) size() int {
	most := g.opt.MaxEvents
	if most == 0 {
		most = 130 // what closes the open items comes on top
	}
	top := []int{15, 40, 80, most}[g.pick(2, 4, 3, 2)]
	return 3 + g.rng.IntN(max(1, min(top, most)-3))
}

// run adds one run of about n events.
func (g *gen) run(id string, n int, last bool) {
	g.runID = id
	g.text, g.tools, g.spans, g.thoughts, g.steps = nil, nil, nil, nil, nil
	g.lanes, g.subagents, g.ended, g.calls = map[string]*pending{}, nil, nil, nil
	g.thinking, g.musing = false, false
	g.owners = map[string]map[string]string{"message": {}, "tool": {}, "activity": {}, "reasoning": {}}
	g.lost = map[string]map[string]string{"message": {}, "tool": {}, "activity": {}, "reasoning": {}}
	g.start()
	weights := make([]int, len(features))
	for i, f := range features {
		weights[i] = g.weight[f.name]
	}
	for end := len(g.lines) + n - 2; len(g.lines) < end; {
		features[g.pick(weights...)].act(g)
	}
	g.finish(last)
	g.lastRun = id
}

func (g *gen) finish(last bool) {
	// A client before 0.0.59 takes nothing after RUN_ERROR, a new run neither.
	if g.chance(15) && (last || g.opt.Version != V057) {
		g.emit("RUN_ERROR", "message", g.str("it broke"), "code", g.maybe(50, `"E_`+strconv.Itoa(g.rng.IntN(9))+`"`), "usage", g.maybe(20, g.usage()))
		return
	}
	g.closeAll()
	outcome := ""
	g.interrupts = nil
	switch g.pick(6, 2, 2, 1) {
	case 1:
		outcome = g.obj("type", `"success"`, "pendingToolCallIds", g.newer(g.maybe(50, g.strs(g.calls))))
	case 2:
		outcome = g.interrupt()
	case 3:
		if g.opt.Version == V1 {
			outcome = `{"type":"cancelled"}`
		}
	}
	result := ""
	if g.chance(30) {
		result = g.notNull(2)
	}
	g.emit("RUN_FINISHED", "threadId", quoted(g.thread), "runId", quoted(g.runID), "result", result, "outcome", outcome, "usage", g.maybe(25, g.usage()))
}

func (g *gen) interrupt() string {
	var list []string
	for range 1 + g.rng.IntN(2) {
		id := g.newID("int")
		g.interrupts = append(g.interrupts, id)
		call := ""
		if len(g.calls) > 0 {
			call = quoted(one(g, g.calls))
		}
		list = append(list, g.obj("id", quoted(id), "reason", `"approval"`, "message", g.maybe(60, g.str("may I? ")), "toolCallId", call,
			"responseSchema", g.maybe(40, `{"type":"object","properties":{"ok":{"type":"boolean"}}}`), "metadata", g.metadata(30)))
	}
	return g.obj("type", `"interrupt"`, "interrupts", "["+strings.Join(list, ",")+"]")
}

func (g *gen) usage() string {
	return fmt.Sprintf(`[{"provider":"p","model":"m-1","inputTokens":%d,"outputTokens":%d}]`, g.rng.IntN(9999), g.rng.IntN(999))
}

// closeAll ends whatever explicit events opened, in any order; chunk modes end with the run by themselves.
func (g *gen) closeAll() {
	for {
		var ends []func()
		if len(g.text) > 0 {
			ends = append(ends, g.endText)
		}
		if len(g.tools) > 0 {
			ends = append(ends, g.endTool)
		}
		if len(g.thoughts) > 0 {
			ends = append(ends, g.endThought)
		}
		if len(g.spans) > 0 {
			ends = append(ends, g.endSpan)
		}
		if len(g.steps) > 0 {
			ends = append(ends, g.endStep)
		}
		if len(g.subagents) > 0 {
			ends = append(ends, g.endSubagent)
		}
		if g.thinking || g.musing {
			ends = append(ends, g.endThinking)
		}
		if len(ends) == 0 {
			return
		}
		one(g, ends)()
	}
}

// newID makes an id that no other thing of the stream has; sometimes an odd one.
func (g *gen) newID(kind string) string {
	id := fmt.Sprintf("%s-%d", kind, len(g.ids))
	if g.chance(g.weight["odd"] / 2) {
		id += one(g, []string{" \u2028", `"quoted\`, "/~1", "é😀", ":0.1#?&=%20", "constructor"})
	}
	g.ids[id] = true
	return id
}

// emit adds an event with fields as pairs of key and JSON, leaving out those whose JSON is "".
func (g *gen) emit(typ string, fields ...string) {
	members := []string{"type", quoted(typ)}
	tag := ""
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			continue
		}
		if fields[i] == "subagentRunId" {
			tag = fields[i+1]
		}
		members = append(members, fields[i], fields[i+1])
	}
	members = g.decorate(typ, members)
	g.lines = append(g.lines, []byte(g.spell(members)))
	g.settle(typ, tag)
}

func (g *gen) decorate(typ string, members []string) []string {
	if !slices.Contains(members, "metadata") && g.opt.Version != V057 {
		if m := g.metadata(g.weight["metadata"]); m != "" {
			members = append(members, "metadata", m)
		}
	}
	if g.chance(g.weight["raw"]) {
		members = append(members, "rawEvent", g.notNull(2))
	}
	if g.chance(g.weight["raw"]) {
		members = append(members, "timestamp", strconv.FormatInt(1_700_000_000_000+g.rng.Int64N(1e9), 10))
	}
	if g.chance(g.weight["extra"]) && !strings.HasSuffix(typ, "_CHUNK") {
		members = append(members, one(g, []string{"x-trace", "eventId", "seq", "toString", "é", "type2"}), g.value(1))
	}
	return members
}

// spell writes an object, now and then as few producers would but all may.
func (g *gen) spell(members []string) string {
	if g.opt.Plain || !g.chance(g.weight["spelling"]) {
		return g.obj(members...)
	}
	pairs := make([][2]string, 0, len(members)/2+1)
	for i := 0; i < len(members); i += 2 {
		pairs = append(pairs, [2]string{quoted(members[i]), members[i+1]})
	}
	if g.chance(60) {
		g.rng.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	}
	if g.chance(10) { // an escape in a key
		if p := &pairs[g.rng.IntN(len(pairs))][0]; (*p)[1] >= 'a' && (*p)[1] <= 'z' {
			*p = fmt.Sprintf(`"\u%04x%s`, (*p)[1], (*p)[2:])
		}
	}
	if g.chance(4) { // the last of equal keys counts
		i := g.rng.IntN(len(pairs))
		first := "null"
		if pairs[i][1][0] == '"' { // of the same kind, since encoding/json stops at another one
			first = `"other"`
		}
		pairs = append([][2]string{{pairs[i][0], first}}, pairs...)
	}
	gap := func() string { return one(g, []string{"", "", " ", "\t", "  "}) }
	var b strings.Builder
	b.WriteString(gap() + "{")
	for i, p := range pairs {
		if i > 0 {
			b.WriteString(gap() + ",")
		}
		b.WriteString(gap() + p[0] + gap() + ":" + gap() + p[1])
	}
	b.WriteString(gap() + "}" + gap())
	return b.String()
}

// noClose are the types that leave every chunk mode open.
var noClose = map[string]bool{"RAW": true, "ACTIVITY_SNAPSHOT": true, "ACTIVITY_DELTA": true, "REASONING_ENCRYPTED_VALUE": true, "SUBAGENT_STARTED": true}

// settle closes the chunk modes that an event closes.
func (g *gen) settle(typ, tag string) {
	switch {
	case strings.HasSuffix(typ, "_CHUNK"):
	case strings.HasPrefix(typ, "RUN_"), typ == "MESSAGES_SNAPSHOT", g.opt.Version == V057:
		clear(g.lanes) // that client has one lane only; what closes it there is not told apart here
	case strings.HasPrefix(typ, "THINKING_"):
		delete(g.lanes, "") // it becomes a REASONING_ event
	case noClose[typ] || !known[typ]:
	default:
		delete(g.lanes, unquoted(tag))
	}
}

// Types are the event types of AG-UI 1.0.
var Types = strings.Fields(`TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END TEXT_MESSAGE_CHUNK
	TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END TOOL_CALL_CHUNK TOOL_CALL_RESULT STATE_SNAPSHOT STATE_DELTA MESSAGES_SNAPSHOT
	ACTIVITY_SNAPSHOT ACTIVITY_DELTA RAW CUSTOM RUN_STARTED RUN_FINISHED RUN_ERROR STEP_STARTED STEP_FINISHED
	REASONING_START REASONING_MESSAGE_START REASONING_MESSAGE_CONTENT REASONING_MESSAGE_END REASONING_MESSAGE_CHUNK REASONING_END
	REASONING_ENCRYPTED_VALUE SUBAGENT_STARTED SUBAGENT_FINISHED SUBAGENT_ERROR`)

var known = func() map[string]bool {
	m := map[string]bool{}
	for _, t := range Types {
		m[t] = true
	}
	return m
}()
